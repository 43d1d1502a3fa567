"""A folder of lock files that all users of a machine share, and none of them can turn against another."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import UsageError

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
        error: OSError | None = None
        for _ in range(_TRIES):
            try:
                # not with O_CREAT: the kernel then refuses other users' files in such a folder (protected_regular)
                return self._checked(os.open(path, os.O_RDWR | _CAREFUL), path)
            except FileNotFoundError:
                pass
            except PermissionError as refused:
                error = refused  # its owner is about to open it to all; a lock needs no more than to read
                try:
                    return self._checked(os.open(path, os.O_RDONLY | _CAREFUL), path)
                except OSError:
                    time.sleep(_PAUSE_SECONDS)
                    continue
            except OSError as wrong:
                raise self._unusable(f"{path.name} is no plain file ({wrong.strerror})") from wrong
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CAREFUL, 0o666)
            except FileExistsError:
                continue
            except OSError as wrong:
                error = wrong
                time.sleep(_PAUSE_SECONDS)  # the folder's owner may be about to open it to all
                continue
            os.fchmod(fd, 0o666)  # whatever the umask: others lock it too
            return fd
        raise self._unusable(f"{path.name}: {error.strerror if error else 'it vanishes again and again'}")

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
