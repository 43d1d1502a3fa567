"""Which settings are paths: the only values whose text may trouble Hydra's grammar and still be meant to the letter."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

#: keys whose values are paths (or lists of them)
PATH_KEYS = frozenset(
    {
        "model",
        "resume",
        "inputs.path",
        "inputs.file",
        "checker.file",
        "checker.python",
        "checker.place",
        "checker.iteration_info",
        "target.model",
        "target.python",
        "target.custom_ops",
        "reference.model",
        "reference.python",
        "reference.custom_ops",
        "artifacts.folder",
        "artifacts.paths",
        "journal.reuse",
        "result.path",
        "result.min_good",
        "log.file",
    }
)

_Section = TypeVar("_Section")


def expand_home(section: _Section, prefix: str = "") -> _Section:
    """Return the settings dataclass ``section`` with ``~`` expanded in its path values."""
    changes: dict[str, Any] = {}
    for item in fields(section):  # type: ignore[arg-type]
        value = getattr(section, item.name)
        key = prefix + item.name
        if is_dataclass(value) and not isinstance(value, type):
            changes[item.name] = expand_home(value, key + ".")
        elif key in PATH_KEYS:
            changes[item.name] = [_home(part) for part in value] if isinstance(value, list) else _home(value)
    return replace(section, **changes) if changes else section  # type: ignore[type-var]


def exists(text: str) -> bool:
    """Whether ``text`` names something that is there."""
    try:
        return bool(text) and (Path(text).exists() or Path(text).expanduser().exists())
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no such user
        return False


def _home(value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith("~")) or Path(value).exists():
        return value
    try:
        return str(Path(value).expanduser())
    except RuntimeError:  # no such user
        return value
