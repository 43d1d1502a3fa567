"""Recorded values that stay in the memory of the worker which computed them, until somebody asks for them.

A check that is fed with no values asks for a few of them at the end, for the answer: most are never written. What no
worker holds any more, or one that is busy, is computed again, as any value that is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.model.values.recorded import TensorFile
from runner.workers.pool import Pool


@dataclass(eq=False)
class HeldValues:
    """``limit``: bytes that a worker holds at most. ``bytes``: those that it holds."""

    pool: Pool
    limit: int
    bytes: int = field(default=0, init=False)
    _worker: int = field(default=0, init=False)
    _places: set[Path] = field(default_factory=set, init=False)

    def __len__(self) -> int:
        return len(self._places)

    def add(self, file: TensorFile, worker: int) -> None:
        """Take a value that a worker holds, told by the number of its process.

        Pieces are recorded one after the other: where another worker answers, the one before it is gone.
        """
        if worker != self._worker:
            self._places.clear()
            self._worker, self.bytes = worker, 0
        self._places.add(file.place)
        self.bytes += file.size

    def let_go(self) -> None:
        """Have nothing held any more; what is asked for after that is computed again."""
        if self._places:
            self._places.clear()
            self.bytes = 0
            self.pool.call("write_held", {"paths": [], "let_go": True}, confirm=False, process=self._worker)

    def write(self, files: Sequence[TensorFile], timeout: float) -> bool:
        """Write these files, as far as they are held; whether all of them are there then."""
        held = [file for file in files if file.place in self._places]
        if held:
            args = {"paths": [str(file.place) for file in held]}
            self.pool.call("write_held", args, timeout=timeout, confirm=False, process=self._worker)
        self._places.difference_update(file.place for file in held)
        self.bytes -= sum(file.size for file in held)
        return all(file.packed is not None or file.place.exists() for file in files)
