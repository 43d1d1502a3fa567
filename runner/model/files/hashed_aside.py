"""A digest that a thread of its own computes: of gigabytes it takes as long as to read them, or to write them."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from runner.model.errors import ModelError
from runner.model.files.external_data import chunks

_MOST_WAITING = 4
"""Pieces that are held for the thread at most; whoever has more waits for it."""


class HashedAside:
    """The SHA-256 of all that it was updated with, in that order. Its thread ends with the ``with`` statement."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> HashedAside:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def update(self, piece: bytes) -> None:
        """Hash a piece, which nobody may change from then on, after those before it."""
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(self._sha.update, piece))

    def update_from(self, path: Path, length: int) -> None:
        """Hash the first bytes of a file, which the thread reads, after what came before."""
        self._waiting.append(self._thread.submit(self._read, path, length))

    def hexdigest(self) -> str:
        """Wait for all pieces, and return the digest. Raises ModelError for a file that could not be read."""
        while self._waiting:
            self._waiting.popleft().result()
        return self._sha.hexdigest()

    def _read(self, path: Path, length: int) -> None:
        try:
            for piece in chunks(path, 0, length):
                self._sha.update(piece)
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
