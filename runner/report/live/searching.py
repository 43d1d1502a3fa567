"""What a search has left, and how large its answer will be, by what its questions have shown so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from runner.report.live.course import Course
from runner.report.live.ended_check import EndedCheck
from runner.report.live.phases import ENDS, REMOVING, SEVERAL, TESTING, TESTS

FEW = 3
"""From so many elements on several can be removed at once."""


@dataclass(eq=False)
class Searching:
    """Follows a search.

    ``best``: the size of the smallest set so far that has the wanted outcome. ``made``: questions of each phase.
    ``last``: of the last one. ``_culprits``: elements that are known to be needed, ``_refused``: that could not be
    removed. ``_fresh``: nothing has shown yet that the part of the search that goes on now finds anything,
    ``_alone``: nothing that a single element is not enough.
    """

    course: Course
    best: int | None = None
    made: Counter[str] = field(default_factory=Counter)
    last: EndedCheck | None = None
    _culprits: int = 1
    _refused: int = 0
    _fresh: bool = True
    _alone: bool = True

    def add(self, check: EndedCheck, *, flaky: bool) -> None:
        """Take in a check that looked for an answer."""
        self.made[check.phase] += 1
        if check.left is None:
            return
        wanted, before, self.last = check.outcome == self.course.wanted, self.last, check
        if wanted:
            self.best = min(self.best or check.kept, check.kept)
        new = before is None or before.following != check.following or check.left > (before.left or 0) + 1
        waits = before is not None and before.left == check.left
        self._refused += check.phase == REMOVING and not wanted and not (flaky and waits)
        if new and before and check.following in TESTS and before.following in TESTS:
            self._culprits += 1
        # what several workers ask ahead may be no answer to the next question
        ahead = self.course.workers > 1
        self._alone = self._alone and not (check.phase in TESTS and check.kept == 1 and not wanted and not flaky)
        self._fresh = (new and (self._alone or self._culprits > 1)) or (
            self._fresh and (wanted or (waits and (flaky or ahead)))
        )

    @property
    def asked(self) -> int:
        """How many checks looked for an answer."""
        return self.made.total()

    @property
    def size(self) -> float:
        """How large the answer will be: most are of one place."""
        last = self.last
        if last is None or (last.left and last.following in ENDS):
            return 1
        if last.left and last.following in TESTS:
            return self._culprits + (not self._fresh)
        if last.left and self._removes(last):
            # as many of those that are left are needed as of all that are searched, which is one at least
            return min(max(self._refused + last.left / max(self.course.elements, 1), 1), self.best or 1)
        return self.best or 1

    def _removes(self, last: EndedCheck) -> bool:
        """Whether elements are removed one at a time without anything that was found before."""
        return last.following == REMOVING and not self.made[TESTING]

    @property
    def kept(self) -> int:
        """Of which size the questions to come are."""
        last = self.last
        return 0 if last is None else last.kept // 2 if self._removes(last) else last.kept

    @property
    def left(self) -> float:
        """How many questions are to come; that of the last check of a flaky check, which may go on, is one of them."""
        if self.last is None or not self.last.left:
            return 0.0
        left, following, size, more = self.last.left, self.last.following, self.size, 0.0
        if following in ENDS:
            second = len([end for end in ENDS if self.made[end] or end == following]) > 1
            # most failures are local: the first look around the end that was found shows it
            left, more = (1, 0) if second and self._fresh else (left, 0 if second else 1)
        elif following in TESTS and self._fresh:  # are those enough that are known?
            left, more = 1, size * (size > 1)
        elif following == REMOVING and self.made[TESTING] and not self.made[REMOVING]:
            more = -1  # without the one that was found last it was asked before
        if size >= FEW and following != SEVERAL and not self.made[SEVERAL] and self.course.several:
            more += min(self.course.several, size * (size - 1) / 2) - 1  # pairs, one of which was asked before
        return max(left + more, 1)
