"""Whether a check was fed the good values; of one that feeds values of its own the experiments say nothing.

Three controls tell. A check that fails a Gather that is fed an index beyond its data reads it, also one that makes up
what it does not get. Where a runtime minds no index, one that fails a harmless model for which it gets no values does.
One that fails the answer's nodes beside outputs that are right, whatever these compute, looks at nodes: no value
misleads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper

from runner.candidate import Candidate, Invalid, Sample
from runner.checkers.command.command import CommandCheck
from runner.checkers.python import PythonCheck
from runner.checkers.wrapping_checker import inner
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import CauseStatus
from runner.model.graph.protobuf_edits import add_initializer
from runner.model.values.recorded import read, write
from runner.session.cause import Cause
from runner.session.question import NOTHING
from runner.session.session import Session
from strategies.outcome import Outcome
from strategies.search_space import Closure, Space
from strategies.trial import Trial

_DATA, _BEYOND = 1 << 15, 60_000
"""Elements that the Gather reads of, more than a check makes up an index for, and an index beyond, also in float16."""
_INDEX = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64)


class Values(Enum):
    """What a trial is given: no values, an index beyond the data, or outputs that are right beside its own."""

    UNFED = "unfed"
    BEYOND = "beyond"
    BESIDE = "beside"


def unless_fed(session: Session, cause: Cause, answer: Trial) -> Cause:
    """Return what is known about the cause: nothing, where the check that was asked feeds values of its own."""
    checker, studied = inner(session.judge.checker), session.judge.studied.signature
    held = session.judge.subject.space.closure is Closure.PLACE  # the good values are in the model
    asked = cause.status is not CauseStatus.UNTESTED and studied is not None and studied.about_values and not held
    if not asked or not isinstance(checker, CommandCheck | PythonCheck):
        return cause
    given = isinstance(checker, PythonCheck) or checker.takes_inputs
    for label, values in _UNREAD.items() if given else ():
        if not _passes(session, NOTHING, label, values):
            return cause
    if looks_at_nodes(session, answer):
        return cause
    inputs, how = "{inputs}", " (checker.command='python check.py {model} {inputs}')"
    if isinstance(checker, PythonCheck):
        inputs, how = "its argument inputs", ""
    reason = f"your check does not read {inputs}, so it was fed no good value. Let it feed what {inputs} holds{how}"
    return replace(cause, status=CauseStatus.UNTESTED, causes=(), reason=reason)


def looks_at_nodes(session: Session, answer: Trial) -> bool:
    """Whether a check fails an answer's nodes beside outputs that are right; of checks of ours this is not known."""
    if not isinstance(inner(session.judge.checker), CommandCheck | PythonCheck):
        return True
    return not _passes(session, answer, "the answer beside outputs that are right", Values.BESIDE)


_UNREAD = {
    "a lone Gather, fed an index beyond its data": Values.BEYOND,
    "a lone Identity, and nothing to feed it": Values.UNFED,
}
"""Harmless models that a check passes only if it reads no values."""


def _passes(session: Session, trial: Trial, label: str, values: Values) -> bool:
    base = session.judge.subject
    assert isinstance(base, Subgraph)
    judge = session.judge.stage(values.value, Unread(base, values))
    ruling = session.reliability.rule(judge, trial, "control", label, "trust")
    return ruling is not None and ruling.verdict.outcome is Outcome.PASS


@dataclass(frozen=True)
class Unread:
    """Subject: what ``base`` makes of a trial, with other ``values``."""

    base: Subgraph
    values: Values

    @property
    def space(self) -> Space:
        """The model's top-level nodes."""
        return self.base.space

    def identity(self) -> dict[str, str]:
        """Return how the model is cut, and what is done with the cut."""
        return {**self.base.identity(), "kind": self.values.value}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes that stay."""
        return self.base.names(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate."""
        made = self.base.make(trial, folder)
        if isinstance(made, Invalid) or made.model is None:
            return made
        if self.values is Values.UNFED:
            return replace(made, samples=tuple(Sample({}, one.expected) for one in made.samples))
        model = ModelProto.FromString(made.model.read_bytes())
        change = _beside if self.values is Values.BESIDE else _beyond
        samples = change(model, made.samples, folder)
        made.model.write_bytes(model.SerializeToString())
        return replace(made, samples=samples)


def _beside(model: ModelProto, samples: tuple[Sample, ...], _: Path) -> tuple[Sample, ...]:
    """Hand on good outputs in place of what is computed."""
    feeds, expected = [dict(one.feeds) for one in samples], [dict(one.expected) for one in samples]
    outputs = [*model.graph.output]
    del model.graph.output[:]
    for output in outputs:
        given, handed = f"{output.name}_is_good", f"{output.name}_handed_on"
        model.graph.node.append(helper.make_node("Identity", [given], [handed], name=handed))
        model.graph.input.append(helper.make_value_info(given, output.type))
        model.graph.output.append(helper.make_value_info(handed, output.type))
        for fed, good in zip(feeds, expected, strict=True):
            if output.name in good:
                fed[given] = good[handed] = good.pop(output.name)
    return tuple(map(Sample, feeds, expected))


def _beyond(model: ModelProto, samples: tuple[Sample, ...], folder: Path) -> tuple[Sample, ...]:
    """Make a Gather of a lone Identity; of other controls, and of types that hold no such index, the same is left."""
    graph = model.graph
    kinds = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    if len(graph.node) != 1 or len(graph.input) != 1 or len(kinds) != 1 or not kinds <= {*_INDEX}:
        return samples
    (fed,), (gives,) = graph.node[0].input, graph.node[0].output
    index, data, kind = f"{gives}_index", f"{gives}_data", kinds.pop()
    add_initializer(model, helper.make_tensor("", kind, [_DATA], [1] * _DATA), data)
    graph.node[0].CopyFrom(helper.make_node("Cast", [fed], [index], to=TensorProto.INT64))
    graph.node.append(helper.make_node("Gather", [data, index], [gives]))
    found = []
    for at, one in enumerate(samples):
        beyond = np.full_like(read(one.feeds[fed]), _BEYOND)
        found.append(Sample({fed: write(beyond, fed, folder / f"beyond{at}.pb")}, one.expected))
    return tuple(found)
