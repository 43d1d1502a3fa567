"""Writing large files whole: the one file with all large weights, streamed piece by piece, and models."""

from __future__ import annotations

import ctypes
import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

# the name by which candidates refer to it: a plain name beside the model is the only form that checkers and runtimes
# all accept
WEIGHTS = "weights.bin"
# what the widest vector loads want, for readers that map the file
_ALIGNMENT = 64
# of Linux: fallocate(2)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class WeightsWriter:
    """Writes a weights file; it appears under its name only when all of it is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".part")
        self._file: BinaryIO | None = None
        self._regions: dict[tuple[Path, int, int] | None, int] = {}

    def __enter__(self) -> WeightsWriter:
        self._file = self._temporary.open("wb")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        assert self._file is not None
        self._file.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)

    def add(
        self, pieces: Iterable[bytes], length: int, digest: Any = None, region: tuple[Path, int, int] | None = None
    ) -> int:
        """Append ``length`` bytes and return their offset. ``digest`` (of hashlib) is fed with them as well.

        ``region``: where they come from; one that was added before (tied weights) is not read again.
        """
        assert self._file is not None
        if region in self._regions:
            return self._regions[region]
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        offset = self._file.tell()
        for piece in pieces:
            self._file.write(piece)
            if digest is not None:
                digest.update(piece)
        assert self._file.tell() - offset == length
        if region is not None:
            self._regions[region] = offset
        return offset


def free_all_but(path: Path, kept: Iterable[tuple[int, int]]) -> None:
    """Give back the room on the disk of all bytes of a file but those of the ranges ``kept`` (start, end).

    The others stay where they are, and those that went read as zeros. Where the system or the file system cannot do
    that, the file stays as it is; so it does where it is a link, or has another name: it may be somebody else's.
    """
    with suppress(OSError, AttributeError):
        fallocate = ctypes.CDLL(None).fallocate
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status, at = os.fstat(descriptor), 0
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                return
            for start, end in sorted([*kept, (status.st_size, status.st_size)]):
                if start > at:
                    fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, at, start - at)
                at = max(at, end)
        finally:
            os.close(descriptor)


def write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that appears whole or not at all. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
