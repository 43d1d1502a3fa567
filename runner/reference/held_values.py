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
    """``limit``: bytes that one worker holds at most. ``bytes``: those that all of them hold."""

    pool: Pool
    limit: int
    bytes: int = field(default=0, init=False)
    _holders: dict[Path, int] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, file: TensorFile, worker: int) -> None:
        """Take a value that a worker holds, told by the number of its process."""
        self._holders[file.place] = worker
        self.bytes += file.size

    def write(self, files: Sequence[TensorFile], timeout: float) -> bool:
        """Write these files, as far as they are held; whether all of them are there then."""
        held: dict[int, list[str]] = {}
        for file in files:
            if worker := self._holders.pop(file.place, 0):
                held.setdefault(worker, []).append(str(file.place))
                self.bytes -= file.size
        for worker, places in held.items():
            self.pool.call("write_held", {"paths": places}, timeout=timeout, confirm=False, process=worker)
        return all(file.packed is not None or file.place.exists() for file in files)
