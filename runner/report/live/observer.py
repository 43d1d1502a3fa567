"""Who watches a run: a panel where the log goes to a terminal that shows it, else log lines only."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import rich

from runner.report.live.log_lines import LogObserver
from runner.report.live.progress import Outline

if TYPE_CHECKING:
    from rich.console import Console

_LOG = logging.getLogger(__name__)


def observer(title: str, noun: str, outline: Outline, console: Console | None = None) -> LogObserver:
    """Return who watches a run. A quiet log (``verbosity=warning``) gets no panel either."""
    console = console or rich.get_console()
    if not shows_panel(console):
        return LogObserver(title, noun, outline)
    from runner.report.live.panel import Panel  # noqa: PLC0415 - only a terminal needs it

    return Panel(title, noun, outline, console, () if _shows(logging.DEBUG) else tuple(_handlers()))


def shows_panel(console: Console) -> bool:
    """Whether a panel is shown there: it is a terminal that can draw one, and the log is not quiet."""
    return console.is_terminal and not console.is_dumb_terminal and _shows(logging.INFO)


def _handlers() -> list[logging.Handler]:
    """Return the handlers whose lines reach the terminal: files get them all."""
    return [handler for handler in logging.getLogger().handlers if not isinstance(handler, logging.FileHandler)]


def _shows(level: int) -> bool:
    """Whether lines of this level reach the terminal, as ``verbosity`` says."""
    record = _LOG.makeRecord(_LOG.name, level, __file__, 0, "", (), None)
    return _LOG.isEnabledFor(level) and all(handler.filter(record) for handler in _handlers())
