"""Frozen dataclasses as JSON, and back: one writer and one reader for all that result.json holds.

The reader takes a file that may come from anywhere, damaged, edited or of an earlier version: what is not of the type
that its field has counts as not there, and the field keeps its default. So a reader of the dataclass asks no more.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_ABSENT: Any = object()
OPTIONAL: Mapping[str, Any] = {"optional": True}
"""Metadata of a field that JSON has only where its value is not its default."""
_hints = cache(get_type_hints)
_MOST = 1e15
"""A number that is larger counts as damaged: no run has one."""


def to_json(value: Any) -> Any:
    """Return a value as plain JSON types: dataclasses as objects, sets sorted; a number that is not finite as null."""
    if is_dataclass(value) and not isinstance(value, type):
        held = ((one, getattr(value, one.name)) for one in fields(value))
        told = ((one, item) for one, item in held if not one.metadata.get("optional") or item != one.default)
        return {one.name: to_json(item) for one, item in told}
    if isinstance(value, Mapping):
        return {str(to_json(name)): to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, Enum):
        return to_json(value.value)
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()  # a NumPy scalar that a checker measured
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def from_json(kind: type[T], data: object) -> T:
    """Return a dataclass of this kind, all of whose fields have defaults, from what JSON holds."""
    found = _read(kind, data)
    made: T = kind() if found is _ABSENT else found
    return made


def _read(kind: Any, data: Any) -> Any:
    """Return the value of a type; `_ABSENT` where the data are not of it."""
    origin, inner, whole = get_origin(kind), get_args(kind), is_dataclass(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        found = (_read(one, data) for one in inner if one is not type(None))
        return next((one for one in found if one is not _ABSENT), _ABSENT)
    if origin is tuple:
        items = (_read(inner[0], one) for one in data) if isinstance(data, list | tuple) else None
        return _ABSENT if items is None else tuple(one for one in items if one is not _ABSENT)
    if whole or (origin is not None and issubclass(origin, Mapping)):
        if not isinstance(data, Mapping):
            return _ABSENT
        kinds = _hints(kind) if whole else {name: inner[1] for name in data if isinstance(name, str)}
        entries = {name: _read(one, data[name]) for name, one in kinds.items() if name in data}
        held = {name: one for name, one in entries.items() if one is not _ABSENT}
        return kind(**held) if whole else held
    if kind is bool or kind is str:
        return data if isinstance(data, kind) else _ABSENT
    number = isinstance(data, int | float) and not isinstance(data, bool) and abs(data) < _MOST
    return kind(data) if number and (kind is float or isinstance(data, int)) else _ABSENT
