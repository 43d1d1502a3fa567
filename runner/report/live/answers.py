"""How many checks a question takes: one, or as many as the sequential test of a flaky check does on average."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.report.live.phases import is_search, is_start

if TYPE_CHECKING:
    from runner.report.live.checked import ExpectedRepeats
    from runner.report.live.ended_check import EndedCheck

GUESSED = 3.6
"""Checks of one question of a flaky check, before its rates are known."""


@dataclass(eq=False)
class Answers:
    """Follows the questions that checks answer.

    ``flaky``: the check has proved to be. ``candidates``: how many the phase that goes on has had so far. ``_counts``:
    how often the last one failed and passed. ``_asked``: of which size were those of the search, ``_before``: and those
    of the search before the check proved to be flaky, whose verdicts count.
    """

    flaky: bool = False
    candidates: int = 0
    _repeats: ExpectedRepeats | None = None
    _last: EndedCheck | None = None
    _counts: tuple[int, int] = (0, 0)
    _asked: set[int] = field(default_factory=set)
    _before: frozenset[int] = frozenset()

    def begin_again(self) -> None:
        """The check has proved to be flaky: its search begins again, and what it asked has a first verdict."""
        self.flaky, self._before = True, frozenset(self._asked)
        self._asked.clear()

    def add(self, check: EndedCheck) -> None:
        """Take in a check that has ended."""
        before, self._last = self._last, check
        self._repeats = check.repeats or self._repeats
        same = before is not None and self._question(before) == self._question(check)
        failed, passed = self._counts if same else (0, 0)
        self.candidates = self.candidates + (not same) if before and before.phase == check.phase else 1
        fails, verdicts = check.outcome == "fail", 1
        if is_search(check.phase):
            self._asked.add(check.kept)
            if not same and self._before:
                # the search goes the way that it went before, or another one
                verdicts += check.kept in self._before
                self._before = self._before - {check.kept} if verdicts > 1 else frozenset()
        self._counts = (failed + fails * verdicts, passed + (not fails) * verdicts)

    @staticmethod
    def _question(check: EndedCheck) -> tuple[str, int, int | None]:
        return check.phase, check.kept, check.left if is_search(check.phase) else None

    @property
    def fails(self) -> bool:
        """Whether the last candidate rather has the failure."""
        assert self._last
        if self._repeats is None or is_start(self._last.phase):
            return self._last.phase == "pre-flight" or self._counts[0] > 0
        return self._repeats.looks_failing(*self._counts)

    def pace(self, *, failing: bool | None = None) -> float:
        """Return how many checks a question takes; ``failing``: of a candidate that does or does not, None: either."""
        if not self.flaky:
            return 1.0
        if self._repeats is None:
            return GUESSED
        if failing is None:
            return (self.pace(failing=True) + self.pace(failing=False)) / 2
        return self._repeats.more(failing=failing)

    def undecided(self, *, failing: bool | None = None) -> float:
        """Return how many more the last candidate takes; ``failing``: as above, None: what it looks like so far."""
        failed, passed = self._counts
        if self._repeats is None:
            return max(self.pace() - failed - passed, 0.0)
        if failing is None:
            failing = self._repeats.looks_failing(failed, passed)
        return self._repeats.more(failing=failing, failed=failed, passed=passed)

    def of(self, questions: float) -> float:
        """Return how many checks so many questions of a search take."""
        return questions * self.pace() - min(len(self._before), questions)

    def shares(self, *, fails: bool) -> tuple[tuple[bool, float], ...]:
        """Return which part of the checks of a search have the wanted outcome, and which have not.

        ``fails``: the wanted outcome is that a check fails. Half of the questions are answered either way.
        """
        share = self.pace(failing=fails) / (self.pace(failing=True) + self.pace(failing=False))
        return (True, share), (False, 1 - share)
