"""The three streams of a process, whatever they were given to: a pipe that nobody reads, a full device, nothing at all.

What a run has to say is in its folder; that it could not be said as well must not change how the run ends. So writing
never fails here, and what failed first is remembered for those who have nothing but their words to hand over.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any, TextIO


class Stream(io.FileIO):
    """Writes to a descriptor as far as that can be done. ``failed``: why it could not, None: it could so far."""

    failed: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write, or lose, the data; wait where whoever reads is slow."""
        while self.failed is None:
            try:
                written = super().write(data)
            except OSError as error:  # noqa: PERF203 - once at most
                self.failed = error
            else:
                if written is not None:
                    return written
                select.select([], [self], [])
        return memoryview(data).nbytes


def open_streams() -> None:
    """Open what is closed of descriptors 0 to 2, lest a file of a run gets the number, and both outputs anew."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # noqa: PERF203 - three of them
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as the interpreter does
    sys.stdout, sys.stderr = _opened(1, sys.stdout), _opened(2, sys.stderr)


def failure() -> OSError | None:
    """Return why what was said on stdout was lost, if it was; that nobody reads a pipe to its end is no failure."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    failed = raw.failed if isinstance(raw, Stream) else None
    return None if isinstance(failed, BrokenPipeError) else failed


def _opened(number: int, before: TextIO | None) -> TextIO:
    raw = Stream(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=before.errors if before else "backslashreplace",
        line_buffering=raw.isatty() or number == 2,
    )
