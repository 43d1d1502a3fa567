"""What is still to come of a run: its checks, search and trust together, and the time that they take, as ranges.

How many: the search says what it has left itself, and so do repeats once they have begun; what follows an answer goes
by rules that are known, see `Course`. How long: a check to come costs what those of candidates of about its size did,
from one verdict to the next, so that what happens between checks, and several at once, is in it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.report.live.costs import Costs
from runner.report.live.course import REFUSED, REMOVALS, Course
from runner.report.live.phases import (
    ALONE,
    CAUSE,
    ENDS,
    HELD_OUT,
    RE_CHECK,
    REMOVING,
    REPEATS,
    SEVERAL,
    SHRINK,
    TESTING,
    TESTS,
    is_search,
    is_start,
)

WRITING = 0.5
"""Seconds at the end of a run."""
WIDTH = 2.0
"""The larger end of a range by the smaller one."""
AROUND = 3
"""Repeats around a window."""
FEW = 3
"""From so many elements on several can be removed at once."""
STARTED, MEASURED, FLAKY_PACE = 3, 20, 3.0
"""Checks of the whole that begin a run at most, by which rates of a flaky check are measured, and of one question."""
ANOTHER = 0.25
"""How likely there is another culprit, where there are several."""


@dataclass(frozen=True)
class Done:
    """A check that has ended.

    ``at``: when, in seconds, ``seconds``: how long it took; ``kept``: elements; ``left``, ``following``: see `Checked`.
    """

    phase: str
    kept: int
    at: float
    seconds: float = 0.0
    outcome: str = ""
    left: int | None = None
    following: str = ""
    known: bool = False


class _Part(NamedTuple):
    """So many checks to come, of candidates of this size.

    ``wanted``: with the wanted outcome or another one, None: either.
    """

    checks: float
    kept: int
    wanted: bool | None


@dataclass(frozen=True)
class Range:
    """From ``least`` to ``most``."""

    least: float
    most: float

    @staticmethod
    def around(value: float) -> Range:
        """Return a range of the usual width."""
        return Range(value / math.sqrt(WIDTH), value * math.sqrt(WIDTH))


def _count(number: float, *, exact: bool) -> Range:
    return Range(number, number) if exact else Range.around(number)


@dataclass(eq=False)
class Estimate:
    """Follows the checks of a run, and says what is to come. ``began``: when, in seconds.

    ``best``: the size of the smallest set so far that has the wanted outcome. ``checks``: how many are to come, of all
    phases, ``seconds``: how long they take; None: nobody knows yet. Both are made as a check ends: a panel is drawn by
    another thread. ``_fresh``: nothing has shown yet that the part of the search that goes on now finds anything.
    """

    course: Course
    began: float
    made: Counter[str] = field(default_factory=Counter)
    best: int | None = None
    checks: Range | None = None
    seconds: Range | None = None
    _last: Done | None = None
    _searching: Done | None = None
    _costs: Costs = field(default_factory=Costs)
    _culprits: int = 1
    _fresh: bool = True
    _asked: float = FLAKY_PACE
    _answered: float = 1.0
    _in_phase: int = 0

    def add(self, check: Done) -> None:
        """Take in a check that has ended."""
        self._take(check)
        parts = self._parts()
        number = sum(one.checks for one in parts)
        self.checks = _count(number, exact=bool(self.course.repeats)) if parts else None
        costs = [(one, self._costs.of(one.kept, wanted=one.wanted)) for one in parts if one.checks]
        known = [one.checks * cost for one, cost in costs if cost is not None]
        self.seconds = Range.around(WRITING + sum(known)) if parts and len(known) == len(costs) else None

    def _take(self, check: Done) -> None:
        before, self._last = self._last, check
        self.made[check.phase] += 1
        self._in_phase = self._in_phase + 1 if before and before.phase == check.phase else 1
        if check.phase == "pre-flight" and self.made[check.phase] == MEASURED:
            self._begin_again()
        if not check.known:
            between = check.at - (before.at if before else self.began)
            took = between if self.course.workers == 1 else check.seconds / self.course.workers
            self._costs.add(check.kept, took, wanted=check.outcome == self.course.wanted)
        else:
            each = check.seconds / self.course.workers
            self._costs.recorded(check.kept, each, wanted=check.outcome == self.course.wanted)
        if not is_search(check.phase) or check.left is None:
            return
        if check.outcome == self.course.wanted:
            self.best = min(self.best or check.kept, check.kept)
        last, self._searching = self._searching, check
        new = last is None or last.following != check.following or check.left > (last.left or 0) + 1
        still = check.outcome == self.course.wanted or (self.flaky and last is not None and last.left == check.left)
        self._fresh = new or (self._fresh and still)
        if last and last.left is not None and not new:
            fewer = max(last.left - check.left, 0)
            self._asked, self._answered = self._asked + 1, self._answered + min(fewer, 1 if check.phase in TESTS else 3)
        elif last and check.following in TESTS and last.following in TESTS:
            self._culprits += 1

    def _begin_again(self) -> None:
        """Forget the search of a check that has proved to be flaky."""
        self.made = Counter({phase: count for phase, count in self.made.items() if is_start(phase)})
        self.best, self._searching, self._culprits = None, None, 1
        self._asked, self._answered = FLAKY_PACE, 1.0

    @property
    def flaky(self) -> bool:
        """Whether the check has proved to be: its rates were measured."""
        return self.made["pre-flight"] >= MEASURED

    # ---- how many

    @property
    def searched(self) -> int:
        """How many checks looked for an answer."""
        return sum(count for phase, count in self.made.items() if is_search(phase))

    def _parts(self) -> list[_Part]:
        """Return how many checks are to come of candidates of which size; []: nobody knows yet."""
        last, course, made = self._last, self.course, self.made
        if last is None:
            return []
        if course.repeats is not None:
            return [_Part(max(course.repeats - made["repeat"], 0), last.kept, None)] if course.repeats else []
        left, passes = last.left or 0, last.outcome not in (course.wanted, "unresolved")
        # a control says nothing of what the search before it has left
        searching = self._searching if last.phase == "control" else last
        search = self._search(searching) if searching and is_search(searching.phase) else 0.0
        if is_start(last.phase) and made["pre-flight"] > STARTED and course.first and not self.searched:
            # its rates are measured, of both ends
            search = (course.first + 1) * FLAKY_PACE + course.follows(0) * FLAKY_PACE / 2
            other = MEASURED if last.phase == "pre-flight" else 0
            return [_Part(left + other + search, course.elements, None)]
        if is_search(last.phase) and last.left is None:
            return []
        if not self.searched:
            if last.phase != "control" and passes:  # it is checked again, and nothing is searched
                return [_Part(left, course.elements, wanted=False)] if left and not self.flaky else []
            if self.flaky or not course.first:
                return []
            search = course.first + 1
        size = self._size(last)
        pace = self._pace if self.flaky else 1.0
        again, good, caused = self._again(last, search, size), course.good * pace, made[CAUSE] > 0
        if course.workers > 1 and made[RE_CHECK]:  # it was checked beside the answer
            good = 0.0
        if last.phase == RE_CHECK:
            due = max(left, pace - self._in_phase) if self.flaky else left
            again, handed, good = (0.0, 0.0, due) if caused or not (course.cause or due) else (0.0, due, good)
        else:
            handed = (
                (1 if self.flaky else course.handing_over(self.searched + search, made[REPEATS] + again, size))
                * (pace + 1)
                / 2
                * (not made[RE_CHECK])
            )
        others = (max(course.held_out - made[HELD_OUT], 0.0) + max(course.simpler - made[SHRINK], 0.0)) * (
            not made[RE_CHECK]
        )
        alone = 0.0 if made[HELD_OUT] or made[RE_CHECK] else min(course.alone, self.searched + search)
        alone = left if last.phase == ALONE else alone
        cause = max(course.cause * max(0.75 * pace, 1) - made[CAUSE], 0.0)
        return [
            _Part(search, last.kept, None),
            _Part(again, size, wanted=False),
            _Part(handed + others, size, wanted=True),
            _Part(alone, course.elements, wanted=True),
            _Part(cause, course.elements, None),
            _Part(good, course.elements // 2, wanted=False),
        ]

    def _again(self, last: Done, search: float, size: int) -> float:
        """Return how many repeats of removals, and of sets around the answer, are to come."""
        if last.phase == REPEATS:
            return last.left or 0
        if not self.course.second or size == 1 or (self.made[REPEATS] and not search):
            return 0.0
        return REMOVALS * min(size, REFUSED) if self.course.proves else AROUND

    def _size(self, last: Done) -> int:
        """Return how large the answer will be: most are of one place."""
        if last.left and last.following in ENDS:
            return 1
        if last.left and last.following in TESTS:
            return self._culprits + (not self._fresh)
        if last.left and last.following == REMOVING and not self.made[TESTING]:
            return 1
        return self.best or 1

    def _search(self, last: Done) -> float:
        """Return how many checks the search has left."""
        left, following, more = last.left or 0, last.following, 0.0
        if not left:
            return 0.0
        size = self._size(last)
        if following in ENDS:
            second = len([end for end in ENDS if self.made[end] or end == following]) > 1
            # most failures are local: the first look around the end that was found shows it
            left, more = (1, 0) if second and self._fresh else (left, 0 if second else 1)
        elif following in TESTS and self._fresh:  # are those enough that are known?
            left, more = 1, (size + ANOTHER * left) * (size > 1)
        if size >= FEW and following != SEVERAL and not self.made[SEVERAL]:
            more += self.course.several
        return (left + more) * self._pace

    @property
    def _pace(self) -> float:
        """How many checks a question took so far: of a flaky check several, and what others at once were for."""
        if self.flaky:
            return max(self._asked / max(self._answered, 1.0), FLAKY_PACE)
        return self.course.workers / math.log2(self.course.workers + 1)  # some are for answers that never come
