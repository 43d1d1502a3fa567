"""Errors that carry their stage to the job."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP035, PTH, PLC0415
from __future__ import annotations

from typing import Iterable


class StageError(Exception):
    """A failure at ``stage`` (setup, load, infer); ``kind``: an exception's class name or a runtime's status."""

    def __init__(self, stage: str, kind: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.kind = kind


def choose(what: str, given: str, valid: Iterable[str]) -> StageError:
    """Return the error for a setting that is none of the valid ones."""
    options = ", ".join(sorted(valid)) or "none"
    return StageError("setup", "UnknownSetting", f"{what}={given} is not known here; valid: {options}")
