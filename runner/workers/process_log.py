"""The file that a process prints to, kept within bounds while it runs."""

from __future__ import annotations

import ctypes
import os

HEAD_BYTES = 1 << 20
TAIL_BYTES = 3 << 20
# a file may take this much disk before its middle is given back
_FULL_BYTES = 32 << 20
# FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE of Linux
_PUNCH = 0x01 | 0x02


class BoundedLog:
    """An append-only descriptor whose file keeps the head and the tail of what is written to it.

    The writers share the descriptor (a file and not a pipe, so that a grandchild that keeps it open blocks nobody).
    While they run, ``check`` gives the disk space of the middle back, without ever touching the end that they write to;
    where the system cannot do that, the file is shortened when they are gone.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._freed = HEAD_BYTES

    def reset(self) -> None:
        """Forget all that was written."""
        self._freed = HEAD_BYTES
        if os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, 0)

    def check(self) -> None:
        """Give back the space of the middle if the file has grown much since the last time."""
        end = os.fstat(self.fd).st_size - TAIL_BYTES
        if end - self._freed < _FULL_BYTES:
            return
        fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
        if fallocate is not None:
            fallocate(self.fd, _PUNCH, ctypes.c_int64(self._freed), ctypes.c_int64(end - self._freed))
        self._freed = end

    def text(self) -> bytes:
        """Return the head and the tail, with a line between that says how much is left out."""
        size = os.fstat(self.fd).st_size
        left_out = size - HEAD_BYTES - TAIL_BYTES
        if left_out <= 0:
            return os.pread(self.fd, size, 0)
        head, tail = os.pread(self.fd, HEAD_BYTES, 0), os.pread(self.fd, TAIL_BYTES, size - TAIL_BYTES)
        return head + b"\n[... %d bytes left out ...]\n" % left_out + tail

    def trim(self) -> None:
        """Rewrite the file as ``text`` if something is left out; call it once the writers are gone."""
        if os.fstat(self.fd).st_size <= HEAD_BYTES + TAIL_BYTES:
            return
        view = memoryview(self.text())
        os.ftruncate(self.fd, 0)
        while view:
            view = view[os.write(self.fd, view) :]
