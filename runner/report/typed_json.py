"""Frozen dataclasses as JSON, and back: one writer and one reader for all that result.json holds.

The reader takes a file that may come from anywhere, damaged, edited or of an earlier version: what is not of the type
that its field has counts as not there, and the field keeps its default. So a reader of the dataclass asks no more.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_ABSENT: Any = object()
OPTIONAL: Mapping[str, Any] = {"optional": True}
"""Metadata of a field that JSON has only where its value is not its default."""
_MOST = 1e15
"""A number that is larger counts as damaged: no run has one."""


def to_json(value: Any) -> Any:
    """Return a value as plain JSON types: dataclasses as objects, sets sorted; a number that is not finite as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_json(held) for one in fields(value) if _is_told(one, held := getattr(value, one.name))}
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


def _is_told(one: Field[Any], value: Any) -> bool:
    return not one.metadata.get("optional") or value != one.default


def from_json(kind: type[T], data: object) -> T:
    """Return a dataclass of this kind, all of whose fields have defaults, from what JSON holds."""
    found = _read(kind, data)
    made: T = kind() if found is _ABSENT else found
    return made


def is_number(value: Any) -> bool:
    """Whether this is a finite number that a run could have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def _read(kind: Any, data: Any) -> Any:
    """Return the value of a type; `_ABSENT` where the data are not of it."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        found = (_read(one, data) for one in inner if one is not type(None))
        return (
            None
            if data is None and type(None) in inner
            else next((one for one in found if one is not _ABSENT), _ABSENT)
        )
    if origin is tuple:
        return _items(inner[0], data) if isinstance(data, list | tuple) else _ABSENT
    if origin is not None and issubclass(origin, Mapping):
        return _entries(inner[1], data) if isinstance(data, Mapping) else _ABSENT
    if is_dataclass(kind):
        return _object(kind, data) if isinstance(data, Mapping) else _ABSENT
    if kind is bool or kind is str:
        return data if isinstance(data, kind) else _ABSENT
    fits = is_number(data) and (kind is float or isinstance(data, int))
    return kind(data) if fits else _ABSENT


def _items(kind: Any, data: Any) -> tuple[Any, ...]:
    return tuple(held for one in data if (held := _read(kind, one)) is not _ABSENT)


def _entries(kind: Any, data: Mapping[Any, Any]) -> dict[str, Any]:
    found = {name: _read(kind, one) for name, one in data.items() if isinstance(name, str)}
    return {name: held for name, held in found.items() if held is not _ABSENT}


def _object(kind: Any, data: Mapping[str, Any]) -> Any:
    found = {name: _read(hint, data[name]) for name, hint in _hints(kind).items() if name in data}
    return kind(**{name: held for name, held in found.items() if held is not _ABSENT})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    known = get_type_hints(kind)
    return {one.name: known[one.name] for one in dataclasses.fields(kind) if one.init}
