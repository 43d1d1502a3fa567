"""Errors: of a run, with a message and an exit code; and of a model file that cannot be used."""

from __future__ import annotations

from typing import ClassVar

from runner.judgment import Status
from runner.text import one_line


class WinnowError(Exception):
    """A run cannot go on; the message says what, where, the valid options and the next command."""

    status: ClassVar[Status] = Status.internal_error
    exit_code: ClassVar[int] = status.exit_code

    def __init_subclass__(cls) -> None:
        cls.exit_code = cls.status.exit_code


class UsageError(WinnowError):
    """The configuration or an input file is wrong (exit 2)."""

    status = Status.usage


class OtherConditionsError(UsageError):
    """The verdicts in a run's folder were found under other conditions."""


class CannotJudge(WinnowError):  # noqa: N818 - the name is the message
    """The check cannot tell good from bad (exit 3)."""

    status = Status.could_not_judge


class NotTried(CannotJudge):
    """The machine did not let a check be made (no memory was left, a GPU that fails by itself): another day it may."""


class NotApplicable(WinnowError):  # noqa: N818 - the name is the message
    """The question makes no sense here (exit 6)."""

    status = Status.not_applicable


# The error of a model file that cannot be used, as one printable line.


class ModelError(Exception):
    """The model file, or a file that it refers to, cannot be used.

    The message is one printable line for the user, whatever names are in it; of a long one the middle is left out.
    """

    stage = "load"

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class NoRoomForWeights(ModelError):  # noqa: N818 - the name is the message
    """The disk cannot hold the run's copy of the weights."""
