"""Paths in settings: `~`, what is relative, and which keys hold one before anything is composed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from runner.schema.installed_choices import SCHEMAS
from runner.schema.root import Settings
from runner.schema.settings import PathUse, map_paths

_Section = TypeVar("_Section")


def _declared(schema: type, prefix: str = "") -> Iterator[tuple[str, PathUse]]:
    hints: dict[str, Any] = {} if prefix else get_type_hints(schema)
    for item in fields(schema):
        key = prefix + item.name
        if item.metadata.get("path"):
            yield key, item.metadata["path"]
        elif not prefix and key in SCHEMAS:
            for choice in SCHEMAS[key].values():
                yield from _declared(choice, f"{key}.")
        elif not prefix and hasattr(hints[key], "__dataclass_fields__"):
            yield from _declared(hints[key], f"{key}.")


PATH_KEYS = dict(_declared(Settings))
"""What the path is for, by key: the keys of all choices."""
SECTIONS = frozenset({*(item.name for item in fields(Settings)), "hydra"})
ANY_SECTION = "*"
"""In place of a section's name: whichever has such a key."""
_USES = {f"{ANY_SECTION}.{key.rpartition('.')[2]}": use for key, use in PATH_KEYS.items()} | PATH_KEYS


def use_of(key: str) -> PathUse:
    """Return what the path that ``key`` holds is for, also of one in a mapping to libraries; nothing: it holds none."""
    above = _USES.get(key.rpartition(".")[0], PathUse(0))
    return _USES.get(key, above if PathUse.LIBRARY in above else PathUse(0))


def expand_home(section: _Section) -> _Section:
    """Return the settings dataclass ``section`` with ``~`` expanded in its path values."""

    def home(_use: PathUse, path: str) -> str:
        try:
            return str(Path(path).expanduser()) if path.startswith("~") and not Path(path).exists() else path
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, no such user
            return path

    return map_paths(section, home)


def rooted(section: _Section, folder: Path) -> _Section:
    """Return ``section`` with its path values absolute: below the entry it does not matter where the user stands.

    They start at ``folder``; what is written for a check starts where that runs.
    """
    at_work = folder / (getattr(section, "cwd", None) or "")

    def root(use: PathUse, path: str) -> str:
        by_name = PathUse.PATTERN in use or is_by_name(use, path, folder)
        start = at_work if PathUse.FOR_CHECK in use else folder
        return path if by_name or not path else str(start / path)

    return map_paths(section, root)


def climbed(folder: Path, path: str) -> tuple[Path, str]:
    """Return the folder above ``folder`` where a relative path starts, and the path without its leading ``../``.

    ``folder``: without links, so that what lies above it is what its path says.
    """
    while path.startswith("../"):
        folder, path = folder.parent, path[3:].lstrip("/")
    return folder, path


def is_by_name(use: PathUse, path: str, folder: Path) -> bool:
    """Whether a plain name is looked up: an interpreter's on PATH, a library's among Python's packages."""
    if "/" in path:
        return False
    if PathUse.PROGRAM in use:
        return not (folder / path).is_dir()
    return PathUse.LIBRARY in use and not path.endswith((".so", ".dylib")) and not (folder / path).is_file()


def exists(text: str) -> bool:
    """Whether ``text`` names something that is there."""
    try:
        return bool(text) and (Path(text).exists() or Path(text).expanduser().exists())
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no such user
        return False
