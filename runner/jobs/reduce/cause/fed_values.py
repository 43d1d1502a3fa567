"""Whether a check was fed the good values: without them the experiments on the whole model say nothing.

A check of the user's own may feed every model values that it makes itself (random ones, say). Good values in place of
what some nodes give are then an input like any other, and both experiments come out as it likes. Two controls tell:

- a harmless model with nothing to feed: a check that reads the values that it is given cannot pass it;
- the answer, whose nodes are all there, beside outputs that are right whatever these nodes compute: a check that fails
  it looks at nodes, not at what they compute, and no value misleads it. One that passes it runs the model on values of
  its own.
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
from runner.session.subject import Subject
from runner.verdict import Verdict
from strategies.outcome import Outcome
from strategies.search_space import Space
from strategies.trial import Trial


def unless_fed(session: Session, cause: Cause, answer: Trial) -> Cause:
    """Return what is known about the cause: nothing, where the check that was asked feeds values of its own."""
    checker, studied, base = inner(session.judge.checker), session.judge.studied.signature, session.judge.subject
    shown = cause.status in (CauseStatus.PROVEN, CauseStatus.JOINT)
    if not shown or not isinstance(checker, CommandCheck | PythonCheck) or not (studied and studied.about_values):
        return cause
    assert isinstance(base, Subgraph)
    fed = isinstance(checker, PythonCheck) or checker.takes_inputs
    if (
        fed
        and _verdict(session, Unfed(base), NOTHING, "a lone Identity, and nothing to feed it").outcome
        is not Outcome.PASS
    ):
        return cause
    if _verdict(session, Beside(base), answer, "the answer beside outputs that are right").outcome is not Outcome.PASS:
        return cause
    inputs = "its argument inputs" if isinstance(checker, PythonCheck) else "{inputs}"
    reason = f"your check does not read {inputs}, so it was fed no good value. Let it feed what {inputs} holds"
    if isinstance(checker, CommandCheck):
        reason += " (checker.command='python check.py {model} {inputs}')"
    return replace(cause, status=CauseStatus.UNTESTED, causes=(), reason=reason)


def _verdict(session: Session, subject: Subject, trial: Trial, label: str) -> Verdict:
    judge = session.judge.stage(type(subject).__name__.lower(), subject)
    ruling = session.reliability.rule(judge, trial, "cause", label, "trust")
    assert ruling is not None, "nothing ends it early"
    return ruling.verdict


@dataclass(frozen=True)
class Unfed:
    """Subject: what ``base`` makes of a trial, without values for its inputs."""

    base: Subgraph

    @property
    def space(self) -> Space:
        """The model's top-level nodes."""
        return self.base.space

    def identity(self) -> dict[str, str]:
        """Return how the model is cut, and what is done with the cut."""
        return {**self.base.identity(), "kind": type(self).__name__}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes that stay."""
        return self.base.names(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate."""
        made = self.base.make(trial, folder)
        if isinstance(made, Invalid):
            return made
        return replace(made, samples=tuple(Sample({}, one.expected) for one in made.samples))


class Beside(Unfed):
    """Subject: what ``base`` makes of a trial, whose outputs are other ones: good values, handed on by an Identity."""

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate."""
        made = self.base.make(trial, folder)
        if isinstance(made, Invalid) or made.model is None:
            return made
        model, samples = ModelProto.FromString(made.model.read_bytes()), made.samples
        outputs = [*model.graph.output]
        del model.graph.output[:]
        for place, output in enumerate(outputs):
            given, handed = f"{output.name}_good{place}", f"{output.name}_given{place}"
            model.graph.node.append(helper.make_node("Identity", [given], [handed], name=handed))
            model.graph.input.append(helper.make_value_info(given, output.type))
            model.graph.output.append(helper.make_value_info(handed, output.type))
            samples = tuple(
                Sample({**one.feeds, given: good}, {**one.expected, handed: good})
                if (good := one.expected.get(output.name))
                else one
                for one in samples
            )
        made.model.write_bytes(model.SerializeToString())
        return replace(made, samples=samples)
