"""Whether a check was fed the good values; of one that feeds values of its own the experiments say nothing.

Two controls tell. A check that passes a harmless model for which it gets no values does not read them. One that fails
the answer's nodes beside outputs that are right, whatever these nodes compute, looks at nodes: no value misleads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto, helper

from runner.candidate import Candidate, Invalid, Sample
from runner.checkers.command.command import CommandCheck
from runner.checkers.python import PythonCheck
from runner.checkers.wrapping_checker import inner
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import CauseStatus
from runner.session.cause import Cause
from runner.session.question import NOTHING
from runner.session.session import Session
from strategies.outcome import Outcome
from strategies.search_space import Closure, Space
from strategies.trial import Trial


def unless_fed(session: Session, cause: Cause, answer: Trial) -> Cause:
    """Return what is known about the cause: nothing, where the check that was asked feeds values of its own."""
    checker, studied = inner(session.judge.checker), session.judge.studied.signature
    held = session.judge.subject.space.closure is Closure.PLACE  # the good values are in the model
    asked = cause.status is not CauseStatus.UNTESTED and studied is not None and studied.about_values and not held
    if not asked or not isinstance(checker, CommandCheck | PythonCheck):
        return cause
    given = isinstance(checker, PythonCheck) or checker.takes_inputs
    if given and not _passes(session, NOTHING, "a lone Identity, and nothing to feed it"):
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
    return not _passes(session, answer, "the answer beside outputs that are right", beside=True)


def _passes(session: Session, trial: Trial, label: str, *, beside: bool = False) -> bool:
    base = session.judge.subject
    assert isinstance(base, Subgraph)
    judge = session.judge.stage("beside" if beside else "unfed", Unread(base, beside))
    ruling = session.reliability.rule(judge, trial, "control", label, "trust")
    return ruling is not None and ruling.verdict.outcome is Outcome.PASS


@dataclass(frozen=True)
class Unread:
    """Subject: what ``base`` makes of a trial, without values to feed. ``beside``: with them, and good outputs."""

    base: Subgraph
    beside: bool

    @property
    def space(self) -> Space:
        """The model's top-level nodes."""
        return self.base.space

    def identity(self) -> dict[str, str]:
        """Return how the model is cut, and what is done with the cut."""
        return {**self.base.identity(), "kind": "beside" if self.beside else "unfed"}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes that stay."""
        return self.base.names(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate."""
        made = self.base.make(trial, folder)
        if isinstance(made, Invalid) or made.model is None:
            return made
        if not self.beside:
            return replace(made, samples=tuple(Sample({}, one.expected) for one in made.samples))
        model, feeds = ModelProto.FromString(made.model.read_bytes()), [dict(one.feeds) for one in made.samples]
        outputs, expected = [*model.graph.output], [dict(one.expected) for one in made.samples]
        del model.graph.output[:]
        for output in outputs:
            given, handed = f"{output.name}_is_good", f"{output.name}_handed_on"
            model.graph.node.append(helper.make_node("Identity", [given], [handed], name=handed))
            model.graph.input.append(helper.make_value_info(given, output.type))
            model.graph.output.append(helper.make_value_info(handed, output.type))
            for fed, good in zip(feeds, expected, strict=True):
                if output.name in good:
                    fed[given] = good[handed] = good.pop(output.name)
        made.model.write_bytes(model.SerializeToString())
        return replace(made, samples=tuple(map(Sample, feeds, expected)))
