"""What is still to come of a run: its checks, search and trust together, and the time that they take, as ranges.

How many: the search says what it has left itself, and so do repeats once they have begun; what follows an answer goes
by rules that are known, see `Course`. A question of a flaky check takes as many as its sequential test does on average.
How long: a check to come costs what those of candidates of about its size did, with its outcome. Where several run at
once, those that do not wait for each other come in rounds, and a search asks ahead of its answers.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.report.live.answers import Answers
from runner.report.live.costs import Costs
from runner.report.live.course import Course
from runner.report.live.ended_check import EndedCheck
from runner.report.live.phases import (
    ALONE,
    CAUSE,
    HELD_OUT,
    RE_CHECK,
    REPEATS,
    SHRINK,
    TESTING,
    is_search,
    is_start,
)
from runner.report.live.searching import FEW, Searching

WIDTH = 2.0
"""The larger end of a range by the smaller one."""
MEASURED = 20
"""Checks by which a rate of a flaky check is measured."""
STARTED = 3
"""Repeats of the whole that are announced where the check has not proved to be flaky."""
REMOVALS, MOST_REMOVALS = 2.2, 3
"""Repeats of a removal that proves an answer of several: after a search of many questions, and after one of few."""
REFUSED, AROUND = 12, 3
"""How many removals are repeated at most, and how many sets around a window."""
WAITING = 1.3
"""How much longer a question takes where several are asked at once, for not all that is asked ahead is needed."""
UNEVEN, BEGUN = 1.15, 0.25
"""How much longer the longest of a few checks takes than the others do, and which part of it is left by then."""


class _Part(NamedTuple):
    """So many checks to come, of candidates of this size.

    ``wanted``: with the wanted outcome or another one, None: either. ``rounds``: so many times as long as one.
    """

    checks: float
    kept: int
    wanted: bool | None
    rounds: float


@dataclass(frozen=True)
class Range:
    """From ``least`` to ``most``."""

    least: float
    most: float

    @staticmethod
    def around(value: float) -> Range:
        """Return a range of the usual width."""
        return Range(value / math.sqrt(WIDTH), value * math.sqrt(WIDTH))

    def after(self, seconds: float) -> Range:
        """Return what is left of it after so many seconds, as wide by its middle as before."""
        middle = math.sqrt(self.least * self.most)
        share = max(1 - seconds / middle, 0.0) if middle else 0.0
        return Range(self.least * share, self.most * share)


@dataclass(eq=False)
class Estimate:
    """Follows the checks of a run, and says what is to come. ``began``: when, in seconds.

    ``checks``: how many are to come, of all phases, ``seconds``: how long they take; None: nobody knows yet. Both are
    made as a check ends: a panel is drawn by another thread. ``made``: checks of each phase besides the search,
    ``_handed``: those of an answer that was handed over before the check proved to be flaky.
    """

    course: Course
    began: float
    made: Counter[str] = field(default_factory=Counter)
    checks: Range | None = None
    seconds: Range | None = None
    _handed: int = 0
    _last: EndedCheck | None = None
    _costs: Costs = field(default_factory=Costs)
    _answers: Answers = field(default_factory=Answers)
    _search: Searching = field(init=False)

    def __post_init__(self) -> None:
        self._search = Searching(self.course)

    def add(self, check: EndedCheck) -> None:
        """Take in a check that has ended."""
        self._take(check)
        parts = self._parts(check)
        self.checks = self.seconds = None
        if parts is None:
            return
        number = sum(one.checks for one in parts)
        self.checks = Range(number, number) if self.course.repeats else Range.around(number)
        costs = [(one.rounds, self._costs.of(one.kept, wanted=one.wanted)) for one in parts if one.checks]
        took = [rounds * cost for rounds, cost in costs if cost is not None]
        if len(took) == len(costs):
            self.seconds = Range.around(self.course.writing + sum(took))

    def _take(self, check: EndedCheck) -> None:
        before, self._last = self._last, check
        course, wanted = self.course, check.outcome == self.course.wanted
        if check.phase == "pre-flight" and not self.flaky and (check.left or 0) > STARTED:
            self._begin_again()
        self._answers.add(check)
        if is_search(check.phase):
            self._search.add(check, flaky=self.flaky)
        else:
            # as an answer is made simpler, the check is tried on other values first
            simpler = check.phase == "control" and self.searched
            self.made[SHRINK if simpler else check.phase] += 1
        if self.flaky:  # by what it has shown so far: a check that passes once may take as long as those that fail
            wanted = self._answers.fails == (course.wanted == "fail")
        if check.known:
            self._costs.recorded(check.kept, check.seconds, wanted=wanted)
        else:
            between = check.at - (before.at if before else self.began)
            self._costs.add(check.kept, between if course.workers == 1 else check.seconds, wanted=wanted)

    def _begin_again(self) -> None:
        """Forget the search of a check that has proved to be flaky."""
        self._answers.begin_again()
        self._handed = self.made[RE_CHECK]
        self.made = Counter({phase: count for phase, count in self.made.items() if is_start(phase)})
        self._search = Searching(self.course)

    @property
    def flaky(self) -> bool:
        """Whether the check has proved to be: its rates are measured."""
        return self._answers.flaky

    @property
    def searched(self) -> int:
        """How many checks looked for an answer."""
        return self._search.asked

    # ---- how many

    def _parts(self, last: EndedCheck) -> list[_Part] | None:
        """Return how many checks are to come of candidates of which size; None: nobody knows yet."""
        course, left, begins = self.course, last.left or 0, not self.searched
        if course.repeats is not None:
            left = max(course.repeats - self._search.made["repeat"], 0)
            return [self._batch(left, last.kept, wanted=None)] if course.repeats else None
        passes = last.outcome not in (course.wanted, "unresolved")
        if begins and last.phase != "control" and passes and not self.flaky:  # it is checked again, nothing is searched
            return [self._batch(left, course.elements, wanted=False)] if left else None
        if (begins and not course.first) or (is_search(last.phase) and last.left is None):
            return None
        start, control = float(course.doubts if begins and not self.made[REPEATS] else 0), 0
        if begins and left and last.phase == "control":
            start, control = 0.0, left
        elif begins and left and last.phase in ("pre-flight", REPEATS):
            start = left
        if begins and self.flaky and last.phase == "pre-flight":
            control = MEASURED
        search = 0.0
        if begins:
            search = self._answers.of(course.first)
        elif is_search(last.phase) or last.phase == "control":  # that says nothing of what is still to be tried
            search = self._searching
        first = [self._batch(start, course.elements, wanted=True), self._batch(control, 0, wanted=False)]
        return [*first, *self._rest(last, search)]

    @property
    def _searching(self) -> float:
        """How many checks on one worker the search has left."""
        questions = self._search.left
        if not self.flaky or not questions:
            return questions
        return self._answers.undecided() + self._answers.of(questions - 1)

    def _rest(self, last: EndedCheck, search: float) -> list[_Part]:
        """Return the rest of a search, and what follows it."""
        course, made, size, whole = self.course, self.made, self._search.size, self.course.elements
        left, checked, asked = last.left or 0, made[RE_CHECK] > 0, self.searched + search
        again = left if last.phase == REPEATS and self.searched else self._again(search, size)
        simpler = 0.0 if checked else max(course.simpler - made[SHRINK], 0.0)
        held = 0.0 if checked else max(course.held_out - made[HELD_OUT], 0.0)
        alone = 0.0 if checked or made[HELD_OUT] else min(course.alone, asked)
        alone = left if last.phase == ALONE else alone
        handed, caused, good = self._handing_over(last, asked, made[REPEATS] + again, size)
        beside = course.workers > 1 and not self.flaky
        experiments = [sum(caused)] if beside else caused
        parallel = course.workers
        kept = self._search.kept if self.searched else whole
        ahead = math.log2(parallel + 1)  # so many answers that a search waits for come at once
        rounds = search / ahead * (WAITING if parallel > 1 else 1)
        return [
            *(
                _Part(share * search * parallel / ahead, kept, wanted, share * rounds)
                for wanted, share in self._answers.shares(fails=course.wanted == "fail")
            ),
            self._batch(again, math.ceil(size), wanted=False, begun=last.phase == REPEATS),
            self._batch(simpler, math.ceil(size), wanted=True),
            self._batch(held, math.ceil(size), wanted=True),
            self._batch(alone, whole, wanted=True),
            self._batch(handed + good * beside, math.ceil(size), wanted=True, begun=last.phase == RE_CHECK),
            *(
                self._batch(one, whole, wanted=at == len(experiments) - 1, begun=last.phase == CAUSE)
                for at, one in enumerate(experiments)
            ),
            self._batch(good * (not beside), whole // 2, wanted=False),
        ]

    def _handing_over(
        self, last: EndedCheck, asked: float, repeats: float, size: float
    ) -> tuple[float, list[float], float]:
        """Return the checks of what is handed over, the experiments on the whole, and the checks of what passes."""
        course, made, answers = self.course, self.made, self._answers
        fails, checked = course.wanted == "fail", made[RE_CHECK] > 0
        if self.flaky:
            handed = max(answers.pace(failing=fails) - self._handed, 1.0) if course.handed else 0.0
            caused = [answers.pace(failing=not fails), answers.pace(failing=fails)][: int(course.cause)]
            if last.phase == CAUSE:
                caused = [answers.undecided(), *caused[answers.candidates :]]
        else:
            # few verdicts show that each element is needed, or its removals would not be repeated so often
            weak = repeats > 2 * size
            handed = course.handing_over(asked, repeats, weak=weak)
            caused = [1.0] * max(int(course.cause) - made[CAUSE], 0)
        good = course.good * answers.pace(failing=not fails)
        if last.phase != RE_CHECK:
            return handed * (not checked), caused, good * (course.workers == 1 or not checked)
        passing = made[CAUSE] > 0 or not course.cause
        due = answers.undecided(failing=fails is not passing) if self.flaky else last.left or 0
        if made[CAUSE]:
            return 0.0, [], due
        return due, caused, good * (course.workers == 1)

    def _batch(self, checks: float, kept: int, *, wanted: bool | None, begun: bool = False) -> _Part:
        """Return checks that do not wait for each other, some of which have ``begun``; those of a flaky check do."""
        workers = self.course.workers
        if workers == 1 or self.flaky:
            return _Part(checks, kept, wanted, checks)
        more = max(checks - (workers - 1) * begun, 0)
        rounds = math.ceil(more / workers) * (UNEVEN if more > 1 else 1) + BEGUN * begun
        return _Part(checks, kept, wanted, rounds)

    def _again(self, search: float, size: float) -> float:
        """Return how many repeats of removals, and of sets around the answer, are to come."""
        if not self.course.second or self.flaky or size <= 1 or (self.made[REPEATS] and not search):
            return 0.0
        if not self.course.proves:
            return AROUND * min(size - 1, 1)
        each = (REMOVALS if size >= FEW else 2) if self._search.made[TESTING] else MOST_REMOVALS
        return each * min(size, REFUSED) * min(size - 1, 1)
