"""Leases: one process per GPU, across the jobs, sweeps and users of a machine; slots for builds on the CPU.

A lease is a file lock, keyed by the GPU's UUID, that the process which uses the GPU inherits. The job closes its own
copy as soon as that process runs, so the lock ends with the process and with nothing else: a job that is killed frees
no GPU that an orphan of it still uses, and a process that is killed leaves none locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import logging
import math
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from runner import machine
from runner.exit_codes import CannotJudge, UsageError
from runner.schema.root import LeaseMode, WorkerSettings
from runner.workers.gpus import VISIBLE, Gpus, installed, usable, visible
from runner.workers.process_tree import now

# A folder of lock files that all users of a machine share, and none of them can turn against another.

# fixed, and not what $TMPDIR says: that differs between users and between the jobs of a cluster
_SHARED = Path("/tmp/winnow-leases")  # noqa: S108 - opened with all the care that a shared folder needs
_MOST_BYTES = 4096
_TRIES = 50
_PAUSE_SECONDS = 0.01
# never through a link, never waiting for a pipe's other end
_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class LockFolder:
    """``path``: a folder of the user's choice; None: the one that is shared by all of the machine.

    A lock is ``flock``'s: it belongs to the open file, so to all processes that have inherited the descriptor, and goes
    with the last of them. Raises UsageError where the folder cannot be used.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path or _SHARED
        self._shared = path is None

    def lock(self, name: str) -> int | None:
        """Return a descriptor that holds the lock ``name``; None if somebody else has it."""
        for _ in range(_TRIES):
            fd = self._locked(name, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if fd is None or self.is_file_of(fd, name):
                return fd
            os.close(fd)  # somebody has cleaned up: this file is not the one that others will lock
        raise self._unusable(f"{name} vanishes again and again")

    def share(self, name: str) -> int:
        """Return a descriptor that holds ``name`` together with others."""
        fd = self._locked(name, fcntl.LOCK_SH)
        assert fd is not None
        return fd

    def is_file_of(self, fd: int, name: str) -> bool:
        """Whether ``fd`` is the file ``name``, as it lies there now."""
        try:
            there, mine = os.lstat(self._at(name)), os.fstat(fd)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def write(self, fd: int, information: Mapping[str, Any]) -> None:
        """Say in the file who holds it. Where another user's file may only be read, nothing is said."""
        data = json.dumps(information).encode()[:_MOST_BYTES]
        with contextlib.suppress(OSError):
            os.pwrite(fd, data, 0)
            os.ftruncate(fd, len(data))

    def read(self, name: str) -> dict[str, Any]:
        """Return what the last holder has said; nothing if that is not known."""
        try:
            fd = os.open(self._at(name), os.O_RDONLY | _CAREFUL)
        except OSError:
            return {}
        try:
            said = json.loads(os.read(fd, _MOST_BYTES))
        except (OSError, ValueError):
            return {}
        finally:
            os.close(fd)
        return said if isinstance(said, dict) else {}

    def _at(self, name: str) -> Path:
        return self.path / (re.sub(r"[^0-9A-Za-z.@-]", "_", name) + ".lock")

    def _locked(self, name: str, operation: int) -> int | None:
        """Return a descriptor that was locked; None if that would have to wait."""
        fd = self._open(name)
        try:
            fcntl.flock(fd, operation)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                return None
            if isinstance(error, OSError):
                raise self._unusable(f"its file system has no locks ({error.strerror})") from error
            raise
        return fd

    def _open(self, name: str) -> int:
        self._prepare()
        path = self._at(name)
        error = "it vanishes again and again"
        for _ in range(_TRIES):
            # not at once: with O_CREAT the kernel refuses other users' files in such a folder (protected_regular)
            for more in (0, os.O_CREAT | os.O_EXCL):
                try:
                    fd = os.open(path, os.O_RDWR | _CAREFUL | more, 0o666)
                except (FileNotFoundError, FileExistsError):
                    continue
                except OSError as wrong:
                    if not more and not isinstance(wrong, PermissionError):
                        raise self._unusable(f"{path.name} is no plain file ({wrong.strerror})") from wrong
                    error = str(wrong.strerror)
                    time.sleep(_PAUSE_SECONDS)  # its owner, or the folder's, may be about to open it to all
                    break
                if more:
                    os.fchmod(fd, 0o666)  # whatever the umask: others lock it too
                return self._checked(fd, path)
        raise self._unusable(f"{path.name}: {error}")

    def _checked(self, fd: int, path: Path) -> int:
        """Refuse what is no lock file: another name of some other file would be written to."""
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
            return fd
        os.close(fd)
        raise self._unusable(f"{path.name} is no plain file or has other names")

    def _prepare(self) -> None:
        try:
            if not self._shared:
                self.path.mkdir(parents=True, exist_ok=True)
                return
            with contextlib.suppress(FileExistsError):
                self.path.mkdir()
            found = os.lstat(self.path)
            if not stat.S_ISDIR(found.st_mode):
                raise self._unusable("it is no folder")
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != 0o1777:
                self.path.chmod(0o1777)
            elif found.st_uid != os.geteuid() and found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                raise self._unusable("anybody may take other users' files away there: chmod +t")
        except OSError as error:
            raise self._unusable(str(error.strerror)) from error

    def _unusable(self, why: str) -> UsageError:
        return UsageError(
            f"workers.lease_folder={self.path}: this cannot be the folder of GPU leases: {why}. Name a folder that all "
            "who share the GPUs can write to (workers.lease_folder=/path), or do without leases (workers.lease=none)"
        )


log = logging.getLogger(__name__)

Kind = Literal["gpu", "cpu"]

#: carried by everything that runs under a lease: a mark and the lock's descriptor for each, the outermost first
CHAIN = "WINNOW_LEASE"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_FIRST_WORD, _RARER = 5.0, 3.0


class NoGpuError(UsageError):
    """A GPU is asked for, and there is none."""


class Stopped(RuntimeError):  # noqa: N818 - it is no error
    """A wait was given up: the pool was closed, or all checks were killed."""


class OutOfTime(CannotJudge):
    """The run's time (``budget.seconds``) was over while it still waited for a lease."""


class Lease:
    """The right to use one GPU (or one CPU slot), held by whoever holds one of the descriptors ``fds``.

    The job makes one, starts a process that inherits ``fds`` and gets ``environment``, and calls ``hand_over``.
    """

    def __init__(self, kind: Kind, name: str, fds: tuple[int, ...], folder: LockFolder, said: Holder) -> None:
        self.kind = kind
        self.name = name
        self.fds = fds
        self._folder = folder
        self._said = said
        self._mark = secrets.token_hex(8)
        self._note_holder(os.getpid())

    def __del__(self) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """What the holder finds in its environment."""
        outer = os.environ.get(CHAIN)
        mine = f"{self._mark}:{self.fds[0]}"
        marked = {CHAIN: f"{outer},{mine}" if outer else mine}
        return {**marked, VISIBLE: visible(self.name)} if self.kind == "gpu" else marked

    def hand_over(self, pid: int) -> None:
        """Note that ``pid`` holds it, and give up the job's own copy."""
        self._note_holder(pid)
        self.close()

    def close(self) -> None:
        """Give up the job's own copy. Can be called again."""
        if self.fds:
            os.close(self.fds[0])  # the others were inherited, and hold an outer lease
            self.fds = ()

    def _note_holder(self, pid: int) -> None:
        said = {**self._said, "pid": pid, "since": time.time(), "mark": self._mark}
        self._folder.write(self.fds[0], said)


Holder = Mapping[str, "str | int | float"]


class Leases:
    """Hands out leases. Thread-safe.

    ``gpus``: finds the GPUs, when the first one is asked for. ``cpu_slots``: how many builds on the CPU may run at once
    on this machine. ``folder``: of the lock files, None for the one shared by all users. ``owner``: the run folder, for
    those who wait.
    """

    def __init__(
        self, gpus: Callable[[], Gpus], cpu_slots: int, folder: Path | None, mode: LeaseMode, owner: Path
    ) -> None:
        self.mode = mode
        self._find = gpus
        self._found: Gpus | None = None
        self._cpu_slots = cpu_slots
        self._folder = LockFolder(folder)
        self._said: Holder = {"host": socket.gethostname(), "user": _user(), "folder": str(owner)}
        self._marks = tuple(mark.split(":") for mark in os.environ.get(CHAIN, "").split(",") if ":" in mark)

    @classmethod
    def of(cls, settings: WorkerSettings, run_folder: Path) -> Leases:
        """Make the leases that the group ``workers`` describes, for a run in ``run_folder``."""

        def gpus() -> Gpus:
            return usable(installed(), os.environ, settings.gpus)

        folder = Path(settings.lease_folder).expanduser() if settings.lease_folder else None
        return cls(gpus, settings.cpu_slots or machine.cpus(), folder, settings.lease, run_folder)

    @property
    def gpus(self) -> Gpus:
        """The GPUs that may be used, or why there are none. Raises UsageError where workers.gpus is wrong."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def needed(self, kind: Kind | None) -> Kind | None:
        """Return the lease to take for ``kind``: none where leases are switched off."""
        return None if self.mode is LeaseMode.none else kind

    def take(self, kind: Kind) -> Lease | None:
        """Return a lease that is free now; None if all are held. Raises NoGpuError where there are no GPUs."""
        for name in self._names(kind):
            fds = self._lock(_place(kind, name))
            if fds:
                return Lease(kind, name, fds, self._folder, self._said)
        return None

    def want(self, kind: Kind) -> int:
        """Return a descriptor that tells all jobs, until it is closed, that somebody waits for such a lease."""
        return self._folder.share(f"wanted-{kind}")

    def wanted(self, kind: Kind) -> bool:
        """Whether some job waits for such a lease."""
        try:
            fd = self._folder.lock(f"wanted-{kind}")
        except UsageError:
            return False
        if fd is not None:
            os.close(fd)
        return fd is None

    def held_by(self, kind: Kind) -> str:
        """Say who holds them, one phrase for each GPU, or for the CPU slots how many there are."""
        names = self._names(kind)
        if kind == "cpu":
            return f"all {len(names)} CPU slots are taken (workers.cpu_slots)"
        return "; ".join(f"{name} is held by {_holder(self._folder.read(_place(kind, name)))}" for name in names)

    def places(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of the leases that there are. Raises UsageError where workers.gpus is wrong."""
        return tuple(f"cpu-{number}" for number in range(self._cpu_slots)) if kind == "cpu" else self.gpus.names

    def _names(self, kind: Kind) -> tuple[str, ...]:
        names = self.places(kind)
        if names:
            return names
        raise NoGpuError(
            f"workers.gpus: this needs a GPU, and there is none: {self.gpus.why}. See what there is with nvidia-smi "
            "-L, and name it with workers.gpus=[UUID] (or workers.gpus=null for all)"
        )

    def _lock(self, place: str) -> tuple[int, ...]:
        """Lock ``place``; inside a process that holds it already, a place of the same name inside it.

        Return the descriptors that hold it, none where it is held.
        """
        outer: tuple[int, ...] = ()
        for mark, number in self._marks:
            fd = self._folder.lock(place)
            if fd is not None:
                return (fd, *outer)
            if self._folder.read(place).get("mark") != mark:
                continue  # this one is about another GPU
            inherited = int(number) if number.isdecimal() else -1
            if inherited > 2 and self._folder.is_file_of(inherited, place):
                outer = (*outer, inherited)  # passed on: an orphan of ours then holds the outer one, too
            place += ".inside"
        fd = self._folder.lock(place)
        return () if fd is None else (fd, *outer)


class Wait:
    """One wait for a lease: how long until the next look, and who holds it, said now and then.

    ``deadline``: when it ends at the latest, on the clock of `process_tree.now`.
    """

    def __init__(self, leases: Leases, kind: Kind, deadline: float = math.inf) -> None:
        self._leases = leases
        self._kind: Kind = kind
        self._start = now()
        self._deadline = deadline
        self._what = "a GPU" if kind == "gpu" else "a CPU slot"
        self._pause = _FIRST_PAUSE
        self._word = _FIRST_WORD
        self._wanted = leases.want(kind)

    def pause(self) -> float:
        """Return the seconds until the next look. Raises OutOfTime where there is to be none."""
        at = now()
        waited, left = at - self._start, self._deadline - at
        if left <= 0:
            raise OutOfTime(
                f"budget.seconds is over, after {waited:.0f} s of waiting for {self._what}: "
                f"{self._leases.held_by(self._kind)}"
            )
        if waited >= self._word:
            self._word *= _RARER
            log.info("waiting for %s for %.0f s: %s", self._what, waited, self._leases.held_by(self._kind))
        pause = self._pause
        self._pause = min(pause * 1.5, _LONGEST_PAUSE)
        return min(pause, left)

    def close(self) -> None:
        """Say that nobody waits here any more."""
        os.close(self._wanted)


def _place(kind: Kind, name: str) -> str:
    """Return the lock's name; a number is a GPU of this machine, should the folder be shared by several."""
    local = kind == "cpu" or name.startswith("index:")
    return f"{name}@{socket.gethostname()}" if local else name


def _holder(said: Mapping[str, object]) -> str:
    """Say who a holder is. What stands in a shared file may be anybody's: nothing but plain letters is shown of it."""
    pid, since = said.get("pid"), said.get("since")
    if not isinstance(pid, int):
        return "a process that does not say who it is"
    when = ""
    if isinstance(since, (int, float)):
        with contextlib.suppress(ValueError, OverflowError, OSError):
            when = time.strftime(" since %H:%M:%S", time.localtime(since))
    user, host, folder = (
        "".join(letter for letter in str(said.get(key, "?"))[:200] if letter.isprintable())
        for key in ("user", "host", "folder")
    )
    return f"process {pid} of {user} on {host}{when} ({folder}), or by what it started"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user without a name (a container's)
        return str(os.getuid())
