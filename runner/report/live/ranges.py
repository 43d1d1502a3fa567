"""Ranges in words: ``9 to 18 checks``, ``20 to 40 s``. Rounded inwards, so that none looks wider than it is."""

from __future__ import annotations

import math
from collections.abc import Callable

from runner.report.live.estimate import Range
from runner.text import counted

_UNITS = ((5400.0, 3600.0, "h"), (90.0, 60.0, "min"), (0.0, 1.0, "s"))
NO_TIME = 2.0
"""Seconds of which nobody needs a range."""


def checks_left(given: Range | None) -> str:
    """Return how many checks; "" where nobody knows."""
    if given is None:
        return ""
    least, most = math.ceil(given.least), math.floor(given.most)
    if least >= most:
        return counted(round((given.least + given.most) / 2), "check")
    return f"{least} to {most} checks"


def time_left(given: Range | None) -> str:
    """Return how long; "" where nobody knows."""
    if given is None:
        return ""
    if given.most < NO_TIME:
        return f"under {NO_TIME:g} s"
    _, unit, name = next(one for one in _UNITS if given.most >= one[0])
    return f"{_rounded(given.least / unit, math.ceil)} to {_rounded(given.most / unit, math.floor)} {name}"


def _rounded(value: float, towards: Callable[[float], int]) -> str:
    """Return two digits that count."""
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{towards(value / step) * step:.6g}"


def clock_time(seconds: float) -> str:
    """Return a time that has passed: ``7 s``, ``1:05``, ``1:00:05``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
