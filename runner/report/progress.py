"""Progress: one log line a check, and on a terminal a live line below the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import rich

from runner.text import counted, one_line
from runner.verdict import Verdict
from strategies.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console

_LOG = logging.getLogger(__name__)
_LONGEST_REASON = 200


class LogObserver:
    """A log line for each check; what one sees in a file, in a pipe and in a sweep. One thread at a time speaks to it.

    ``title``: of the whole, said first. ``noun``: what the elements are called.
    """

    def __init__(self, title: str, noun: str) -> None:
        self._noun = noun
        _LOG.info("%s", title)

    def checked(self, iteration: int, label: str, verdict: Verdict, kept: int, remaining: int | None) -> None:
        """Log one line: ``[12] window 40..97 (58 nodes): FAIL in 0.31 s, about 7 checks left``.

        ``kept``: how many elements its candidate has; ``remaining``: how many checks are to come, None: nobody knows.
        """
        left = "" if remaining is None else f", about {counted(remaining, 'check')} left"
        why = one_line(verdict.reason)[:_LONGEST_REASON] if verdict.outcome is Outcome.UNRESOLVED else ""
        outcome = f"{verdict.outcome.value.upper()} in {verdict.seconds:.2f} s{left}{f' ({why})' if why else ''}"
        _LOG.info("[%s] %s (%s): %s", iteration or "-", one_line(label), self._counted(kept), outcome)

    def _counted(self, kept: int) -> str:
        return counted(kept, self._noun.removesuffix("s")) if self._noun.endswith("s") else f"{kept} {self._noun}"

    def finished(self) -> None:
        """Take down what shows besides lines; can be called again."""


class LiveObserver(LogObserver):
    """The log lines, and below them a bar that moves. The console is the one that the log's handler prints on."""

    def __init__(self, title: str, noun: str, console: Console) -> None:
        from rich import progress  # noqa: PLC0415 - only a terminal needs it

        super().__init__(title, noun)
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            progress.TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(title, total=None, note="")
        self._done = 0
        self._progress.start()

    def checked(self, iteration: int, label: str, verdict: Verdict, kept: int, remaining: int | None) -> None:
        """Log the line, and move the bar; its length follows the estimate."""
        super().checked(iteration, label, verdict, kept, remaining)
        self._done += 1
        total = None if remaining is None else self._done + max(0, remaining)
        note = f"{one_line(label)}: {verdict.outcome.value.upper()}"
        self._progress.update(self._task, completed=self._done, total=total, note=note)

    def finished(self) -> None:
        """Take the bar down."""
        self._progress.stop()


def observer(title: str, noun: str, console: Console | None = None) -> LogObserver:
    """Return a live view where the log goes to a terminal that shows it, else log lines only.

    A quiet log (``verbosity=warning``) gets no live view either.
    """
    console = console or rich.get_console()
    if console.is_terminal and not console.is_dumb_terminal and _is_shown():
        return LiveObserver(title, noun, console)
    return LogObserver(title, noun)


def _is_shown() -> bool:
    """Whether this log's lines reach the terminal: ``verbosity`` filters there, while files get them all."""
    record = _LOG.makeRecord(_LOG.name, logging.INFO, __file__, 0, "", (), None)
    shown = [handler for handler in logging.getLogger().handlers if not isinstance(handler, logging.FileHandler)]
    return _LOG.isEnabledFor(logging.INFO) and all(handler.filter(record) for handler in shown)
