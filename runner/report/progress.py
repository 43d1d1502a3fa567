"""Checks that have ended, what is left of a run and how long it takes, and who is told.

How many checks are left, and about how long they take: what the search says, times the median cost of a check.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from statistics import median

from runner.text import counted, duration, one_line
from runner.verdict import Phase, Verdict
from strategies.search import Outcome, Trial

# A check that has ended, as whoever watches a run is told of it.


@dataclass(frozen=True)
class Checked:
    """A check.

    ``iteration``: 0 for a verdict that was known already. ``nodes``: what its candidate has. ``left``: the checks that
    the search, or what is repeated now, has left; None: nobody knows. ``names``: of the candidate's elements. ``of``:
    what is searched; another one for each stage of a run.
    """

    iteration: int
    phase: str
    label: str
    verdict: Verdict
    nodes: Trial
    left: int | None = None
    names: Callable[[], tuple[str, ...]] = tuple
    of: object = None


REMEMBERED = 100
"""Checks whose cost is remembered."""


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
        repeated, phase = 0, Phase.of(told.phase)
        if told.verdict.seconds:  # a model that could not be made took none
            self._costs.append(told.verdict.seconds)
        if phase.searching:
            self.asked, self._search = self.asked + 1, told.left
        elif phase is Phase.REPEAT:
            repeated = told.left or 0
        elif not phase.begins:
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
    return f"{counted(left, 'check')} left" + (f" (about {duration(seconds)})" if seconds is not None else "")


def clock_time(seconds: float) -> str:
    """Return a time that has passed: ``7 s``, ``1:05``, ``1:00:05``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


# Who is told of each check besides the log: the program that started the run.


@dataclass(frozen=True)
class CheckEvent:
    """One check of a run, as it ended.

    ``strategy``: of the run, or of the step of a triage. ``iteration``: its number in the journal; 0: it was known from
    an earlier run. ``phase`` and ``label``: what it was made for. ``size``: how many nodes (switches, tactics,
    iterations) the candidate has. ``outcome``: pass, fail, different or unresolved; ``reason``: why, where that is
    known. ``seconds``: wall time. ``left``: how many checks of the search are to come, None: nobody knows.
    """

    strategy: str
    iteration: int
    phase: str
    label: str
    size: int
    outcome: str
    reason: str
    seconds: float
    left: int | None

    @classmethod
    def of(cls, strategy: str, told: Checked, size: int) -> CheckEvent:
        """Return what a program is told of a check."""
        verdict = told.verdict
        outcome, seconds = verdict.outcome.value, verdict.seconds
        return cls(
            strategy, told.iteration, str(told.phase), told.label, size, outcome, verdict.reason, seconds, told.left
        )


Listener = Callable[[CheckEvent], None]
"""Is told of each check, in the thread that made it, one at a time."""


# a strategy is called with its settings and its folder alone
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def listener() -> Listener | None:
    """Return the program that is told of the checks of the run that goes on; None: a command line started it."""
    return _LISTENER.get()


@contextmanager
def listening(told: Listener) -> Iterator[None]:
    """Tell ``told`` of the checks that are made inside."""
    before = _LISTENER.set(told)
    try:
        yield
    finally:
        _LISTENER.reset(before)


# A log line for each check: what one sees in a file, in a pipe and in a sweep, with what is still to come.

_LOG = logging.getLogger(__name__)
LONGEST_REASON = 200


class LogObserver:
    """Writes a line for each check. One thread at a time speaks to it.

    ``title``: of the whole, said first. ``noun``: what the elements are called.
    """

    def __init__(self, title: str, noun: str, outline: Outline) -> None:
        self.noun = noun
        self.progress = Progress(outline)
        _LOG.info("%s", title)

    def checked(self, told: Checked, kept: int) -> None:
        """Log one line: ``[12] keep 40..97 (58 nodes): FAIL in 0.31 s, 9 checks left (about 3 s)``.

        ``kept``: how many elements its candidate has.
        """
        verdict, outcome = told.verdict, told.verdict.outcome
        self.progress.add(told)
        to_come = checks_left(self.progress.left, self.progress.seconds())
        left = f", {to_come}" if to_come else ""
        why = one_line(verdict.reason)[:LONGEST_REASON] if outcome is Outcome.UNRESOLVED else ""
        said = f"{outcome.value.upper()} in {verdict.seconds:.2f} s{left}{f' ({why})' if why else ''}"
        label, size = one_line(told.label), self.counted(kept)
        what = label if label.endswith(f" {size}") else f"{label} ({size})"
        _LOG.info("[%s] %s: %s", told.iteration or "-", what, said)

    def counted(self, kept: int) -> str:
        """Return so many elements in words."""
        return counted(kept, self.noun.removesuffix("s")) if self.noun.endswith("s") else f"{kept} {self.noun}"

    def finished(self) -> None:
        """Take down what shows besides lines; can be called again."""


LONGEST_SILENCE = 10.0
"""Seconds after which a pipe shows the line of a check: a person begins to wonder, and builders end such a job."""


class OneLineAStep(logging.Filter):
    """Leaves the lines of single checks out of a pipe; one of them shows that a run is alive after a long silence."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown."""
        now = time.monotonic()
        shown = record.name != __name__ or now - self._last > LONGEST_SILENCE
        self._last = now if shown else self._last
        return shown
