"""What a launcher tells the user while jobs run."""

from __future__ import annotations

import logging

from omegaconf import DictConfig

from runner.cli import logs
from runner.cli.terminal import say

#: so far into a line a job's number is looked for: before it come a time and a level
_PREFIX = 60


class Console:
    """Whole lines, one at a time, of the sweep and of its jobs. The sweep's follow `verbosity`."""

    def __init__(self, config: DictConfig) -> None:
        self._level = logs.levels_of(config).of("runner.sweeps")

    def tell(self, text: str, level: int = logging.INFO) -> None:
        """Say something of the sweep, unless the user wants to hear less."""
        if level >= self._level:
            say(text, error=level >= logging.WARNING)

    def repeat(self, number: int, line: str, error: bool) -> None:
        """Pass on a line of job ``number``, which is marked as this job's unless it is already."""
        mark = f"#{number} "
        say(line if mark in line[:_PREFIX] or not line else mark + line, error=error)
