"""Who watches a run: a panel or log lines, and what is shown before its first check.

Who watches a run: a panel where the log goes to a terminal that shows it, else log lines only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rich
from rich.text import Text

from runner.report.progress import LogObserver, Outline, clock_time

if TYPE_CHECKING:
    from rich.console import Console

_LOG = logging.getLogger(__name__)


def observer(title: str, noun: str, outline: Outline, console: Console | None = None) -> LogObserver:
    """Return who watches a run. A quiet log (``verbosity=warning``) gets no panel either."""
    console = console or rich.get_console()
    if not shows_panel(console):
        return LogObserver(title, noun, outline)
    from runner.report.panel import Panel  # noqa: PLC0415 - only a terminal needs it

    return Panel(title, noun, outline, console, () if _shows(logging.DEBUG) else tuple(_handlers()))


def shows_panel(console: Console) -> bool:
    """Whether a panel is shown there: it is a terminal that can draw one, and the log is not quiet."""
    return console.is_terminal and not console.is_dumb_terminal and _shows(logging.INFO)


def in_a_pipe() -> bool:
    """Whether lines go to no terminal, and ``verbosity=debug`` does not ask for all of them."""
    return not rich.get_console().is_terminal and not _shows(logging.DEBUG)


def _handlers() -> list[logging.Handler]:
    """Return the handlers whose lines reach the terminal: files get them all."""
    return [handler for handler in logging.getLogger().handlers if not isinstance(handler, logging.FileHandler)]


def _shows(level: int) -> bool:
    """Whether lines of this level reach the terminal, as ``verbosity`` says."""
    record = _LOG.makeRecord(_LOG.name, level, __file__, 0, "", (), None)
    return _LOG.isEnabledFor(level) and all(handler.filter(record) for handler in _handlers())


# What a terminal shows before the first check: that a model is read and values are recorded, and for how long.

REFRESHES = 3
"""How often a second it is drawn."""


@dataclass(frozen=True)
class _Since:
    """A line with the time that has passed. ``began``: when, by ``clock``, in seconds."""

    title: str
    began: float
    clock: Callable[[], float]

    def __rich__(self) -> Text:
        passed = clock_time(self.clock() - self.began)
        said = f"{self.title}  {passed}  getting ready: reading the model, recording values"
        return Text(said, "bold", overflow="ellipsis", no_wrap=True)


def getting_ready(title: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> ExitStack:
    """Return what shows a line until it is closed, where a panel would be shown; closing it again does nothing."""
    console, shown = console or rich.get_console(), ExitStack()
    if shows_panel(console):
        from rich.live import Live  # noqa: PLC0415 - only a terminal needs it

        line = _Since(title, clock(), clock)
        shown.enter_context(Live(line, console=console, transient=True, refresh_per_second=REFRESHES))
    return shown
