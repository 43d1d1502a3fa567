"""How many checks are left, and about how long they take: what the search says, times the median cost of a check."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from runner.report.live.checked import Checked
from runner.report.live.phases import REPEATS, is_search, is_start
from runner.text import counted
from strategies.outcome import Outcome

REMEMBERED = 100
"""Checks whose cost is remembered."""
_UNITS = ((5400.0, 3600.0, "h"), (90.0, 60.0, "min"), (0.0, 1.0, "s"))


@dataclass(frozen=True)
class Outline:
    """What is known of a run before it begins.

    ``elements``: how many are searched. ``wanted``: the outcome that an answer has. ``workers``: checks at once.
    ``repeats``: one check is made again and again. ``step``: it is a step of a run, and nothing is known of the others.
    ``follow``: how many checks follow a search of so many.
    """

    elements: int = 0
    wanted: Outcome = Outcome.FAIL
    workers: int = 1
    repeats: bool = False
    step: bool = False
    follow: Callable[[int], int] = lambda _: 0


@dataclass(eq=False)
class Progress:
    """Follows the checks of a run. ``left``: how many are to come, None: nobody knows; ``asked``: by the search."""

    outline: Outline
    left: int | None = None
    asked: int = 0
    _followed: int = 0
    _search: int | None = None
    _costs: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def add(self, told: Checked) -> None:
        """Take in a check that has ended."""
        repeated = 0
        if told.verdict.seconds:  # a model that could not be made took none
            self._costs.append(told.verdict.seconds)
        if is_search(told.phase):
            self.asked, self._search = self.asked + 1, told.left
        elif told.phase == REPEATS:
            repeated = told.left or 0
        elif not is_start(told.phase):
            self._followed += 1
        self.left = None
        if self._search is not None:
            follow = max(self.outline.follow(self.asked + self._search) - self._followed, 0)
            self.left = self._search + repeated + follow

    def seconds(self, since: float = 0.0) -> float | None:
        """Return about how long they take, ``since`` seconds after the last one has ended; None: nobody knows."""
        if self.left is None or not self._costs:
            return None
        each = median(self._costs)
        return max(each * self.left - min(since, each), 0.0) / self.outline.workers


def checks_left(left: int | None, seconds: float | None) -> str:
    """Return both in words, ``9 checks left (about 3 s)``; "" where none is known to be left."""
    if not left:
        return ""
    return f"{counted(left, 'check')} left" + (f" (about {time_left(seconds)})" if seconds is not None else "")


def time_left(seconds: float) -> str:
    """Return a time in words: ``3 s``, ``1.7 min``, ``12 h``."""
    _, unit, name = next(one for one in _UNITS if seconds >= one[0])
    value = seconds / unit
    return f"{value:.1f} {name}" if unit > 1 and value < 10 else f"{max(round(value), 1)} {name}"


def clock_time(seconds: float) -> str:
    """Return a time that has passed: ``7 s``, ``1:05``, ``1:00:05``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
