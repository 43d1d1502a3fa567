"""The error of a backend, with the stage (setup, load, build, infer) in which it happened."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP035, PTH, PLC0415
from __future__ import annotations

from difflib import get_close_matches
from typing import Iterable


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
