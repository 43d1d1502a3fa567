"""How much there is room for: on the disks, and for recorded values in memory and on disk.

Room on the disks: where there is none, checks fail, and what they say then is nothing about a model.

So room is looked at before and after each check, and before values are recorded. A run that has too little of it ends
without a verdict; it goes on where it stopped once there is room.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runner import machine
from runner.exit_codes import Status, UsageError, WinnowError
from runner.files import read_plain
from runner.schema.root import CutSettings, RecordMode
from runner.verdict import Verdict
from strategies.search import Outcome

RESERVE = 64 << 20
"""Bytes that have to be free where the run writes: more than the output of a check takes while it runs."""
LEAST = 1 << 20
"""Bytes that have to be free where checks may write: the folder of temporary files, and where the user stands."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says where nothing more can be written."""
FULL_DISK = ("No space left on device", "Disk quota exceeded")
"""What programs say there."""
_PROBE_BYTES = 1 << 16
# kinds of failure that a rule of the user's defines: a full disk in the output does not override it
_CLAIMED = frozenset({"regex", "listed exit"})


class NoRoom(WinnowError):  # noqa: N818 - the name is the message
    """A disk is full, or nearly (exit 1)."""

    status = Status.no_room


@dataclass(frozen=True)
class Room:
    """The room that the run in ``folder`` has; ``others`` are further folders that it writes to."""

    folder: Path
    others: tuple[Path, ...] = ()

    def confirm(self, extra: int = 0, what: str = "") -> None:
        """Raise NoRoom where too little is free; ``extra``: bytes that ``what`` is going to take in the run's folder.

        A quota, and that no more files can be made, shows only where something is written, so a little is.
        """
        for place in (self.folder, *self.others):
            self._look(place, RESERVE)
        if extra:
            self._look(self.folder, RESERVE + extra, f"; {what} takes at least {_mib(extra)}")
        for place in _of_checks():
            if os.access(place, os.W_OK):
                self._look(place, LEAST)
        try:
            with tempfile.TemporaryFile(dir=_there(self.folder), buffering=0) as file:
                if file.write(bytes(_PROBE_BYTES)) < _PROBE_BYTES:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if error.errno in FULL:
                raise self.none(f"{error.strerror} in {self.folder}") from error

    def judge(self, verdict: Verdict) -> None:
        """Raise NoRoom where a check that did not pass says itself that a disk was full, in its reason or its log."""
        claimed = verdict.signature is not None and verdict.signature.kind in _CLAIMED
        if claimed or (verdict.outcome is Outcome.PASS and not verdict.returncode):
            return
        log = read_plain(self.folder / verdict.log) if verdict.log else b""
        said = verdict.reason + log.decode("utf-8", "replace")
        if words := next((words for words in FULL_DISK if words in said), ""):
            raise self.none(
                f"the check says: {words}. If that is the failure that you look for, name it with checker.fail_regex"
            )

    def none(self, why: str) -> NoRoom:
        """Return what says that there is no room."""
        return NoRoom(
            f"{why}. On a full disk a check proves nothing, so its verdict is not recorded: make room, then go on with "
            f"the same command and resume={self.folder}"
        )

    def _look(self, place: Path, least: int, why: str = "") -> None:
        try:
            found = os.statvfs(_there(place))
        except OSError:
            return  # the next write there says why
        blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
        free = blocks * found.f_frsize
        if found.f_blocks and free < least:  # some file systems do not say how large they are
            where = "the current folder" if place == Path() else place
            raise self.none(f"only {_mib(free)} is free in {where}, and {_mib(least)} is needed{why}")


def _of_checks() -> Iterator[Path]:
    """Where checks may write."""
    yield Path(os.curdir)
    with suppress(OSError):  # none can be written to
        yield Path(tempfile.gettempdir())


def _there(place: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next((folder for folder in (place, *place.absolute().parents) if folder.is_dir()), Path("/"))


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


# How much memory and disk recorded values may take: `cut.memory`, `cut.disk`, `cut.record`.

_UNITS = {"": 1, **{f"{unit}{end}": 1 << 10 * power for power, unit in enumerate("KMGT", 1) for end in ("", "B", "IB")}}


MEMORY = 1 << 30
"""Bytes that are enough where the user set no limit: more makes recording no faster."""


@dataclass(frozen=True)
class RecordingLimits:
    """Bytes, as `Recorder` takes them. ``disk`` None: everything is kept."""

    memory: int
    disk: int | None = None
    lazy: bool = False


def recording_limits(cut: CutSettings, folder: Path, *, seldom: bool = False) -> RecordingLimits:
    """Return the limits of a run in ``folder``. Raises UsageError for what is no number of bytes.

    ``seldom``: whether few of the values will be asked for, so that none are kept before.
    """
    memory, disk = bytes_of("cut.memory", cut.memory), bytes_of("cut.disk", cut.disk)
    # what is free does not show what this process may have
    own = [limit for limit in map(_soft_limit, (resource.RLIMIT_AS, resource.RLIMIT_DATA)) if limit >= 0]
    quarter = min([machine.free_mb() * 2**18, *own])
    if memory is None:
        memory = int(min(quarter, MEMORY))
    if cut.record is RecordMode.all:
        return RecordingLimits(memory)
    free = shutil.disk_usage(folder).free // 2 if disk is None else disk
    return RecordingLimits(memory, free, seldom or cut.record is RecordMode.lazy)


def _soft_limit(kind: int) -> float:
    """Return a quarter of what the system lets this process have; below zero: all it wants."""
    return resource.getrlimit(kind)[0] / 4


def bytes_of(key: str, size: str | None) -> int | None:
    """Return bytes: of a number, or of one with a unit (64M, 1GiB). Raises UsageError."""
    if size is None:
        return None
    match = re.fullmatch(r"(\d{1,18}) *([A-Za-z]*)", size.strip(), re.ASCII)
    if match is None or match.group(2).upper() not in _UNITS:
        raise UsageError(f"{key}={size}: give bytes, or a number with a unit: {key}=512M, {key}=2GiB")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]
