"""How a run can end: the status in result.json, and the exit code that goes with it."""

from __future__ import annotations

from enum import Enum


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
    # by Ctrl-C; a run that SIGTERM ends has this status and another exit code
    interrupted = "interrupted", 130

    def __str__(self) -> str:
        """As result.json has it."""
        return str(self.value)


TERMINATED = 143
"""The exit code of a run that SIGTERM ended."""
FAILED_JOBS = 7
"""The exit code of a sweep with a job that has no answer."""
ENDED_WELL = frozenset(
    one.exit_code
    for one in (Status.found, Status.nothing_to_find, Status.no_set_suffices, Status.not_applicable, Status.planned)
)
"""The exit codes of runs that have an answer."""
