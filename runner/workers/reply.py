"""What a call to a worker can come back with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import machine
from runner.exit_codes import UsageError, WinnowError

OUT_OF_MEMORY = "out of memory"
"""The death of what took the machine's memory, where the user gave no limit: it says nothing about a model."""
KILLED = "death KILL"
"""The death by SIGKILL, which may have been meant for somebody else."""


UNREADY = "NotReady"
"""The type of the failure of a process that ended while what it needs was imported."""


_REFUSED = re.compile(
    r"^\s*(?:\w+\.)*\w*MemoryError\b"
    r"|^terminate called after throwing an instance of '[\w:]*bad_alloc'"
    # before anything quoted or in parentheses
    r"|^[^'\"({]*Error Code \d+: OutOfMemory\b"
    # to the end: after a name something follows that closes it
    r"|(?:^|: +|[\])] )(?:std::bad_alloc|bad allocation"
    r"|(?:[Cc]annot|[Cc]ould not|[Ff]ailed to|[Uu]nable to) allocate (?:memory|[\d.]+ ?[KMGT]?i?(?:B|bytes))\b"
    r")[^,;:'\"(){}]*(?: \(it stands between .*\))?$"
)
"""A line of what runtimes say that got no memory, each in its place: a model's names may say anything."""
_LAST_LINES = 20


def refused_memory(said: str) -> bool:
    """Whether what a process said, or printed last, is that it got no more memory than its own limits give it.

    Without such limits it asked for more than there can be, which is what it did wrong. What it said long before it
    died it has lived through; after its death there may be its stacks.
    """
    if machine.limit_mb() is None:
        return False
    lines = said.partition("\nFatal Python error: ")[0].splitlines()
    return any(map(_REFUSED.search, lines[-_LAST_LINES:]))


def without_folder(said: str, model: Path) -> str:
    """Return what was said of a model without the folder of its file, which is another one each time."""
    return said.replace(f"{model.parent}/", "") if model.is_absolute() else said


def shortage(key: str = "checker.memory_mb") -> str:
    """Say what `OUT_OF_MEMORY` means; ``key``: of the limit that the user can give."""
    if (limit := machine.limit_mb()) is not None:
        return (
            f"it got no more memory: a process may take {limit} MiB here (ulimit -v, -d). That is no answer. Raise "
            f"that limit, or name one at which it is a failure: {key}=MIB"
        )
    return (
        f"it took more memory than one process may take here ({machine.share_mb()} MiB, {machine.SHARE:.0%} of what "
        f"there is, or all of it): that is no answer. {key}=MIB sets another limit, and makes it a failure"
    )


class WorkerStartError(UsageError):
    """An interpreter that was asked for does not start, is too old or is no Python."""


class WorkerKilledError(WinnowError):
    """A worker was killed while it started, and a second one as well."""


@dataclass(frozen=True)
class Failure:
    """An error that the call itself reported; the worker lives on.

    ``stage``: ``setup`` (the settings or the installation are at fault, never the model), ``load``, ``infer``,
    ``check`` (a user's function) or the name of the operation. ``type``: the name of the exception's class or of the
    runtime's status.
    """

    stage: str
    type: str
    message: str


@dataclass(frozen=True)
class Reply:
    """The end of one call: exactly one of ``value``, ``failure`` and ``death`` is set.

    ``death``: ``death MEMORY`` (SEGV, BUS and ABRT are one), ``death FPE``, ``death KILL`` ..., ``timeout``, ``memory``
    (more than the limit that was given), `OUT_OF_MEMORY` or ``exit N``. ``seconds``: wall time of the call, without the
    start of the interpreter and its imports. ``peak_rss_mb``: resident MiB. ``log``: what the call printed, kept when
    it failed or when that was asked for; None if it printed nothing.
    """

    value: dict[str, Any] | None
    failure: Failure | None
    death: str | None
    seconds: float
    peak_rss_mb: float
    log: Path | None = None

    @property
    def why(self) -> str:
        """What the error said, or how the process ended; for a call without a value."""
        return self.failure.message if self.failure else str(self.death)

    @property
    def erred(self) -> bool:
        """Whether the call ended in an error, of Winnow's own operations or of a user's function."""
        return self.failure is not None or "raised" in (self.value or {})

    @property
    def unready(self) -> bool:
        """Whether the process ended before it could begin, which is no news about a model."""
        return self.failure is not None and self.failure.type == UNREADY
