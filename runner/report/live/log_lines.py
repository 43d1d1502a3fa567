"""A log line for each check: what one sees in a file, in a pipe and in a sweep, with what is still to come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from runner.report.live.checked import Checked
from runner.report.live.course import Course
from runner.report.live.ended_check import EndedCheck
from runner.report.live.estimate import Estimate
from runner.report.live.ranges import checks_left, time_left
from runner.text import counted, one_line
from strategies.outcome import Outcome

_LOG = logging.getLogger(__name__)
LONGEST_REASON = 200


class LogObserver:
    """Writes a line for each check. One thread at a time speaks to it.

    ``title``: of the whole, said first. ``noun``: what the elements are called. ``clock``: gives seconds.
    """

    def __init__(
        self, title: str, noun: str, course: Course | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.noun, self.clock = noun, clock
        self.estimate = Estimate(course or Course(), clock())
        _LOG.info("%s", title)

    def checked(self, told: Checked, kept: int) -> None:
        """Log one line: ``[12] keep 40..97 (58 nodes): FAIL in 0.31 s, 9 to 18 checks left (3 to 6 s)``.

        ``kept``: how many elements its candidate has.
        """
        verdict, known = told.verdict, not told.iteration
        outcome = verdict.outcome
        told_of = told.left, told.following, known, told.repeats
        self.estimate.add(EndedCheck(told.phase, kept, self.clock(), verdict.seconds, outcome.value, *told_of))
        checks, seconds = checks_left(self.estimate.checks), time_left(self.estimate.seconds)
        left = f", {checks} left" + (f" ({seconds})" if seconds else "") if checks else ""
        why = one_line(verdict.reason)[:LONGEST_REASON] if outcome is Outcome.UNRESOLVED else ""
        said = f"{outcome.value.upper()} in {verdict.seconds:.2f} s{left}{f' ({why})' if why else ''}"
        _LOG.info("[%s] %s (%s): %s", told.iteration or "-", one_line(told.label), self.counted(kept), said)

    def counted(self, kept: int) -> str:
        """Return so many elements in words."""
        return counted(kept, self.noun.removesuffix("s")) if self.noun.endswith("s") else f"{kept} {self.noun}"

    def finished(self) -> None:
        """Take down what shows besides lines; can be called again."""
