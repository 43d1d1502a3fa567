"""The file that a process prints to, kept within bounds while it runs."""

from __future__ import annotations

import os

HEAD_BYTES = 1 << 20
TAIL_BYTES = 3 << 20
# a file may grow to this much before its middle is thrown away
_FULL_BYTES = 32 << 20


class BoundedLog:
    """An append-only descriptor whose file keeps the head and the tail of what is written to it.

    The writers share the descriptor (a file and not a pipe, so that a grandchild that keeps it open blocks nobody);
    ``check`` is called now and then while they run.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._head: bytes | None = None
        self._dropped = 0

    def reset(self) -> None:
        """Forget all that was written."""
        self._head, self._dropped = None, 0
        if os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, 0)

    def check(self) -> None:
        """Throw away the middle of a file that has grown too large."""
        size = os.fstat(self.fd).st_size
        if size <= _FULL_BYTES:
            return
        if self._head is None:
            self._head = os.pread(self.fd, HEAD_BYTES, 0)
            self._dropped -= len(self._head)
        self._dropped += size
        os.ftruncate(self.fd, 0)

    def text(self) -> bytes:
        """Return the head and the tail, with a line between that says how much is left out."""
        size = os.fstat(self.fd).st_size
        head, skipped = self._head, self._dropped
        if head is None and size <= HEAD_BYTES + TAIL_BYTES:
            return os.pread(self.fd, size, 0)
        if head is None:
            head = os.pread(self.fd, HEAD_BYTES, 0)
            skipped = -len(head)
        start = max(0, size - TAIL_BYTES)
        tail = os.pread(self.fd, TAIL_BYTES, start)
        return head + b"\n[... %d bytes left out ...]\n" % (skipped + start) + tail

    def trim(self) -> None:
        """Rewrite the file as ``text`` if something was or is to be left out; call it once the writers are gone."""
        if self._head is None and os.fstat(self.fd).st_size <= HEAD_BYTES + TAIL_BYTES:
            return
        text = self.text()
        os.ftruncate(self.fd, 0)
        view = memoryview(text)
        while view:
            view = view[os.write(self.fd, view) :]
        self._head, self._dropped = None, 0
