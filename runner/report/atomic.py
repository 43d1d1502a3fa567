"""Atomic files: a reader sees the old text or the new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` so that a kill at any moment leaves the old file or the whole new one.

    The folder must exist. Raises OSError where it cannot be written; then nothing is left behind.
    """
    part = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.part")
    try:
        with part.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
