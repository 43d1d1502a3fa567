"""Writing large files whole: the one file with all large weights, streamed piece by piece, and models."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

# the name by which candidates refer to it: a plain name beside the model is the only form that checkers and runtimes
# all accept
WEIGHTS = "weights.bin"
# what the widest vector loads want, for readers that map the file
_ALIGNMENT = 64


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
