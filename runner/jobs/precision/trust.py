"""Trust: whether a raised set passes, by one check or by many; a doubt turned round, where YES means that it passes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from runner.schema.checker import Flaky
from runner.session.judge import Judge
from runner.session.reliability import (
    MEASURED,
    MOST_MEASURED,
    SEARCH_ERROR,
    Doubt,
    IndistinctError,
    Ruling,
)
from runner.verdict import MEASURE, Verdict
from strategies.outcome import Answer, Outcome, answer_of
from strategies.sequential import Count, Rates
from strategies.trial import Trial

log = logging.getLogger(__name__)

LOWEST = Trial.of([])
"""Nothing is raised."""
_OPPOSITE = {Answer.YES: Answer.NO, Answer.NO: Answer.YES}


class Trust(Doubt):
    """Decides on raised sets. ``whole``: failures with nothing raised; ``control``: those with everything raised.

    ``aim``: the share of what is allowed that a set may use up to count as passing, where a check tells how much it
    did (``measured``) and is not flaky; what is beyond passes the check all the same.
    """

    def __init__(self, mode: Flaky, max_wrong: float, *, aim: float = 1.0, measured: bool = False) -> None:
        super().__init__(mode, max_wrong)
        self.aim = aim
        self.measured = measured

    def share(self, verdict: Verdict) -> float | None:
        """Return how much of what is allowed a verdict says was used up: its error in units of the tolerance."""
        found = verdict.metrics.get(MEASURE) if self.measured else None
        exact = verdict.metrics.get("exact") and verdict.outcome is not Outcome.PASS  # a share of elements, no error
        return float(found) if isinstance(found, int | float) and not exact else None

    def answer(self, verdict: Verdict) -> Answer:
        """Return what one verdict says: YES where it passes with the margin that is aimed at."""
        if verdict.outcome is Outcome.PASS and (self.share(verdict) or 0.0) > self.aim:
            return Answer.NO
        return answer_of(verdict.outcome, Outcome.PASS)

    def rule(
        self,
        judge: Judge,
        trial: Trial,
        phase: str,
        label: str,
        purpose: str,
        *,
        error: float = SEARCH_ERROR,
        given_up: threading.Event | None = None,
        spent: Callable[[], bool] = lambda: False,
    ) -> Ruling | None:
        """Decide on a trial; None: it was given up meanwhile, or the budget was ``spent`` before it was sure."""
        if self.rates is None:
            verdict = judge.verdict(trial, phase, label, purpose, given_up=given_up)
            return Ruling(self.answer(verdict), verdict, Count()) if verdict else None
        ruling = super().rule(judge, trial, phase, label, purpose, error=error, given_up=given_up, spent=spent)
        return Ruling(_opposite(ruling.answer), ruling.verdict, ruling.count) if ruling else None

    def known(self, judge: Judge, trial: Trial, error: float = SEARCH_ERROR) -> Answer | None:
        """Return what the recorded verdicts on a trial amount to, if they suffice."""
        verdicts = judge.counted(trial)
        if verdicts and self.rates is None:
            return self.answer(verdicts[0])
        known = super().known(judge, trial, error)
        return known and _opposite(known)

    def measure(
        self,
        judge: Judge,
        whole: Trial,
        each_time: Callable[[Verdict], None] = lambda verdict: None,
        label: str = "everything raised",
    ) -> None:
        """Measure how often both ends fail. Raises IndistinctError where they are too much alike."""
        for repeats in (MEASURED, MOST_MEASURED):
            self.whole = self._measured(judge, LOWEST, "nothing raised", repeats, each_time)
            self.control = self._measured(judge, whole, label, repeats, each_time)
            self.rates = Rates.measured(self.whole, self.control)
            if self.rates:
                log.warning("the check is flaky: %s; each answer is tested until it is sure enough", self)
                return
        raise IndistinctError(
            f"the check is flaky, and high precision cannot be told from low: {self}{self.too_few}.\n"
            f"check: {judge.checker.describe()}"
        )

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict counts as failed: whatever is no pass."""
        return verdict.outcome is not Outcome.PASS

    def __str__(self) -> str:
        return (
            f"in low precision it fails {self.whole.rate:.0%} of the time ({self.whole.failed} of {self.whole.total}), "
            f"in high {self.control.rate:.0%} ({self.control.failed} of {self.control.total})"
        )


def _opposite(answer: Answer) -> Answer:
    return _OPPOSITE.get(answer, answer)
