"""Python source of plain values: no text among them can become code."""

from __future__ import annotations

import math
import pprint
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any


class _Endless(float):
    """A number whose source is a call: an infinity has no literal."""

    def __repr__(self) -> str:
        return f'float("{float.__repr__(self)}")'


def set_to(variable: str, value: Any, width: int, *, fill: bool = False) -> str:
    """Return the source that sets a variable, over several lines if it is long. ``fill``: over as few as there can be.

    ``repr`` escapes whatever could end a string or hide in it.
    """
    indent = len(variable) + len(" = ")
    text = pprint.pformat(_plain(value), width=width - indent, sort_dicts=False, compact=fill)
    return f"{variable} = " + text.replace("\n", "\n" + " " * indent)


def set_together(values: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the sources that set variables, in as few lines as there can be: as many on one as there is room for."""
    line: dict[str, str] = {}
    for variable, value in values.items():
        longer = {**line, variable: inline(value)}
        if line and len(_one_line(longer)) > width:
            yield _one_line(line)
            longer = {variable: inline(value)}
        line = longer
        if len(_one_line(line)) > width:
            yield set_to(variable, value, width, fill=True)
            line = {}
    if line:
        yield _one_line(line)


def _one_line(sources: Mapping[str, str]) -> str:
    return f"{', '.join(sources)} = {', '.join(sources.values())}"


def inline(value: Any) -> str:
    """Return the source of a value on one line."""
    return repr(_plain(value))


def call(function: str, *values: Any, on: str = "") -> str:
    """Return the source of a call with values, after the variable ``on`` if one is named, on one line."""
    return f"{function}({', '.join([*([on] if on else []), *map(inline, values)])})"


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    if isinstance(value, float) and not math.isfinite(value):
        return _Endless(value)
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
