"""Errors that end a run with a message for the user and a documented exit code."""

from __future__ import annotations

from typing import ClassVar


class WinnowError(Exception):
    """A run cannot go on; the message says what, where, the valid options and the next command."""

    exit_code: ClassVar[int] = 1
    status: ClassVar[str] = "internal_error"


class UsageError(WinnowError):
    """The configuration or an input file is wrong (exit 2)."""

    exit_code = 2
    status = "usage"


class CannotJudge(WinnowError):  # noqa: N818 - the name is the message
    """The check cannot tell good from bad (exit 3)."""

    exit_code = 3
    status = "could_not_judge"


class NotTried(CannotJudge):
    """The machine did not let a check be made (no memory was left, a GPU that fails by itself): another day it may."""


class NotApplicable(WinnowError):  # noqa: N818 - the name is the message
    """The question makes no sense here (exit 6)."""

    exit_code = 6
    status = "not_applicable"
