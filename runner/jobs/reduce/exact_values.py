"""Exact values in the next wider type: who is right, which index flips within rounding, and what overflows."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto, helper, inliner

from runner.checkers.candidate_runs import BackendRunner
from runner.checkers.checker import inner
from runner.checkers.runtime import RuntimeCheck
from runner.engine.session import Session
from runner.engine.session_question import Cause, CurrentAnswer, InWiderType
from runner.exit_codes import WinnowError
from runner.jobs.job import Job
from runner.jobs.reduce.cause_experiments import USED_UP, Experiments, SessionModel, Wider
from runner.jobs.reduce.subgraph import Subgraph, subgraph
from runner.judgment import NON_FINITE, SHARE, SHOWN, CauseStatus, Whose
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import CutError
from runner.model.graph.edits import edited
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import LOW, NAMES, WIDER, WiderTypes
from runner.model.values.dtypes import BY_NUMBER, FLOATS, is_integer
from runner.model.values.recorded import TensorFile, read
from runner.model.values.tensor_bytes import beyond, range_of
from runner.reference.models import recording_backend
from runner.report.diagnosis_sections import NO_WIDER
from runner.schema.backend import OnnxReferenceBackend, OnnxRuntimeBackend, Optimization, Rounding
from runner.text import counted, one_line
from runner.verdict import ALONE, LIMITS, Sample, Signature
from strategies.search import Outcome, Trial

Array = np.ndarray[Any, Any]
PATIENCE = 30.0
"""Seconds that one runtime gets for the exact values of a model."""
_LONGEST = 160


class NotKnown(Exception):  # noqa: N818 - it is an answer
    """Why no exact values are known."""


@dataclass(frozen=True)
class Exact:
    """Runs models in a wider type: on ONNX Runtime, and what it has no kernels for on onnx's reference evaluator.

    ``target``, ``reference``: run a model as it is. ``peer``: the reference's runtime, made to round to the model's
    types after every operator, as a faithful runtime does.
    """

    sides: tuple[BackendRunner, ...]
    target: BackendRunner
    reference: BackendRunner
    peer: BackendRunner
    store: Store
    folder: Path

    @classmethod
    def of(cls, job: Job, store: Store) -> Exact:
        """Return what runs the models of a job."""
        settings, memory = job.settings, job.settings.workers.memory_mb
        own = peer = replace(recording_backend(settings), model=None)
        wide = OnnxRuntimeBackend(optimization=Optimization.none, rounding=Rounding.on), OnnxReferenceBackend()
        limits = job.tools, PATIENCE, memory
        sides = tuple(BackendRunner("reference", one, *limits) for one in wide)
        if isinstance(peer, OnnxRuntimeBackend):  # what a type loses is no error of the target
            strict = getattr(settings.target, "rounding", None) is Rounding.strict
            peer = replace(peer, rounding=Rounding.strict if strict else Rounding.on)
        reference, rounds = (BackendRunner("reference", one, *limits) for one in (own, peer))
        target = BackendRunner("target", settings.target, *limits)
        return cls(sides, target, reference, rounds, store, job.folder / "values" / "exact")

    def values(
        self,
        model: ModelProto,
        types: Mapping[str, TypeProto],
        samples: Sequence[Sample],
        wider: tuple[frozenset[int], int],
        *,
        outputs: bool = False,
        whole: str = "",
    ) -> Sequence[Mapping[str, Array]]:
        """Return the exact values of all that is computed, for each sample; ``outputs``: of the outputs alone.

        ``wider``: the types that are too narrow, and the one in their place. ``whole``: an output of integers, which is
        handed out as well. Raises NotKnown.
        """
        graph = Graph.of(model)
        if stays := [node for node in graph.nodes if node.nests or node.name in graph.drawing]:
            raise NotKnown(f"{stays[0].op_type} {stays[0].name} cannot be computed in a wider type")
        widened = WiderTypes(graph, {**types, **graph.value_types}, *wider)
        made = edited(model, [*widened.edits(range(len(graph.nodes)))])
        raised = {name: new for name, new in widened.raised.items() if not outputs or name in graph.output_set}
        if not raised and not whole:
            raise NotKnown("no node of it computes in a type that has a wider one")
        kept = [one for one in made.graph.output if one.name == whole]
        del made.graph.output[:]
        fed = {name for one in samples for name in one.feeds}  # a Cast rounds what it is fed
        wanted = [name for name in dict.fromkeys(raised.values()) if name not in fed]
        made.graph.output.extend(helper.make_tensor_value_info(name, widened.wide, None) for name in wanted)
        made.graph.output.extend(kept)
        ran = self._first(made, samples) if wanted or kept else [{} for _ in samples]
        own = {one.name: one.name for one in kept}
        return tuple(
            {name: held[new] if new in held else read(one.feeds[new]) for name, new in {**raised, **own}.items()}
            for one, held in zip(samples, ran, strict=True)
        )

    def _first(self, model: ModelProto, samples: Sequence[Sample]) -> Sequence[Mapping[str, Array]]:
        why = ""
        for side in self.sides:
            try:
                return self.plain(model, samples, side)
            except NotKnown as error:  # noqa: PERF203 - there are two
                why = why or str(error)
        raise NotKnown(f"no runtime at hand has kernels for it ({why})")

    def plain(self, model: ModelProto, samples: Sequence[Sample], side: BackendRunner) -> Sequence[Mapping[str, Array]]:
        """Return the outputs of a model as it is. Raises NotKnown."""
        made = inliner.inline_local_functions(model) if model.functions else model  # what rounds sees no calls
        try:
            ran = side.run(self.store.write(made, self.folder), [one.feeds for one in samples], self.folder)
            if not ran.outputs:
                raise NotKnown(one_line(ran.message or ran.invalid)[:_LONGEST])
            return arrays(ran.outputs)
        except WinnowError as error:
            raise NotKnown(str(error)) from error
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def arrays(given: Iterable[Mapping[str, TensorFile]]) -> Sequence[Mapping[str, Array]]:
    """Return the tensors among values."""
    return [{name: read(one) for name, one in held.items() if one.structure is None} for held in given]


# Who is right where two sides differ: the one that is nearer to what all of it in float64 gives.

AS_FAR = 2
"""A runtime that is off from the original by at most so many times another one's error is not to blame for it."""
TIMES = 10
"""The side whose error is so many times smaller is right, and smaller than the largest value too."""
CHEAP = 256 << 20
"""Bytes of weights that the whole model may have where that is evaluated too: in float64 they take twice as much."""
_FLOAT64 = (LOW | {TensorProto.FLOAT}, TensorProto.DOUBLE)


@dataclass(frozen=True)
class WhoIsRight:
    """``apart``: what is right comes from a model of its own, of which the one under study was made."""

    exact: Exact
    apart: bool

    def speaks_for_itself(self, witness: BackendRunner, whose: Whose) -> bool:
        """Whether a witness clears its own side against another program: it errs in float64 too."""
        own, other = self.exact.target.settings.name, self.exact.reference.settings.name
        cleared = other if whose is Whose.TARGET else own
        return own != other and whose is not Whose.BOTH and witness.settings.name == cleared

    def judged(self, session: Session, cause: Cause) -> Cause:
        """Return the cause with whose failure it is, where Winnow runs both sides and their values differ."""
        base, failure = subgraph(session.judge), session.judge.studied.signature
        compares = failure is not None and (failure.stage == "compare" or failure.kind in NON_FINITE)
        shown = cause.answers[cause.main].answer if cause.status in SHOWN else None
        if cause.whose is not Whose.UNKNOWN or session.spent():
            return cause
        if not isinstance(inner(session.judge.checker), RuntimeCheck):
            # which may run it on anything: what it makes here, clearly unlike the original, is a fault all the same
            wrong = {base.graph.names[index] for index in shown or ()} & {*base.recorded.wrong}
            asks = self.apart and wrong and failure and failure.about_values
            found = self._judged(session, base, cause, shown) if asks else cause
            return found if found.whose is Whose.CONVERSION else cause
        if not compares:
            return replace(cause, whose=Whose.TARGET) if self._reference_can(base, cause, failure) else cause
        return self._judged(session, base, cause, shown)

    def _judged(self, session: Session, base: Subgraph, cause: Cause, shown: Trial | None) -> Cause:
        """Return the cause with whose failure its values show it to be. ``shown``: what is shown to be the cause."""
        if overflow := self._overflow(base, shown) if shown else None:
            # a good value that the type holds is none that the type is to blame for
            fits = self.apart and base.has_reference(overflow.tensor) and overflow.tensor not in base.recorded.unfit
            return replace(cause, whose=Whose.CONVERSION if fits else Whose.MODEL, wider=overflow)
        # of an answer that is not the cause its values say nothing
        asked: list[tuple[str, Trial | None]] = [("the answer", shown)] if shown else []
        if self.exact.store.kept_bytes(base.graph.model) < CHEAP and not self.exact.target.settings.builds_engines:
            asked.append(("the whole model", None))  # it may have other faults besides
        whose, said = self._in_float64(session, base, asked)
        if shown and whose in (Whose.MODEL, Whose.BOTH, Whose.UNKNOWN) and (narrow := _too_narrow(base, shown)):
            return replace(cause, whose=Whose.MODEL, right=narrow)
        for of, trial in asked if self.apart and whose is Whose.UNKNOWN else ():
            with suppress(NotKnown, CutError):
                if off := self._off_anywhere(*_made(base, trial), fits=not base.recorded.unfit):
                    return replace(cause, whose=Whose.CONVERSION, right=f"For {of} {off}")
        return replace(cause, whose=whose, right=said)

    def _in_float64(
        self, session: Session, base: Subgraph, asked: Sequence[tuple[str, Trial | None]]
    ) -> tuple[Whose, str]:
        """Return whose failure it is by the first model that can be computed in float64, and what was seen there."""
        why = ""
        for (of, trial), witness in product(asked, self.exact.sides):
            try:
                whose, said = self._of(base, trial, witness, self._alone(session, trial))
                if self.speaks_for_itself(witness, whose):
                    raise NotKnown("what computes it there is the program of one side, and clears itself")
                return whose, f"In float64, {of}: {said}"
            except (NotKnown, CutError) as error:  # noqa: PERF203 - it is asked four times at most
                why = f"It is not known who is right: {of} could not be computed in float64 ({error})"
        return Whose.UNKNOWN, why

    def _reference_can(self, base: Subgraph, cause: Cause, failure: Signature | None) -> bool:
        """Whether the target does not load, build or run what is shown to be the cause, and the reference runs it.

        A limit of time or memory is the user's.
        """
        if self.apart or cause.status not in SHOWN or failure is None or failure.kind in LIMITS:
            return False
        made = [name for index in cause.answers[cause.main].answer for name in base.graph.nodes[index].outputs if name]
        every = base.recorded.values
        return bool(every) and all(base.has_reference(name) and any(name in one for one in every) for name in made)

    def _overflow(self, base: Subgraph, trial: Trial) -> InWiderType | None:
        """Return an overflow that explains the answer: an evaluator that rounds each node makes what the target makes.

        None: no value is beyond its type, or that is not known.
        """
        types = WiderTypes(base.graph, base.types_of_all)
        target, evaluator = self.exact.target, self.exact.sides[-1]
        names = [name for index in trial for name in base.graph.nodes[index].outputs if types.dtype(name) in LOW]
        with suppress(NotKnown, CutError):
            model, samples = _made(base, trial)
            exact = self.exact.values(model, base.types_of_all, samples, (LOW, TensorProto.FLOAT)) if names else ()
            held = ((name, tuple(one[name] for one in exact)) for name in names if all(name in one for one in exact))
            over = (_found(name, types.dtype(name), values) for name, values in held if values)
            # an Inf in the wider type as well is no overflow: an epsilon that became 0, and its logarithm
            if found := next((one for one in over if one.beyond and np.isfinite(one.largest)), None):
                mine, own = (self.exact.plain(model, samples, side) for side in (target, evaluator))
                same, off = (max(map(_largest, mine, other)) for other in (own, exact))
                return found if same * TIMES <= off else None
        return None

    def _off_anywhere(self, model: ModelProto, samples: tuple[Sample, ...], *, fits: bool = True) -> str:
        """Say how far a model is from its original on either runtime; "": much farther on the target. Raises NotKnown.

        Steps of quantization that round otherwise make the two sides differ as much from each other. ``fits``: what the
        original gives fits into the model's types.
        """
        ran = [self.exact.plain(model, samples, side) for side in (self.exact.target, self.exact.peer)]
        good = arrays([one.expected for one in samples])
        shapes = [
            [
                {name: made[name].shape for name in made.keys() & one.keys()}
                for made, one in zip(side, good, strict=True)
            ]
            for side in (*ran, good)
        ]
        if shapes[0] == shapes[1] != shapes[2]:
            return "both sides make other shapes than the original"
        own, peer = (max(map(_largest, one, good)) for one in ran)
        if max(map(_largest, *ran)) < own == peer == np.inf and fits:
            return "both sides make the same NaN or Inf, and the original makes none"
        if not (0 < own < np.inf and own <= AS_FAR * peer < np.inf):
            return ""
        said = f"the target is {own:.3g} of the largest value away from the original, the reference's runtime"
        return f"{said} {peer:.3g} with the same model: so no runtime is at fault"

    def _alone(self, session: Session, trial: Trial | None) -> str:
        """Return the output that fails while all others pass; "": several fail, or that is not known."""
        judge = session.judge
        verdicts = judge.counted(trial or judge.subject.space.whole)
        told = next((one.metrics for one in verdicts if one.outcome is Outcome.FAIL), {})
        return str(told.get(ALONE, ""))

    def _of(self, base: Subgraph, trial: Trial | None, witness: BackendRunner, alone: str) -> tuple[Whose, str]:
        """Return whose failure it is, and both errors in words; of the whole without a trial.

        ``alone``: the output that has to tell it; "": the one whose sides are farthest apart. Raises NotKnown,
        CutError.
        """
        model, samples = _made(base, trial)
        given = model, base.types_of_all, samples, _FLOAT64
        whole = alone if any(alone in one.expected and is_integer(one.expected[alone].dtype) for one in samples) else ""
        exact = replace(self.exact, sides=(witness,)).values(*given, outputs=True, whole=whole)
        ran = [self.exact.plain(model, samples, side) for side in (self.exact.target, self.exact.peer)]
        expected = arrays([one.expected for one in samples])
        good = expected if self.apart else self.exact.plain(model, samples, self.exact.reference)
        if whole:
            if not self.apart or not _differ(good, exact, whole) or any(_differ(one, exact, whole) for one in ran):
                raise NotKnown(f"rounding may decide the integers of {whole}")
            return Whose.CONVERSION, f"{whole} has the same integers, and those of the original differ"
        found = []
        for right, *held in zip(exact, *ran, good, strict=True):
            for name in right if not alone else right.keys() & {alone}:
                if all(name in one and one[name].shape == right[name].shape for one in held):
                    mine, peer, theirs = (one[name] for one in held)
                    off = [_off(one, right[name], right[name]) for one in (mine, peer, theirs)]
                    found.append((_off(mine, theirs, right[name]), *off, name))
        if not found or max(found)[0] == 0:
            raise NotKnown("no output that differs is computed in it")
        apart, own, peer, other, name = max(found)
        whose = self._nearest(apart, own, peer, other)
        if whose in (Whose.MODEL, Whose.BOTH):
            if max(own, other) < _rounding(base, name):  # a mask is the largest value
                raise NotKnown("the difference is smaller than the rounding of the largest value")
            near = self._near(model, samples, exact, min(own, peer))
            whose = self._unless_near(whose, witness, near)
        said = f"at {name} the target is off by {own:.3g} of the largest value, the reference by {other:.3g}"
        if whose is Whose.MODEL:
            said = f"{said}; the model's types lose these digits, on any runtime that rounds to them ({peer:.3g} there)"
        if whose is Whose.CONVERSION:
            said = f"{name} still differs from the original's by {other:.3g} of its largest value"
            said += f"; rounding explains only {own:.3g}"
        return whose, said

    def _near(
        self, model: ModelProto, samples: Sequence[Sample], exact: Sequence[Mapping[str, Array]], error: float
    ) -> list[BackendRunner]:
        """Return the programs that lose no digits in the model's types: each has so much less of an error."""
        near = []
        for side in self.exact.sides:
            with suppress(NotKnown):
                off = max(map(_largest, self.exact.plain(model, samples, side), exact))
                near += [side] * (off * TIMES <= min(error, 1))
        return near

    def _unless_near(self, whose: Whose, witness: BackendRunner, near: Sequence[BackendRunner]) -> Whose:
        """Return whose failure lost digits are where these programs lose none. Raises NotKnown."""
        if near and whose is Whose.MODEL and not self.apart:
            return Whose.TARGET
        if witness in near:
            raise NotKnown("what has kernels for it computes something else than both sides, in the model's types too")
        return whose

    def _nearest(self, between: float, own: float, peer: float, other: float) -> Whose:
        """Return whose failure these errors show: ``between`` the sides, and of the target, its peer, what is right."""
        # the same model run by the reference tells the target's error from that of a conversion
        if peer * TIMES <= min(own, 1) and own >= SHARE * between:
            return Whose.TARGET
        if own * TIMES <= other:
            return Whose.CONVERSION if self.apart else Whose.REFERENCE
        # what rounds to the model's types is as far off as the target
        return Whose.MODEL if other * TIMES <= own else Whose.BOTH


def _rounding(base: Subgraph, name: str) -> float:
    """Return what the type of a tensor rounds off, as a share of the value."""
    held = base.types_of_all.get(name)
    kind = FLOATS.get(held.tensor_type.elem_type) if held else None
    return 2.0**-kind.digits if kind else 0.0


def _too_narrow(base: Subgraph, trial: Trial) -> str:
    """Say which tensor inside an answer has a type that loses digits which its readers need; "": none."""
    graph = base.graph
    for name, one in base.recorded.narrow.items():
        readers = [graph.names[index] for index in sorted(one.readers) if index in trial]
        if readers and graph.producers[name] in trial:
            rest = f"the original is wrong too once this tensor is rounded to {one.type}"
            return f"{one.type} has too few digits for {name}, which {readers[0]} reads: {rest}"
    return ""


def _made(base: Subgraph, trial: Trial | None) -> tuple[ModelProto, tuple[Sample, ...]]:
    """Return a model and its samples; the whole without a trial. Raises CutError."""
    cut = base.cut(trial) if trial else None
    samples = base.samples(cut) if cut else base.whole_samples
    return (cut.model if cut else base.graph.model), samples or (Sample({}),)


def _differ(some: Iterable[Mapping[str, Array]], others: Iterable[Mapping[str, Array]], name: str) -> bool:
    return not all(np.array_equal(one[name], other[name]) for one, other in zip(some, others, strict=True))


def _largest(made: Mapping[str, Array], good: Mapping[str, Array]) -> float:
    """Return the largest difference of the outputs of a sample; infinite where these cannot be compared."""
    both = [(made[name], good[name]) for name in made if name in good]
    if not both or any(a.shape != b.shape or a.dtype.kind not in "biuf" for a, b in both):
        return np.inf
    return max(_off(a, b, b.astype(np.float64)) for a, b in both)


def _off(made: Array, good: Array, exact: Array) -> float:
    """Return the largest difference as a part of the largest exact value; infinite where only one is not finite."""
    scale = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(made.astype(np.float64) - good.astype(np.float64))
    same = (made == good) | (np.isnan(made) & np.isnan(good))
    return float(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)).max(initial=0.0)) / scale


# An answer that makes a NaN or Inf in the reference as well: no good value is known to put in its place.
#
# Exact values are computed in the next wider type instead. Where they are finite, experiment (a) is the whole model
# with the answer in that type, up to the first tensors that fit again. What no type heals is told by its operands.

_BY_ELEMENT = frozenset({"Div", "Sqrt", "Log", "Pow", "Reciprocal", "Mod", "Acos", "Asin", "Acosh", "Atanh", "Sub"})
"""Operators each element of which comes of one of each input."""
_NARROW = {TensorProto.FLOAT16: np.float16, TensorProto.FLOAT: np.float32}


@dataclass(frozen=True)
class Overflow:
    """Shows the cause where no good value is known, by exact values. ``most``: models in a wider type; None: all."""

    exact: Exact
    most: int | None = None

    def shown(self, model: SessionModel, cause: Cause, standing: CurrentAnswer) -> Cause:
        """Return what is known of the cause then. ``standing``: the answer as it is handed over."""
        tested, base = cause.answers[cause.main], model.base
        if cause.status is not CauseStatus.UNTESTED or not tested.unanswered:
            return cause
        names = [name for index in tested.answer for name in base.graph.nodes[index].outputs]
        # the good value that a parent in a wider type has may be finite, and none that this type holds
        unfit = next((name for name in names if name in base.recorded.unfit), "")
        tensor = next(filter(base.is_bad_feed, names), unfit)
        if not tensor:
            return cause
        dtype = WiderTypes(base.graph, base.types_of_all).dtype(tensor)
        if dtype not in BY_NUMBER:  # a sequence, say
            return cause
        if dtype not in WIDER:
            return replace(cause, reason=f"{cause.reason}; {BY_NUMBER[dtype].numpy_name} {NO_WIDER}")
        try:
            alone = base.apart
            held = [one[tensor] for one in alone.judging(alone.cut(tested.answer)) if tensor in one]
            if tensor != unfit and all(one.finite for one in held):
                return cause  # what the answer reads is not finite where this is not
            values = self._values(tensor, dtype, alone, tested.answer)
        except (NotKnown, CutError) as why:
            said = f"{cause.reason}; its exact value is not known: {why}"
            return self._inside(standing, cause) or replace(cause, reason=said)
        if not all(np.isfinite(one).all() for one in values):
            return _without_value(cause, base, tensor, values)
        found = _found(tensor, dtype, values)
        if tensor == unfit and not found.beyond:
            return cause
        shown = self._tested(model, cause, WiderTypes(base.graph, base.types_of_all, *_wider(dtype)), found)
        if tensor != unfit or shown.status is CauseStatus.PROVEN:
            return shown
        # its good values were cut off at the end of the type, which may matter
        return replace(cause, reason=shown.reason)

    def _inside(self, standing: CurrentAnswer, cause: Cause) -> Cause | None:
        """Return the cause with what gives a node of a body no value in any type, or how it overflows; or None."""
        own = standing.judge.subject
        if not (standing.origin and isinstance(own, Subgraph)):
            return None
        for tensor in (name for index in standing.trial for name in own.graph.nodes[index].outputs):
            dtype = WiderTypes(own.graph, own.types_of_all).dtype(tensor)
            with suppress(NotKnown):
                values = self._values(tensor, dtype, own, standing.trial) if dtype in WIDER else ()
                if not all(np.isfinite(one).all() for one in values):
                    return _without_value(cause, own, tensor, values)
                if values and (one := _found(tensor, dtype, values)).beyond:
                    said = f"{one.type} overflow in {tensor}: {one.said}; a body is not tried in {one.wider}"
                    return replace(cause, reason=said, whose=Whose.MODEL, wider=one)
        return None

    def _values(self, tensor: str, dtype: int, base: Subgraph, trial: Trial) -> tuple[Array, ...]:
        """Return the exact values of a tensor in what a trial keeps, one for each sample. Raises NotKnown."""
        try:
            model, samples = _made(base, trial)
            return tuple(one[tensor] for one in self.exact.values(model, base.types_of_all, samples, _wider(dtype)))
        except (NotKnown, CutError, KeyError) as error:
            held, reads = base.recorded.values, base.graph.protos[base.graph.producers[tensor]].input
            if any(_not_finite(base, name) for name in reads) and all(tensor in one for one in held):
                return tuple(read(one[tensor]) for one in held)  # what a weight holds is the same in any type
            raise NotKnown(str(error)) from error

    def _tested(self, model: SessionModel, cause: Cause, types: WiderTypes, found: InWiderType) -> Cause:
        """Make the experiments: (a) in the wider type, (b) as ever."""
        tested, base = cause.answers[cause.main], model.base
        judge = model.session.judge.stage(f"in {found.wider}", Wider(base, types))
        grown, every = [*types.grown(tested.answer.elements)], tuple(node.index for node in base.graph.nodes)
        tried = grown if every in grown else [*grown, every]
        most = len(tried) if self.most is None else max(self.most - 1, 1)
        for places in tried[:most]:
            raised = Trial.of(index for index in places if types.is_low(index))
            label = f"the whole model, {counted(len(raised), 'node')} in {found.wider}"
            outputs = model.asked(judge, Trial.of(places), label)
            if outputs.heals:
                break
        words = f"{found.type} overflow in {found.tensor}: {found.said}; "
        alone = replace(cause, whose=Whose.MODEL, wider=found)
        if not (outputs.heals or outputs.outcome is Outcome.FAIL):
            why = f"the whole model could not be judged in {found.wider}: {outputs.reason}"
            return replace(alone, reason=f"{words}{why}")
        alone = replace(alone, wider=replace(found, raised=raised))
        now, status = replace(tested, good_outputs=outputs, good_inputs=None), CauseStatus.NOT_PROVEN
        if not outputs.heals:
            why = f"the whole model fails in {found.wider} too" if most >= len(tried) else USED_UP
        elif places not in grown:
            why = f"other nodes overflow too: the model passes only with all nodes in {found.wider}"
            now = replace(now, good_outputs=None)
        else:
            inputs, why = Experiments(model, 1).only(tested.answer), now.doubt(model.graph.names)
            now = replace(now, good_inputs=inputs)
            if inputs.outcome is Outcome.UNRESOLVED:
                status, why = CauseStatus.UNTESTED, inputs.reason
            elif inputs.as_bad_as(model.whole, scale=model.scale):
                status, now = CauseStatus.PROVEN, replace(now, proven=True)
        answers = (*cause.answers[: cause.main], now, *cause.answers[cause.main + 1 :])
        if status is CauseStatus.PROVEN:
            return replace(alone, status=status, answers=answers, causes=(cause.main,), reason="")
        return replace(alone, status=status, answers=answers, causes=(), reason=words + why)


def _wider(dtype: int) -> tuple[frozenset[int], int]:
    """Return the types that are too narrow where this one is, and the one in their place."""
    return LOW if dtype in LOW else frozenset({dtype}), WIDER[dtype]


def _found(tensor: str, dtype: int, values: tuple[Array, ...]) -> InWiderType:
    narrow, ends = _NARROW.get(dtype), range_of(dtype)
    # what is less than half a step beyond the end is rounded to it: only that overflows nowhere
    with np.errstate(over="ignore"):
        rounded = [~np.isfinite(one.astype(narrow)) if narrow else beyond(one, dtype) for one in values]
    assert ends
    over = sum(int((np.abs(one) > ends[1]).sum()) for one in values) if any(one.any() for one in rounded) else 0
    farthest = (float(one.flat[np.abs(one).argmax()]) for one in values if one.size)
    largest, elements = max(farthest, key=abs), sum(one.size for one in values)
    return InWiderType(
        tensor, BY_NUMBER[dtype].numpy_name, NAMES[WIDER[dtype]], largest, float(ends[1]), over, elements
    )


def _not_finite(base: Subgraph, name: str) -> str:
    """Say how much of a weight is NaN or Inf; "": nothing is, or it is no weight of floats."""
    held = base.graph.initializers.get(name)
    array = base.store.array(held) if isinstance(held, TensorProto) and held.data_type in FLOATS else np.zeros(0)
    odd = array[~np.isfinite(array)]
    kind = "NaN" if np.isnan(odd).any() else "Inf"
    return (
        f"{odd.size} of {counted(array.size, 'element')} {'is' if odd.size == 1 else 'are'} {kind}" if odd.size else ""
    )


def _without_value(cause: Cause, base: Subgraph, tensor: str, values: tuple[Array, ...]) -> Cause:
    """Return the cause with the value out of an operator's domain, and the node that made it."""
    index = base.graph.producers[tensor]
    node = base.graph.nodes[index]
    sample, value = next((at, one) for at, one in enumerate(values) if not np.isfinite(one).all())
    place = tuple(int(at) for at in np.argwhere(~np.isfinite(value))[0])
    kind = "NaN" if np.isnan(value[place]) else "Inf" if value[place] > 0 else "-Inf"
    names, read_ = base.graph.protos[index].input, []
    odd = {name: said for name in names if (said := _not_finite(base, name))}
    for name in odd or names:
        held = base.recorded.values[sample].get(name) if base.recorded.values else None
        weight = base.graph.initializers.get(name)
        array = read(held) if held else base.store.array(weight) if isinstance(weight, TensorProto) else None
        if array is None or not (array.dtype.kind in "fiu" or name in odd) or not array.size:
            continue
        maker = base.graph.producers.get(name)
        whose = f"output of {base.graph.nodes[maker].name}" if maker is not None else "an input" if held else "a weight"
        try:
            element = np.broadcast_to(array, value.shape)[place]
            told = f"{float(element):.6g}" if node.op_type in _BY_ELEMENT else ""
        except ValueError:
            told = ""
        span = odd.get(name) or " to ".join(dict.fromkeys(f"{float(end):.6g}" for end in (array.min(), array.max())))
        read_.append(f"{told} ({name}, {whose})" if told else f"{name} ({whose}, {span})")
    said = f"{node.name} ({node.op_type}) computes {kind} from {' and '.join(read_) or 'its inputs'}"
    return replace(cause, reason=said, whose=Whose.MODEL, no_value=said)
