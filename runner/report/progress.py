"""Progress: one log line a check, and on a terminal a live line below the log."""

from __future__ import annotations

import logging

import rich
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from runner.text import one_line

_LOG = logging.getLogger(__name__)
_LONGEST_REASON = 200


class LogObserver:
    """A log line for each check; what one sees in a file, in a pipe and in a sweep. One thread at a time speaks to it.

    ``noun``: what the elements are called.
    """

    def __init__(self, noun: str = "nodes") -> None:
        self._noun = noun

    def started(self, phase: str, remaining: int | None = None) -> None:
        """Log that a phase begins; about so many checks are to come, as far as anybody can tell."""
        _LOG.info("%s%s", phase, f": {_about(remaining)}" if remaining is not None else "")

    def checked(
        self,
        iteration: int,
        phase: str,
        label: str,
        outcome: str,
        seconds: float,
        kept: int | None = None,
        remaining: int | None = None,
        reason: str = "",
    ) -> None:
        """Log one line: ``[12] window 40..97 (58 nodes): FAIL in 0.31 s, about 7 checks left``.

        ``kept``: how many elements its candidate has. ``reason``: why its outcome is not known.
        """
        _LOG.info("%s", line(iteration, label, outcome, seconds, kept, remaining, self._noun, reason))
        self._moved(_flat(f"{label}: {outcome.upper()}"), remaining)

    def finished(self) -> None:
        """Take down what shows besides lines; can be called again."""

    def _moved(self, note: str, remaining: int | None) -> None:
        """Show besides how far it is."""


class LiveObserver(LogObserver):
    """The log lines, and below them a bar that moves. The console is the one that the log's handler prints on."""

    def __init__(self, console: Console | None = None, noun: str = "nodes") -> None:
        super().__init__(noun)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console or rich.get_console(),
            transient=True,
        )
        self._task: TaskID | None = None
        self._done = 0

    def started(self, phase: str, remaining: int | None = None) -> None:
        """Begin a new bar."""
        super().started(phase, remaining)
        self._progress.start()
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._done = 0
        self._task = self._progress.add_task(phase, total=remaining, note="")

    def _moved(self, note: str, remaining: int | None) -> None:
        """Move the bar; its length follows the estimate."""
        if self._task is not None:
            self._done += 1
            total = None if remaining is None else self._done + max(0, remaining)
            self._progress.update(self._task, completed=self._done, total=total, note=note)

    def finished(self) -> None:
        """Take the bar down."""
        self._progress.stop()


def observer(console: Console | None = None, noun: str = "nodes") -> LogObserver:
    """Return a live view where the log goes to a terminal that shows it, else log lines only.

    ``noun``: what the elements are called. A quiet log (``verbosity=warning``) gets no live view either.
    """
    console = console or rich.get_console()
    if console.is_terminal and not console.is_dumb_terminal and _is_shown():
        return LiveObserver(console, noun)
    return LogObserver(noun)


def _is_shown() -> bool:
    """Whether this log's lines reach the terminal: ``verbosity`` filters there, while files get them all."""
    record = _LOG.makeRecord(_LOG.name, logging.INFO, __file__, 0, "", (), None)
    shown = [handler for handler in logging.getLogger().handlers if not isinstance(handler, logging.FileHandler)]
    return _LOG.isEnabledFor(logging.INFO) and all(handler.filter(record) for handler in shown)


def line(
    iteration: int,
    label: str,
    outcome: str,
    seconds: float,
    kept: int | None,
    remaining: int | None,
    noun: str = "nodes",
    reason: str = "",
) -> str:
    """Return the log line of one check."""
    size = "" if kept is None else f" ({kept} {noun if kept != 1 else noun.removesuffix('s')})"
    left = "" if remaining is None else f", {_about(remaining)} left"
    why = f" ({_flat(one_line(reason)[:_LONGEST_REASON])})" if reason else ""
    return f"[{iteration or '-'}] {_flat(label)}{size}: {outcome.upper()} in {seconds:.2f} s{left}{why}"


def _about(remaining: int) -> str:
    return f"about {remaining} check{'' if remaining == 1 else 's'}"


def _flat(text: str) -> str:
    """A label on one line, without what would move a terminal's cursor: it may hold a node's name."""
    return Text(text.encode("unicode_escape").decode() if not text.isprintable() else text).plain
