"""How a setting is declared, once, and what values it takes, in words.

What it means to a user is said beside its key in `conf/`, which names every key of every class.
A settings class is a frozen dataclass that OmegaConf accepts as a schema. Whatever has to know which settings are
paths, which of them are read, or what belongs into the context of a journal asks here.
Modules that declare settings have no ``from __future__ import annotations``: OmegaConf asks each class for its types,
and would have every one of them compiled from text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """Do nothing at run time: only type checkers read it."""
        return lambda cls: cls


_T = TypeVar("_T")


def _set(self: Any, name: str, value: object) -> None:
    """Take the value of each field once, from `__init__`."""
    if name in vars(self) or name not in {item.name for item in fields(self)}:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[_T]) -> type[_T]:
    """Make ``cls`` a keyword-only dataclass whose instances stay as they are made.

    To OmegaConf these classes are not frozen: the config of one that is would be read-only, so that no YAML could be
    merged into it.
    """
    made = dataclass(kw_only=True, unsafe_hash=True)(cls)
    made.__setattr__ = _set  # type: ignore[method-assign]
    return made


class PathUse(Flag):
    """What a run does with the path, the list of paths or the mapping to libraries that a setting holds."""

    # what lies there is read; if it changes, verdicts and results may change
    READ = auto()
    # a file of the user's choice that a run writes
    WRITE = auto()
    # a file that is written before each check, for the check to read
    FOR_CHECK = auto()
    # a folder that a run works in or goes on with
    FOLDER = auto()
    # a glob, or a path with placeholders: it starts where commands run
    PATTERN = auto()
    # besides: an ONNX model, whose weights lie beside it
    MODEL = auto()
    # besides: an interpreter; a plain name is looked up on PATH
    PROGRAM = auto()
    # besides: a library that a runtime opens; a plain name may be a Python package that tells its place
    LIBRARY = auto()


def setting(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    path: PathUse | None = None,
    in_context: bool = True,
) -> Any:
    """Declare a setting.

    ``least``, ``most``: limits of its number, unless it is null (`beyond_limits`). ``path``: what its path is for, if
    it is one. ``in_context``: whether verdicts depend on it, in a section that they depend on (`context_of`).
    """
    metadata = {"least": least, "most": most, "path": path, "in_context": in_context}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _declared(section: Any, prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Yield the key, what was declared of it, and the value of each setting in ``section``."""
    for item in fields(section):
        value, key = getattr(section, item.name), prefix + item.name
        if is_dataclass(value):
            yield from _declared(value, f"{key}.")
        else:
            yield key, item.metadata, value


def path_values(section: Any) -> Iterator[tuple[str, PathUse, str]]:
    """Yield the key, the use and the text of each path that ``section`` holds."""
    for key, declared, value in _declared(section):
        if use := declared.get("path"):
            several = value.values() if _is_mapping(use, value) else value if isinstance(value, list) else [value]
            yield from ((key, use, text) for text in several if text and isinstance(text, str))


def map_paths(section: _T, change: Callable[[PathUse, str], str]) -> _T:
    """Return ``section`` with ``change(use, text)`` in place of the text of each path."""

    def changed(use: PathUse | None, value: Any) -> Any:
        if is_dataclass(value):
            return map_paths(value, change)
        if use and isinstance(value, str):
            return change(use, value)
        if use and isinstance(value, list):
            return [changed(use, part) for part in value]
        return {name: changed(use, part) for name, part in value.items()} if use and _is_mapping(use, value) else value

    held = {item: getattr(section, item.name) for item in fields(section)}  # type: ignore[arg-type]
    changes = {item.name: changed(item.metadata.get("path"), value) for item, value in held.items()}
    return replace(section, **changes)  # type: ignore[type-var]


def _is_mapping(use: PathUse, value: Any) -> bool:
    """Whether ``value`` maps names to paths; a mapping in place of the file that could hold it does not."""
    return isinstance(value, dict) and PathUse.LIBRARY in use


def context_of(section: Any) -> dict[str, Any]:
    """Return the settings of ``section`` that verdicts depend on, as plain values."""
    held = {item.name: getattr(section, item.name) for item in fields(section) if item.metadata.get("in_context", True)}
    return {name: value.value if isinstance(value, Enum) else value for name, value in held.items()}


def beyond_limits(section: Any) -> Iterator[str]:
    """Say of each number in ``section`` that its declaration does not allow which numbers it does."""
    for key, declared, value in _declared(section):
        least, most = declared.get("least"), declared.get("most")
        if least is None or value is None or (value >= least and (most is None or value <= most)):
            continue  # a NaN is beyond all limits
        allowed = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
        yield f"{key}={value:g}: it must be {allowed}."


# What values a setting takes, in words: from its type, and from what its path is for.

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
        return f"names, each with {_described(get_args(hint)[1], text)}"
    if get_args(hint):
        return " or ".join(_described(part, text) for part in get_args(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        return "the name of a choice, or a choice with its keys"
    if hint is Any and text != "text":
        return "a path, or as said"
    return text if hint is str else _PLAIN.get(hint, "anything")
