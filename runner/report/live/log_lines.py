"""A log line for each check: what one sees in a file, in a pipe and in a sweep, with what is still to come."""

from __future__ import annotations

import logging

from runner.report.live.checked import Checked
from runner.report.live.progress import Outline, Progress, checks_left
from runner.text import counted, one_line
from strategies.outcome import Outcome

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
        _LOG.info("[%s] %s (%s): %s", told.iteration or "-", one_line(told.label), self.counted(kept), said)

    def counted(self, kept: int) -> str:
        """Return so many elements in words."""
        return counted(kept, self.noun.removesuffix("s")) if self.noun.endswith("s") else f"{kept} {self.noun}"

    def finished(self) -> None:
        """Take down what shows besides lines; can be called again."""
