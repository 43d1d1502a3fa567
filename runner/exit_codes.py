"""How a run ends: the statuses with their exit codes, the errors that end one, and those of a model file."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from runner.text import one_line

BUDGET_REACHED = "the budget was reached"
"""What the message of a run begins with that had no budget to show anything."""


class Status(str, Enum):
    """The statuses of a run, each with its exit code."""

    exit_code: int

    def __new__(cls, value: str, exit_code: int) -> Status:
        """Make a status that is its own text."""
        made = str.__new__(cls, value)
        made._value_, made.exit_code = value, exit_code
        return made

    found = "found", 0
    planned = "planned", 0
    internal_error = "internal_error", 1
    no_room = "no_room", 1
    usage = "usage", 2
    could_not_judge = "could_not_judge", 3
    nothing_to_find = "nothing_to_find", 4
    no_set_suffices = "no_set_suffices", 5
    not_applicable = "not_applicable", 6
    not_as_expected = "not_as_expected", 7
    # it fails alone, and is not shown to be the cause; what it is compared with is wrong
    suspected = "suspected", 8
    reference_wrong = "reference_wrong", 9
    # by Ctrl-C; a run that SIGTERM ends has this status and another exit code
    interrupted = "interrupted", 130

    def __str__(self) -> str:
        """As result.json has it."""
        return str(self.value)


TERMINATED = 143
"""The exit code of a run that SIGTERM ended."""
FAILED_JOBS = 7
"""The exit code of a sweep with a job that has no answer."""
ANSWERED = frozenset({Status.found, Status.suspected, Status.reference_wrong})
"""The statuses of runs that name what fails."""
ENDED_WELL = frozenset(
    one.exit_code
    for one in (*ANSWERED, Status.nothing_to_find, Status.no_set_suffices, Status.not_applicable, Status.planned)
)
"""The exit codes of runs that have an answer."""


# Errors: of a run, with a message and an exit code; and of a model file that cannot be used.


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
    """The verdicts in a run's folder were found under other conditions. ``changed``: what differs, in words."""

    def __init__(self, message: str, changed: str) -> None:
        super().__init__(message)
        self.changed = changed


class CannotJudge(WinnowError):  # noqa: N818 - the name is the message
    """The check cannot tell good from bad (exit 3). ``lacks``: options with which a run may have an answer."""

    status = Status.could_not_judge

    def __init__(self, message: str = "", lacks: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lacks = tuple(lacks)


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
