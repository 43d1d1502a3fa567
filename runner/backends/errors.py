"""The error of a backend, with the stage (setup, load, build, infer) in which it happened; settings that are wrong."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP035, PTH100, PTH111, PTH113
from __future__ import annotations

import importlib
import math
import os
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Callable, Iterable, Iterator


class StageError(Exception):
    """A failure at ``stage``; ``kind``: an exception's class name or a runtime's status.

    Stages: setup (the settings or the installation are at fault), load, build, infer (the model fails there), untried
    (it could not even be tried, which says nothing about it).
    """

    def __init__(self, stage: str, kind: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.kind = kind


def choose(what: str, given: str, valid: Iterable[str]) -> StageError:
    """Return the error for a setting that is none of the valid ones."""
    valid = sorted(valid)
    options = ", ".join(valid) or "none"
    near = get_close_matches(given, valid)
    meant = f". Did you mean {' or '.join(near)}?" if near else ""
    return StageError("setup", "UnknownSetting", f"{what}={given} is not known here; valid: {options}{meant}")


@contextmanager
def naming(setting: str) -> Iterator[None]:
    """Name the setting in whatever a runtime raises about it. Raises StageError (setup)."""
    try:
        yield
    except StageError:
        raise
    except Exception as error:
        raise StageError("setup", "BadSetting", f"{setting}: {' '.join(str(error).split())[:300]}") from error


def set_attribute(
    target: Any, group: str, name: str, given: Any, lacks: Callable[[str, str, Iterable[str]], StageError] = choose
) -> None:
    """Set an attribute of a runtime's options: a number, a yes or no, a text, or the name of an enumeration's member.

    ``group``: the setting that names it. ``lacks``: makes the error for what is not valid. Raises StageError (setup).
    """
    known = [key for key in dir(target) if not key.startswith("_") and not callable(getattr(target, key, None))]
    if name not in known:
        raise lacks(group, name, known)
    key, word, now = f"{group}.{name}", str(given), getattr(target, name)
    members = getattr(type(now), "__members__", None)
    if isinstance(now, bool):
        members = {"TRUE": True, "FALSE": False}
    value = given
    if members is not None:
        if word.upper() not in members:
            raise lacks(key, word, members if not isinstance(now, bool) else ("true", "false"))
        value = members[word.upper()]
    try:
        if isinstance(now, int) and members is None:
            value = int(word)
    except ValueError:
        raise lacks(key, word, ("a whole number",)) from None
    with naming(f"{key}={given}"):
        setattr(target, name, value)
        # TensorRT clamps a value that is out of range silently
        if (kept := getattr(target, name)) != value and not (isinstance(kept, float) and math.isclose(kept, value)):
            raise ValueError(f"out of range; {kept} is as near as it goes")


def library_path(key: str, given: str) -> str:
    """Return the path of a shared library: a path, or that of which a Python package tells (``get_library_path``).

    ``key``: the setting that names it. Raises StageError (setup) where there is none.
    """
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.isfile(path) and "/" not in given and not given.endswith((".so", ".dylib")):
        try:
            path = str(importlib.import_module(given).get_library_path())
        except (ImportError, AttributeError) as error:
            message = f"{key}={given}: no such package, or it tells of no library ({error})"
            raise StageError("setup", "NoSuchLibrary", message) from error
    if not os.path.isfile(path):
        message = f"{key}={path}: there is no such file; give the path of a shared library"
        raise StageError("setup", "NoSuchLibrary", message)
    return path
