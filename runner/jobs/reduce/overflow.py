"""An answer that makes a NaN or Inf in the reference as well: no good value is known to put in its place.

Exact values are computed in the next wider type instead. Where they are finite, experiment (a) is the whole model with
the answer in that type, up to the first tensors that fit again. What no type heals is told by its operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from onnx import TensorProto, TypeProto

from runner.candidate import Candidate, Invalid, Sample
from runner.engine.cause import Cause, InWiderType
from runner.engine.session_question import CurrentAnswer
from runner.engine.subject import Cutting, cutting
from runner.jobs.reduce.cause_experiments import REACHED, USED_UP, Experiments, SessionModel
from runner.jobs.reduce.exact_values import Array, Exact, NotKnown
from runner.jobs.reduce.subgraph import SameNodes, Subgraph
from runner.judgment import CauseStatus, Experiment, Whose
from runner.model.graph.cut import CutError
from runner.model.graph.edits import edited
from runner.model.graph.wider_types import LOW, NAMES, WIDER, WiderTypes
from runner.model.values.dtypes import BY_NUMBER
from runner.model.values.recorded import read
from runner.model.values.tensor_bytes import beyond, range_of
from runner.text import counted
from strategies.outcome import Outcome
from strategies.trial import Trial

_BY_ELEMENT = frozenset({"Div", "Sqrt", "Log", "Pow", "Reciprocal", "Mod", "Acos", "Asin", "Acosh", "Atanh", "Sub"})
"""Operators each element of which comes of one of each input."""
_NARROW = {TensorProto.FLOAT16: np.float16, TensorProto.FLOAT: np.float32}


@dataclass(frozen=True)
class Wider(SameNodes):
    """Subject `wider`: the whole model, with the nodes of a trial in a wider type."""

    types: WiderTypes

    def identity(self) -> dict[str, str]:
        """Return the model, and the type."""
        return {**self.base.identity(), "kind": "wider", "wide": str(self.types.wide)}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate.

        An output of the model that the raised nodes alone read has the wider type. A value of the reference that is not
        finite is none that it should give.
        """
        graph, types = self.base.graph, self.types
        made = edited(graph.model, [*types.edits(tuple(trial))])
        casts = {node.output[0]: node for node in made.graph.node if node.op_type == "Cast"}
        for output in made.graph.output:
            if output.name in types.raised and trial.elements.issuperset(graph.readers.get(output.name, ())):
                output.type.tensor_type.elem_type = types.wide
                casts[output.name].attribute[0].i = types.wide
        samples = tuple(
            replace(one, expected={name: held for name, held in one.expected.items() if held.finite})
            for one in self.base.whole_samples
        )
        draws = bool(graph.drawing)
        return Candidate(self.base.store.write(made, folder), folder, trial, samples, draws=draws, temporary=True)


@dataclass(frozen=True)
class Overflow:
    """Shows the cause where no good value is known, by exact values. ``most``: models in a wider type; None: all."""

    exact: Exact
    most: int | None = None

    def shown(self, model: SessionModel, cause: Cause, standing: CurrentAnswer) -> Cause:
        """Return what is known of the cause then. ``standing``: the answer as it is handed over."""
        tested, base = cause.answers[cause.main], model.session.judge.subject
        if cause.status is not CauseStatus.UNTESTED or not tested.unanswered or not isinstance(base, Subgraph):
            return cause
        names = [name for index in tested.answer for name in base.graph.nodes[index].outputs]
        # the good value that a parent in a wider type has may be finite, and none that this type holds
        unfit = next((name for name in names if name in base.recorded.unfit), "")
        tensor = next(filter(base.is_bad_feed, names), unfit)
        if not tensor:
            return cause
        dtype = WiderTypes(base.graph, base.types_of_all).dtype(tensor)
        if dtype not in WIDER:
            return replace(cause, reason=f"{cause.reason}; {_called(dtype)} has no wider type")
        wider = LOW if dtype in LOW else frozenset({dtype}), WIDER[dtype]
        cut = partial(self._values, tensor, base.types_of_all, wider)
        try:
            held = [one[tensor] for one in base.judging(base.cut(tested.answer)) if tensor in one]
            if tensor != unfit and all(one.finite for one in held):
                return cause  # what the answer reads is not finite where this is not
            values = cut(base, tested.answer)
        except (NotKnown, CutError) as why:
            return replace(cause, reason=f"{cause.reason}; its exact value is not known: {why}")
        if not all(np.isfinite(one).all() for one in values):
            said = _no_value(base, tensor, values)
            return replace(cause, reason=said, whose=Whose.MODEL, no_value=said)
        found = _found(tensor, dtype, values)
        if tensor == unfit and not found.beyond:
            return cause
        with suppress(NotKnown):  # the numbers of what is handed over, where it shows the same
            handed = _found(tensor, dtype, cut(cutting(standing.judge.subject), standing.trial))
            found = handed if handed.beyond else found
        shown = self._tested(model, cause, WiderTypes(base.graph, base.types_of_all, *wider), found)
        if tensor != unfit:
            return shown
        if shown.status is CauseStatus.PROVEN:
            return replace(shown, whose=Whose.CONVERSION)
        return replace(
            cause, reason=shown.reason
        )  # its good values were cut off at the end of the type, which may matter

    def _values(
        self,
        tensor: str,
        types: Mapping[str, TypeProto],
        wider: tuple[frozenset[int], int],
        subject: Cutting,
        trial: Trial,
    ) -> tuple[Array, ...]:
        """Return the exact values of a tensor in what a trial keeps, one for each sample. Raises NotKnown."""
        try:
            made = subject.cut(trial)
            found = self.exact.values(made.model, types, subject.samples(made) or (Sample({}),), wider)
            return tuple(one[tensor] for one in found)
        except (CutError, KeyError) as error:
            raise NotKnown(str(error)) from error
        finally:
            self.exact.clear()

    def _tested(self, model: SessionModel, cause: Cause, types: WiderTypes, found: InWiderType) -> Cause:
        """Make the experiments: (a) in the wider type, (b) as ever."""
        tested, base = cause.answers[cause.main], model.session.judge.subject
        assert isinstance(base, Subgraph)
        judge, outputs = model.session.judge.stage(f"in {found.wider}", Wider(base, types)), None
        grown, every = [*types.grown(tested.answer.elements)], tuple(node.index for node in base.graph.nodes)
        tried = grown if every in grown else [*grown, every]
        most = len(tried) if self.most is None else max(self.most - 1, 1)
        for places in tried[:most]:
            raised = Trial.of(index for index in places if types.is_low(index))
            label = f"the whole model, {counted(len(raised), 'node')} in {found.wider}"
            outputs = model.asked(judge, Trial.of(places), label)
            if outputs is None or outputs.heals:
                break
        words = f"{found.type} overflow in {found.tensor}: {found.said}; "
        alone = replace(cause, whose=Whose.MODEL, wider=found)
        if outputs is None or not (outputs.heals or outputs.outcome is Outcome.FAIL):
            why = outputs.reason if outputs else REACHED
            return replace(alone, reason=f"{words}the whole model could not be judged in {found.wider}: {why}")
        alone = replace(alone, wider=replace(found, raised=raised))
        ended = partial(_ended, alone, words)
        if not outputs.heals:
            why = f"the whole model fails in {found.wider} too" if most >= len(tried) else USED_UP
            return ended(CauseStatus.NOT_PROVEN, outputs, None, why)
        if places not in grown:
            why = f"other nodes overflow too: the model passes only with all nodes in {found.wider}"
            return ended(CauseStatus.NOT_PROVEN, None, None, why)
        inputs = Experiments(model, 1).only(tested.answer)
        if inputs.outcome is Outcome.UNRESOLVED:
            return ended(CauseStatus.UNTESTED, outputs, inputs, inputs.reason)
        if not inputs.as_bad_as(model.whole, scale=model.scale):
            why = replace(tested, good_outputs=outputs).doubt
            return ended(CauseStatus.NOT_PROVEN, outputs, inputs, why)
        return ended(CauseStatus.PROVEN, outputs, inputs)


def _ended(
    cause: Cause,
    words: str,
    status: CauseStatus,
    outputs: Experiment | None,
    inputs: Experiment | None,
    why: str = "",
) -> Cause:
    proven, main = status is CauseStatus.PROVEN, cause.main
    now = replace(cause.answers[main], good_outputs=outputs, good_inputs=inputs, proven=proven)
    answers = (*cause.answers[:main], now, *cause.answers[main + 1 :])
    reason = "" if proven else words + why
    return replace(cause, status=status, answers=answers, causes=(main,) if proven else (), reason=reason)


def _found(tensor: str, dtype: int, values: tuple[Array, ...]) -> InWiderType:
    narrow, ends = _NARROW.get(dtype), range_of(dtype)
    # what is less than half a step beyond the end is rounded to it
    with np.errstate(over="ignore"):
        over = [int((~np.isfinite(one.astype(narrow)) if narrow else beyond(one, dtype)).sum()) for one in values]
    assert ends
    largest, elements = max(float(np.abs(one).max()) for one in values if one.size), sum(one.size for one in values)
    return InWiderType(tensor, _called(dtype), NAMES[WIDER[dtype]], largest, float(ends[1]), sum(over), elements)


def _no_value(base: Subgraph, tensor: str, values: tuple[Array, ...]) -> str:
    """Name the value out of an operator's domain, and the node that made it."""
    index = base.graph.producers[tensor]
    node = base.graph.nodes[index]
    sample, value = next((at, one) for at, one in enumerate(values) if not np.isfinite(one).all())
    place = tuple(int(at) for at in np.argwhere(~np.isfinite(value))[0])
    kind = "NaN" if np.isnan(value[place]) else "Inf"
    read_ = []
    for name in base.graph.protos[index].input:
        held = base.recorded.values[sample].get(name) if base.recorded.values else None
        weight = base.graph.initializers.get(name)
        array = read(held) if held else base.store.array(weight) if isinstance(weight, TensorProto) else None
        if array is None or array.dtype.kind not in "fiu" or not array.size:
            continue
        maker = base.graph.producers.get(name)
        whose = f"output of {base.graph.nodes[maker].name}" if maker is not None else "an input" if held else "a weight"
        try:
            element = np.broadcast_to(array, value.shape)[place]
            told = f"{float(element):.6g}" if node.op_type in _BY_ELEMENT else ""
        except ValueError:
            told = ""
        told = told or f"{float(array.min()):.6g} to {float(array.max()):.6g}"
        read_.append(f"{told} ({name}, {whose})")
    return f"{node.op_type} {node.name} computes {kind} from {' and '.join(read_) or 'its inputs'}"


def _called(dtype: int) -> str:
    return BY_NUMBER[dtype].numpy_name if dtype in BY_NUMBER else "its type"
