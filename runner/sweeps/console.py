"""What a launcher tells the user while jobs run."""

from __future__ import annotations

import logging
import threading

from omegaconf import DictConfig, OmegaConf

from runner.cli import logs
from runner.cli.terminal import say

#: so far into a line a job's number is looked for: before it come a time and a level
_PREFIX = 60


class Voice:
    """Whole lines, one at a time, of the sweep and of its jobs. Thread-safe. The sweep's follow `verbosity`."""

    def __init__(self, config: DictConfig) -> None:
        value = OmegaConf.select(config, "verbosity")
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        self._level = logs.levels(value).of("runner.launcher")
        self._alone = threading.Lock()

    def tell(self, text: str, level: int = logging.INFO) -> None:
        """Say something of the sweep, unless the user wants to hear less."""
        if level >= self._level:
            with self._alone:
                say(text, error=level >= logging.WARNING)

    def repeat(self, number: int, line: str, error: bool) -> None:
        """Pass on a line of job ``number``, which is marked as this job's unless it is already."""
        mark = f"#{number} "
        with self._alone:
            say(line if mark in line[:_PREFIX] or not line else mark + line, error=error)
