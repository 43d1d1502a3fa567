"""Files: read where others may have put a pipe or a device in their place, and written so that no reader sees half."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.text import hide_environment

MOST_BYTES = 8 << 20
"""Of a file that is only shown, or of which the beginning tells."""
_LARGEST_JSON = 1 << 28


def read_plain(path: Path, most: int = MOST_BYTES, start: int = 0) -> bytes:
    """Return the first bytes from ``start`` of a plain file; nothing where there is none, or it is something else."""
    try:
        # a pipe is not waited for
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        os.lseek(descriptor, start, os.SEEK_SET)
        pieces, left = [], most
        while left > 0 and (piece := os.read(descriptor, left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def is_plain(path: Path) -> bool:
    """Return whether a plain file lies there, or a link to one."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def json_of(path: Path) -> Any:
    """Return what a JSON file holds; None where there is none, or none that can be read."""
    try:
        return json.loads(read_plain(path, _LARGEST_JSON).decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines; what is none, such as a line that a kill has cut, is passed over."""
    for line in read_plain(path, _LARGEST_JSON).splitlines():
        try:
            held = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(held, dict):
            yield held


def append_json(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line to a file of JSON lines. Raises OSError; then nothing is added."""
    line = json.dumps(record).encode() + b"\n"
    with path.open("ab+", buffering=0) as file:
        size = file.tell()
        # a process that was killed may have left half a line; it must not swallow this one
        whole = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
        write_line(file.fileno(), line if whole else b"\n" + line)


def write_line(descriptor: int, line: bytes) -> None:
    """Write a line or nothing. Raises OSError where the disk is full."""
    size, rest = os.fstat(descriptor).st_size, memoryview(line)
    try:
        while rest:  # a signal, or a file system over a network, may cut a write short
            if not (written := os.write(descriptor, rest)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = rest[written:]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file does; None where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, as hex. Raises OSError for one that cannot be read."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` lies in ``folder``, links and ``..`` followed (of ``path`` itself the link is meant)."""
    try:
        return folder.resolve() in (path.parent.resolve() / path.name).parents and path.name != ".."
    except (OSError, ValueError, RuntimeError):
        return False


def write_text(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) to ``path`` so that a kill at any moment leaves the old file or the whole new one.

    The folder must exist. Values of the environment that settings took stay out of the file. Raises OSError where it
    cannot be written; then nothing is left behind.
    """
    with written_whole(path) as part, part.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write(hide_environment(text))


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield the path of a file to make, which takes the place of ``path`` once it is whole: see `write_text`."""
    part = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.part")
    try:
        yield part
        descriptor = os.open(part, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # of a descriptor the system names none
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last: a file that was made or replaced there is found after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
