"""The question of a precision search: all high passes, all low fails; what is the least that has to be high?"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from runner.errors import CannotJudge
from runner.judgment import Status, measured
from runner.run_folder import MIXED
from runner.session.judge import Judge
from runner.session.question import Question
from runner.session.result import Ending
from runner.text import counted
from runner.verdict import Verdict
from strategies.outcome import Outcome
from strategies.search import Done

log = logging.getLogger(__name__)


@dataclass
class Margin:
    """How much of what is allowed an answer may use up, where a check tells how much it did (``measured``).

    ``aim``: the share of the tolerance that is aimed at; what is beyond passes the check all the same.
    """

    aim: float = 1.0
    measured: bool = False

    def share(self, verdict: Verdict) -> float | None:
        """Return how much of what is allowed a verdict says was used up: its error in units of the tolerance."""
        found = measured(verdict.metrics) if self.measured else None
        exact = verdict.metrics.get("exact") and verdict.outcome is not Outcome.PASS  # a share of elements, no error
        return None if exact else found

    def kept(self, verdict: Verdict) -> bool:
        """Whether a verdict that passes does so with the margin."""
        return (self.share(verdict) or 0.0) <= self.aim

    def reach(self, best: Verdict, label: str) -> None:
        """Aim at what can be reached: no set is nearer to what is right than everything raised."""
        least = self.share(best) or 0.0
        if least > self.aim:
            self.aim = (least + 1.0) / 2
            log.warning("%s takes %.2g of the tolerance already: %.2g of it is aimed at", label, least, self.aim)

    def nearest(self, judge: Judge, done: Done) -> Done:
        """Return the smallest set that passed, if only without the margin, where a budget ended the search early."""
        whole = judge.subject.space.whole.elements
        passed = [
            entry
            for entry in judge.journal.entries()
            if not entry.attempt and entry.verdict.outcome is Outcome.PASS and entry.trial.elements < whole
        ]
        if not passed:
            return done
        nearest = min(passed, key=lambda entry: len(entry.trial))
        share = self.share(nearest.verdict)
        beyond = share is not None and share > self.aim
        note = f"it takes {share:.2g} of the tolerance, where {self.aim:.2g} was aimed at" if beyond else ""
        return replace(done, trial=nearest.trial, note=note)

    def described(self, verdict: Verdict) -> str:
        """Say of the model in low precision why it is no answer."""
        share = self.share(verdict)
        if verdict.outcome is not Outcome.PASS or share is None:
            return f"fails ({verdict.signature})"
        return f"passes with {share:.2g} of the tolerance, and {self.aim:.2g} is aimed at (strategy.margin)"


@dataclass(frozen=True)
class Raising(Question):
    """Which nodes have to be in the type ``high``, and not in ``low``, for the check to pass with the margin?

    ``emulation``: how low precision comes about, where that matters. ``stays_high``, ``stays_low``: how many nodes are
    not searched, and so are high, or low, in every trial.
    """

    low: str = "float16"
    high: str = "float32"
    margin: Margin = field(default_factory=Margin)
    emulation: str = ""
    stays_high: int = 0
    stays_low: int = 0

    @staticmethod
    def of(low: str, high: str, margin: Margin) -> Raising:
        """Return the question about these two types."""
        ends = f"everything in {high}", f"everything in {low}"
        return Raising(Outcome.PASS, *ends, name=MIXED, low=low, high=high, margin=margin)

    def enough(self, verdict: Verdict) -> bool:
        """Whether a verdict passes with the margin."""
        return self.margin.kept(verdict)

    def examined(self, judge: Judge, verdict: Verdict, label: str) -> None:
        """Take in the first verdict of an end. Raises CannotJudge where it says nothing."""
        if verdict.outcome is Outcome.UNRESOLVED:
            raise CannotJudge(f"{label} cannot be judged: {verdict.reason}")
        raised = verdict.signature.raised if verdict.signature else None
        if label == self.whole and verdict.outcome is Outcome.FAIL and raised and raised.feeds:
            raise CannotJudge(
                f"{label}: {raised.why}: {verdict.reason}. What the check feeds or asks for does not "
                "suit the model, so it says nothing about precision; {inputs} holds values of the types that each "
                "candidate takes\n"
                f"check: {judge.checker.describe()}"
            )
        if label == self.whole and verdict.outcome is Outcome.PASS:
            judge.checker.settle(verdict)

    def begin(self, judge: Judge, whole: Verdict) -> None:
        """Aim at a margin that can be reached."""
        self.margin.reach(whole, self.whole)

    def no_answer(self, verdict: Verdict) -> Ending:
        """Return how it ends where everything in high precision fails."""
        but = f" but {counted(self.stays_low, 'node')} of strategy.include" if self.stays_low else ""
        message = f"even with {self.whole}{but} the check fails ({verdict.signature}): {verdict.reason}"
        return Ending(Status.no_set_suffices, message, signature=verdict.signature)
