"""What a terminal shows before the first check: that a model is read and values are recorded, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rich
from rich.text import Text

from runner.report.live.observer import shows_panel
from runner.report.live.progress import clock_time

if TYPE_CHECKING:
    from rich.console import Console

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
