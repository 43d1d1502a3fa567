"""Reading a result.json that may come from anybody: what is not of the expected type counts as not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

_MOST = 1e15


def section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section; an empty one where there is none."""
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}


def sections(data: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the sections of a list."""
    found = data.get(name)
    return tuple(one for one in found if isinstance(one, Mapping)) if isinstance(found, list | tuple) else ()


def number(data: Mapping[str, Any], name: str) -> int | float | None:
    """Return a number; None where there is none, or none that a run could have."""
    found = data.get(name)
    return found if is_number(found) else None


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether this is a number that a run could have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def count(data: Mapping[str, Any], name: str) -> int:
    """Return a number of things; 0 where there is none."""
    found = number(data, name)
    return found if isinstance(found, int) else 0


def text(data: Mapping[str, Any], name: str) -> str:
    """Return a text; an empty one where there is none."""
    found = data.get(name)
    return str(found) if isinstance(found, str) else ""


def texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the texts of a list."""
    found = data.get(name)
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list | tuple) else ()
