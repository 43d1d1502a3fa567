"""Levels and looks of the log, as `verbosity` and `log` say."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich
from omegaconf import DictConfig, OmegaConf

from runner.cli.terminal import printable
from runner.exit_codes import UsageError
from runner.report import progress
from runner.schema.root import LogSettings
from runner.text import hide_environment

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "silent": logging.CRITICAL + 10,
}
_FORMATS = ("timestamp", "line_info", "no_colors")


@dataclass(frozen=True)
class Levels:
    """The least level that is shown, by module; of "": elsewhere."""

    by_module: Mapping[str, int]

    def of(self, logger: str) -> int:
        """Return the level for ``logger``: of the longest module that it lies in."""
        return self.by_module[
            max((one for one in self.by_module if not one or f"{logger}.".startswith(f"{one}.")), key=len)
        ]

    @property
    def least(self) -> int:
        """The least of all."""
        return min(self.by_module.values())

    @property
    def silent(self) -> bool:
        """Whether nothing at all is wanted."""
        return self.least > logging.CRITICAL


def levels(verbosity: Any) -> Levels:
    """Read `verbosity`: a level, or a list of levels and ``module=level`` (also ``module:level`` or a mapping)."""
    found = {"": logging.INFO}
    for item in verbosity if isinstance(verbosity, list) else [verbosity]:
        pairs = item.items() if isinstance(item, Mapping) else [str(item).replace("=", ":").rpartition(":")[::2]]
        found |= {str(module): _level(level) for module, level in pairs}
    return Levels(found)


def levels_of(config: DictConfig) -> Levels:
    """Read `verbosity` of a whole configuration."""
    value = OmegaConf.select(config, "verbosity")
    return levels(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value)


def _level(name: Any) -> int:
    try:
        return _LEVELS[str(name).lower()]
    except KeyError:
        raise UsageError(
            f"verbosity={name}: no such level. Levels: {', '.join(_LEVELS)}; for a module: runner.model:debug."
        ) from None


class _Printable(logging.Formatter):
    """Escapes control characters: a log is read in a terminal, a file too.

    Further lines of a record are indented: no text in a message passes for a record of its own.
    """

    def __init__(self, text: str | None = None, inner: logging.Formatter | None = None) -> None:
        super().__init__(text)
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        text = self._inner.format(record) if self._inner else super().format(record)
        return printable(hide_environment(text)).replace("\n", "\n  ")


class _Shown(logging.Filter):
    def __init__(self, chosen: Levels, floor: int | None = None) -> None:
        super().__init__()
        self._chosen, self._floor = chosen, floor

    def filter(self, record: logging.LogRecord) -> bool:
        level = self._chosen.of(record.name)
        return record.levelno >= (level if self._floor is None else min(level, self._floor))


def configure(log: LogSettings, chosen: Levels, job: int | None = None) -> None:
    """Set up the handlers that Hydra made: the terminal's by ``chosen``, files at least at info.

    ``job``: the number of a sweep's job, shown before each line. Raises UsageError for an unknown format or a file that
    cannot be written.
    """
    for name in log.format:
        if name not in _FORMATS:
            raise UsageError(f"log.format=[{name}]: no such choice. Choices: {', '.join(_FORMATS)}.")
    logging.raiseExceptions = False  # a line that a full disk loses is no reason for a traceback among the others
    root = logging.getLogger()
    root.setLevel(min(chosen.least, logging.INFO))
    for handler in list(root.handlers):
        if isinstance(handler, logging.FileHandler):
            handler.addFilter(_Shown(chosen, logging.INFO))
            handler.setFormatter(_Printable(inner=handler.formatter))
        else:
            root.removeHandler(handler)
    if log.file is not None:
        root.addHandler(_second_file(log.file, chosen))
    console = _console(log, job)
    console.addFilter(_Shown(chosen))
    if not rich.get_console().is_terminal and chosen.of(progress.__name__) > logging.DEBUG:
        console.addFilter(progress.OneLineAStep())
    root.addHandler(console)


def _console(log: LogSettings, job: int | None) -> logging.Handler:
    if "no_colors" in log.format:
        rich.reconfigure(no_color=True, highlight=False)
    if os.environ.get("CI", "").lower() in ("true", "1"):  # its pages show no panel, also where it has a terminal
        rich.reconfigure(force_terminal=False, no_color=rich.get_console().no_color)
    number = f"#{job} " if job is not None else ""
    if rich.get_console().is_terminal:
        from rich.logging import RichHandler  # noqa: PLC0415 - only a terminal needs it

        handler: logging.Handler = RichHandler(
            show_time="timestamp" in log.format, show_path="line_info" in log.format, markup=False
        )
        handler.setFormatter(_Printable(number + "%(message)s"))
        return handler
    parts = [
        "%(asctime)s " if "timestamp" in log.format else "",
        "%(levelname)s ",
        "%(name)s:%(lineno)d: " if "line_info" in log.format else "",
        number,
        "%(message)s",
    ]
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Printable("".join(parts)))
    return handler


def _second_file(name: str, chosen: Levels) -> logging.Handler:
    path = Path(name).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_fifo():  # it would be waited for; where somebody reads it, this one is opened at once
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(
            f"log.file={name}: cannot be written ({error.strerror}). Give a path in a folder of yours."
        ) from error
    handler.setFormatter(_Printable("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_Shown(chosen, logging.INFO))
    return handler
