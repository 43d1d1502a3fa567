"""The cause: what was shown of the answers of a reduction, and by which experiments on the whole model.

See `runner.jobs.reduce.prove_cause`, which makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from runner.judgment import CauseStatus, Experiment, Scale, Status, Whose
from runner.report.cause_section import NOT_THE_CAUSE
from runner.text import counted
from strategies.search import Outcome, Trial


@dataclass(frozen=True)
class AnswerExperiments:
    """An answer and its experiments.

    ``instances``: all places of its pattern, where good outputs for all of them heal the model and for it alone do not.
    ``good_outputs``, ``good_inputs``, ``good_around``: the experiments (a), (b) and (c); None: not made, since another
    one had decided.
    """

    answer: Trial
    instances: tuple[frozenset[int], ...] = ()
    good_outputs: Experiment | None = None
    good_inputs: Experiment | None = None
    good_around: Experiment | None = None
    proven: bool = False

    @property
    def heals(self) -> bool:
        """Whether the whole model does not fail any more with good values in place of what these nodes give."""
        return self.good_outputs is not None and self.good_outputs.heals

    @property
    def ruled_out(self) -> bool:
        """Whether these nodes do no harm by themselves: the whole model passes with good values for what they read."""
        return self.good_inputs is not None and self.good_inputs.outcome is Outcome.PASS

    def harm(self, whole: Experiment, scale: Scale) -> float | None:
        """How bad it is with good values for what they read, or else what good outputs mend; None: not measured."""
        inputs, outputs = self.good_inputs, self.good_outputs
        if inputs:
            return inputs.level(whole, scale) if inputs.outcome is Outcome.FAIL and inputs.measure is not None else None
        if outputs is None or self.heals or outputs.outcome is not Outcome.FAIL or outputs.measure is None:
            return None
        return whole.level(whole, scale) - outputs.level(whole, scale)

    @property
    def unanswered(self) -> str:
        """Why an experiment gave no answer; "" where all that were made did."""
        made = [one for one in (self.good_outputs, self.good_inputs, self.good_around) if one]
        return next((one.reason or "no answer" for one in made if one.outcome is Outcome.UNRESOLVED), "")

    @property
    def doubt(self) -> str:
        """Why it is not shown to be the cause."""
        if self.good_around:
            return (
                "with good values at their outputs the model still fails: later nodes do much of the harm by themselves"
            )
        if self.heals:
            return "with good values at their inputs the model passes, or nearly so: earlier nodes matter"
        if self.good_outputs and self.good_outputs.outcome is Outcome.DIFFERENT:
            met = self.good_outputs.reason.removeprefix("another failure, ")
            return f"with good values at their outputs the model fails in another way: {met}"
        return "with good values at their outputs the model still fails"


@dataclass(frozen=True)
class Inside:
    """What is known of nodes of a body. ``names``: of what ``cause`` tells of, the model with the body in the open."""

    cause: Cause
    names: Callable[[Trial], tuple[str, ...]]


@dataclass(frozen=True)
class InWiderType:
    """What an answer gives in a wider type.

    ``largest``: of the exact values of ``tensor``, of which ``beyond`` many are larger than ``limit``, the end of its
    type. ``raised``: the nodes that were in the wider type in experiment (a).
    """

    tensor: str
    type: str
    wider: str
    largest: float
    limit: float
    beyond: int
    elements: int
    raised: Trial = field(default_factory=lambda: Trial.of([]))

    @property
    def said(self) -> str:
        """It in words."""
        end = f"{self.type} ends at {shown(self.limit)}"
        if not self.beyond:
            return f"its partial sums overflow: the exact result is {shown(self.largest)} at most, {end}"
        return f"exact result {shown(self.largest)}, {end}, {self.beyond:,} of {counted(self.elements, 'element')}"


def shown(number: float) -> str:
    """Return a number for people, with thousands in groups."""
    return f"{number:,.0f}" if 1000 <= number < 1e9 else f"{number:.6g}"


@dataclass(frozen=True)
class Cause:
    """What is known about the cause.

    ``answers``: in the order in which they were found. ``causes``: which of them are the cause, or part of it.
    ``main``: the one with the strongest effect. ``whose``: whose failure it is. ``wider``: of an overflow, what the
    answer gives in a wider type; ``no_value``: what gives it none in any type, in words.
    ``right``: how far both sides are from the exact values, in words.
    """

    status: CauseStatus
    whole: Experiment
    answers: tuple[AnswerExperiments, ...]
    causes: tuple[int, ...] = ()
    main: int = 0
    reason: str = ""
    whose: Whose = Whose.UNKNOWN
    wider: InWiderType | None = None
    no_value: str = ""
    right: str = ""

    @property
    def ending(self) -> Status:
        """How a run ends that knows this of its answer."""
        if self.whose is Whose.REFERENCE:
            return Status.reference_wrong
        return Status.suspected if self.status is CauseStatus.NOT_PROVEN else Status.found

    def misread(self, scale: Scale) -> str:
        """Return why its measures say nothing, if they are worse where the model passes than where it fails."""
        bad, passing = self.whole.measure, (one.good_outputs for one in self.answers if one.heals)
        good = next((one.measure for one in passing if one and one.measure is not None), None)
        if good is None or bad is None or scale.harm(good) <= scale.harm(bad):
            return ""
        told = f"the check's measure is {good:g} where the model passes and {bad:g} where it fails"
        return f"{told}: checker.measure_better={'lower' if scale.higher_is_better else 'higher'}"


def how_it_fails(size: int, drift: str, cause: Cause | None) -> str:
    """Return in words how an answer of so many nodes fails; None: whether it is the cause was not asked.

    ``drift``: how its message differs from the model's. That it is the model's own failure is not said where the
    experiments on the whole model speak against it.
    """
    fail = "fails" if size == 1 else "fail"
    if cause is not None and cause.status is CauseStatus.NOT_PROVEN:
        return "; ".join(filter(None, (f"{fail} alone, but {NOT_THE_CAUSE}", drift)))
    return f"{counted(size, 'node')} still {fail}" + (f"; {drift}" if drift else " the same way")
