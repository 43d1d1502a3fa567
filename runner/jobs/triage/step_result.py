"""A step that ended, and its result, read from a file that may come from anywhere.

Whatever in it is not of its type counts as not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ended:
    """A step that ended, or was left out. ``folder``: of its run, relative; "": it was not asked."""

    name: str
    strategy: str = ""
    folder: str = ""
    why: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """How it ended."""
        return str(self.result.get("status", "not asked"))

    @property
    def message(self) -> str:
        """What it said."""
        return str(self.result.get("message") or self.status)

    @property
    def checks(self) -> int:
        """How many checks it paid for."""
        paid = section(self.result, "checks")
        return sum(int(number(paid, name)) for name in ("search", "trust", "refine", "cause"))

    @property
    def searched(self) -> int:
        """How many of these a budget counts."""
        paid = section(self.result, "checks")
        return sum(int(number(paid, name)) for name in ("search", "refine", "cause", "repeats"))

    @property
    def seconds(self) -> float:
        """Its wall time."""
        return number(section(self.result, "seconds"), "total")


def section(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a mapping in a result; an empty one where there is none."""
    found = result.get(name)
    return found if isinstance(found, Mapping) else {}


def number(of: Mapping[str, Any], name: str) -> float:
    """Return a number in a result; 0 where there is none."""
    found = of.get(name)
    return float(found) if isinstance(found, int | float) and math.isfinite(found) else 0.0


def mappings(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return a list of mappings in a result; an empty one where there is none."""
    found = of.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []


def names(of: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of names in a result; an empty one where there is none."""
    found = of.get(name)
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
