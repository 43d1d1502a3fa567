"""How much memory and disk recorded values may take: `cut.memory`, `cut.disk`, `cut.record`."""

from __future__ import annotations

import re
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

from runner import machine
from runner.errors import UsageError
from runner.schema.cut import CutSettings, RecordMode

_UNITS = {"": 1, **{f"{unit}{end}": 1 << 10 * power for power, unit in enumerate("KMGT", 1) for end in ("", "B", "IB")}}


MEMORY = 1 << 30
"""Bytes that are enough where the user set no limit: more makes recording no faster."""
HELD = 512 << 20
"""Bytes of values that a worker holds at most: beside them checks run, which need memory as well."""


@dataclass(frozen=True)
class RecordingLimits:
    """Bytes, as `Recorder` takes them. ``disk`` None: everything is kept."""

    memory: int
    disk: int | None = None
    lazy: bool = False
    hold: int = 0


def recording_limits(cut: CutSettings, folder: Path, *, hold: bool = False) -> RecordingLimits:
    """Return the limits of a run in ``folder``. Raises UsageError for what is no number of bytes.

    ``hold``: whether few of the values will be asked for, so that a worker may hold them.
    """
    memory, disk = bytes_of("cut.memory", cut.memory), bytes_of("cut.disk", cut.disk)
    # what is free does not show what this process may have
    own = [limit for limit in map(_soft_limit, (resource.RLIMIT_AS, resource.RLIMIT_DATA)) if limit >= 0]
    quarter = min([machine.free_mb() * 2**18, *own])
    if memory is None:
        memory = int(min(quarter, MEMORY))
    if cut.record in (RecordMode.all, RecordMode.ahead):
        return RecordingLimits(memory)
    free = shutil.disk_usage(folder).free // 2 if disk is None else disk
    lazy = cut.record is RecordMode.lazy
    # of what is free a sixteenth: other jobs of a sweep may each hold as much, to their end
    held = int(min(memory / 2, quarter / 4, HELD)) if hold and not lazy else 0
    return RecordingLimits(memory, free, lazy, held)


def _soft_limit(kind: int) -> float:
    """Return a quarter of what the system lets this process have; below zero: all it wants."""
    return resource.getrlimit(kind)[0] / 4


def bytes_of(key: str, size: str | None) -> int | None:
    """Return bytes: of a number, or of one with a unit (64M, 1GiB). Raises UsageError."""
    if size is None:
        return None
    match = re.fullmatch(r"(\d{1,18}) *([A-Za-z]*)", size.strip(), re.ASCII)
    if match is None or match.group(2).upper() not in _UNITS:
        raise UsageError(f"{key}={size}: give bytes, or a number with a unit: {key}=512M, {key}=2GiB")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]
