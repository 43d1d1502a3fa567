"""Which settings are paths: the only values whose text may trouble Hydra's grammar and still be meant to the letter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

#: keys whose values are paths (or lists of them)
PATH_KEYS = frozenset(
    {
        "model",
        "cwd",
        "resume",
        "strategy.good",
        "strategy.bad",
        "inputs.path",
        "inputs.file",
        "checker.file",
        "checker.python",
        "checker.place",
        "checker.iteration_info",
        "target.model",
        "target.python",
        "target.custom_ops",
        "target.plugins",
        "target.timing_cache",
        "reference.model",
        "reference.map",
        "reference.python",
        "reference.custom_ops",
        "reference.plugins",
        "reference.timing_cache",
        "artifacts.folder",
        "artifacts.paths",
        "journal.reuse",
        "result.path",
        "result.min_good",
        "log.file",
        "workers.leases",
    }
)

#: paths that are globs or hold placeholders; they start where commands run
_PATTERNS = frozenset({"artifacts.paths"})
#: interpreters: a plain name is looked up on PATH
_PROGRAMS = frozenset({"checker.python", "target.python", "reference.python"})
#: what a list of libraries may name instead of a path
_PACKAGES = frozenset({"onnxruntime_extensions"})

_Section = TypeVar("_Section")


def expand_home(section: _Section) -> _Section:
    """Return the settings dataclass ``section`` with ``~`` expanded in its path values."""
    return _map_paths(section, lambda _, path: _home(path))


def rooted(section: _Section, folder: Path) -> _Section:
    """Return ``section`` with its path values absolute: below the entry it does not matter where the user stands."""

    def root(key: str, path: str) -> str:
        bare = key in _PROGRAMS and "/" not in path and not (folder / path).is_dir()
        bare = bare or (path in _PACKAGES and key.endswith(".custom_ops"))
        return path if bare or key in _PATTERNS or not path else str(folder / path)

    return _map_paths(section, root)


def path_values(section: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each path of the settings dataclass ``section`` with its key."""
    for item in fields(section):
        value, key = getattr(section, item.name), prefix + item.name
        if is_dataclass(value) and not isinstance(value, type):
            yield from path_values(value, f"{key}.")
        elif key in PATH_KEYS:
            yield from (
                (key, part)
                for part in (value if isinstance(value, list) else [value])
                if part and isinstance(part, str)
            )


def _map_paths(section: _Section, change: Callable[[str, str], str], prefix: str = "") -> _Section:
    """Apply ``change(key, path)`` to each path of the settings dataclass ``section``."""
    changes: dict[str, Any] = {}
    for item in fields(section):  # type: ignore[arg-type]
        value = getattr(section, item.name)
        key = prefix + item.name
        if is_dataclass(value) and not isinstance(value, type):
            changes[item.name] = _map_paths(value, change, key + ".")
        elif key in PATH_KEYS:
            parts = [
                change(key, p) if isinstance(p, str) else p for p in (value if isinstance(value, list) else [value])
            ]
            changes[item.name] = parts if isinstance(value, list) else parts[0]
    return replace(section, **changes) if changes else section  # type: ignore[type-var]


def exists(text: str) -> bool:
    """Whether ``text`` names something that is there."""
    try:
        return bool(text) and (Path(text).exists() or Path(text).expanduser().exists())
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no such user
        return False


def _is_there(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def _home(value: str) -> str:
    if not value.startswith("~") or _is_there(value):
        return value
    try:
        return str(Path(value).expanduser())
    except RuntimeError:  # no such user
        return value
