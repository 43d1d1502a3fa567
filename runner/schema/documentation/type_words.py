"""What values a setting takes, in words: from its type, and from what its path is for."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from typing import Any, get_args, get_origin

from runner.schema.settings import PathUse

_PLAIN = {int: "an integer", float: "a number", str: "text", bool: "true or false", type(None): "null"}
_SEVERAL = {"an integer": "integers", "a number": "numbers", "a path": "paths"}
#: what a path is, and what is done with what lies there; the first that holds
_WHAT = {PathUse.MODEL: "model", PathUse.PROGRAM: "interpreter", PathUse.LIBRARY: "library", PathUse.FOLDER: "folder"}
_DONE = {
    PathUse.FOR_CHECK: "written before each check",
    PathUse.WRITE: "written",
    PathUse.PATTERN: "may have * and ?",
    PathUse.READ: "read",
}


def type_words(hint: Any, use: PathUse | None = None) -> str:
    """Return what values fit the type ``hint`` of a setting; ``use``: what its path is for, if it holds one."""
    if not use:
        return _described(hint, "text")
    what = next((word for flag, word in _WHAT.items() if flag in use), "file")
    done = [word for flag, word in _DONE.items() if flag in use][:1]
    return f"{_described(hint, 'a path')} ({', '.join([what, *done])})"


def _described(hint: Any, text: str) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " | ".join(str(item.name) for item in hint)
    if get_origin(hint) is list:
        part = _described(get_args(hint)[0], text)
        return f"a list of {_SEVERAL.get(part, part)}"
    if get_origin(hint) is dict:
        return f"a mapping of {_described(get_args(hint)[1], text)}"
    if get_args(hint):
        return " or ".join(_described(part, text) for part in get_args(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        return "an option of the group"
    if hint is Any and text != "text":
        return "a path, or as said"
    return text if hint is str else _PLAIN.get(hint, "anything")
