"""The sequential test for flaky checks: a trial is repeated until its answer is as sure as is asked.

A failing set fails at a rate (``hit``), a sound one at another (``false_alarm``). After Wald, "Sequential tests of
statistical hypotheses" (1945): with each repeat the odds between the two rates change by the likelihood ratio of what
was seen, and the test ends when the odds are further from even than the error allows. That takes the fewest repeats on
average of all tests with these errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from strategies.search import Answer

CONFIDENCE = 1.28
"""Standard deviations by which measured rates are drawn together (a one-sided 90 %): they come from few repeats."""
LEAST, MOST = 0.002, 0.998
"""No rate is taken to be 0 or 1: one surprise must not decide for ever."""
WRONG = 0.3
"""How often a check is wrong of which is said with what probability it would have been noticed."""


@dataclass(frozen=True)
class Count:
    """How often one trial failed and how often it did not."""

    failed: int = 0
    passed: int = 0

    @property
    def total(self) -> int:
        """All repeats."""
        return self.failed + self.passed

    @property
    def rate(self) -> float:
        """The share that failed (0 where nothing was tried)."""
        return self.failed / self.total if self.total else 0.0

    def and_(self, failed: bool) -> Count:
        """One more repeat."""
        return Count(self.failed + failed, self.passed + (not failed))

    def interval(self) -> tuple[float, float]:
        """Where the true rate lies, each end with 90 % confidence."""
        return wilson(self.failed, self.total, CONFIDENCE)


def wilson(hits: int, n: int, z: float) -> tuple[float, float]:
    """Return where the true rate of hits lies, after Wilson (1927); ``z``: the normal quantile of the confidence."""
    if not n:
        return 0.0, 1.0
    rate = hits / n
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


def power(agreed: int) -> float:
    """Return the probability that one of so many second verdicts differs from a right first one."""
    return 1 - (1 - WRONG) ** agreed


@dataclass(frozen=True)
class Rates:
    """Rates of failing: of a set that has the failure under study, and of one that has not."""

    hit: float
    false_alarm: float

    @staticmethod
    def measured(whole: Count, control: Count) -> Rates | None:
        """What repeats of the whole model and of the control allow to assume; None if they cannot be told apart.

        Each rate is moved towards the other by its uncertainty, so that errors of measurement make the test longer
        and not wrong.
        """
        hit = min(max(whole.interval()[0], LEAST), MOST)
        false_alarm = min(max(control.interval()[1], LEAST), MOST)
        return Rates(hit, false_alarm) if hit > false_alarm + 0.05 or hit > 2 * false_alarm else None

    def odds(self, count: Count) -> float:
        """The logarithm of the odds that what was counted is a failing set (even beforehand)."""
        up = math.log(self.hit / self.false_alarm)
        down = math.log((1 - self.hit) / (1 - self.false_alarm))
        return count.failed * up + count.passed * down

    def decide(self, count: Count, error: float) -> Answer | None:
        """YES or NO once the probability of being wrong is below ``error``; None: repeat."""
        odds = self.odds(count)
        bound = math.log((1 - error) / error)
        if odds >= bound:
            return Answer.YES
        return Answer.NO if odds <= -bound else None
