"""Recorded values that are not all kept: what is asked for is computed again, within a limit of bytes on the disk.

Every value was computed once, so its type, shape and whether it is finite are known. What is read beyond the piece of
the model that made it is always kept: the very same piece, fed with the very same values, gives the others again.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.errors import NotTried
from runner.model.values.recorded import TensorFile
from runner.reference.model_pieces import Piece

RunAgain = Callable[[Piece, frozenset[str], int], str | None]
"""Runs a piece and writes these tensors, so many bytes, where they lay; says why that failed, if it did."""


@dataclass(eq=False)
class ValuesOnDemand:
    """Files of values that can be computed again: no more than ``limit`` bytes of those that nobody uses.

    ``kept``: bytes of those that are there.
    """

    run: RunAgain
    limit: int
    kept: int = field(default=0, init=False)
    _pieces: dict[Path, Piece] = field(default_factory=dict, init=False)
    _sizes: dict[Path, int] = field(default_factory=dict, init=False)
    _there: dict[Path, None] = field(default_factory=dict, init=False)  # the one that was used last comes last
    _users: Counter[Path] = field(default_factory=Counter, init=False)
    # a value may be let go of at any moment, in this thread as well
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def add(self, file: TensorFile, piece: Piece) -> None:
        """Take a value that ``piece`` made; ``file.length`` tells the size of one that was not written."""
        self._pieces[file.place] = piece
        self._sizes[file.place] = file.size
        if file.length is None:
            self._arrived(file.place)
            self._make_room()

    @property
    def missing(self) -> int:
        """How many values are not there."""
        return len(self._pieces) - len(self._there)

    def of(self, values: Sequence[Mapping[str, TensorFile]]) -> tuple[dict[str, TensorFile], ...]:
        """Return values of which those that were added are computed when they are asked for."""
        return tuple({name: self._own(file) for name, file in sample.items()} for sample in values)

    def _own(self, file: TensorFile) -> TensorFile:
        size = self._sizes.get(file.place)
        return file if size is None else replace(file, length=size, recompute=self)

    def __call__(self, files: Sequence[TensorFile]) -> None:
        """Have these files there until the last of these objects is gone. Raises NotTried where that cannot be."""
        with self._lock:
            wanted: dict[Piece, list[TensorFile]] = {}
            for file in files:
                self._users[file.place] += 1
                weakref.finalize(file, self._let_go, file.place).atexit = False
                if file.place not in self._there:
                    wanted.setdefault(self._pieces[file.place], []).append(file)
                else:
                    self._there[file.place] = self._there.pop(file.place)
            for piece, missing in wanted.items():
                names = frozenset(file.name for file in missing)
                if why := self.run(piece, names, sum(self._sizes[file.place] for file in missing)):
                    raise NotTried(
                        f"the reference computed {', '.join(sorted(names))} once and cannot again ({why}): give "
                        "cut.record=all, which keeps all values"
                    )
                for place, made_by in self._pieces.items():
                    if made_by is piece and place not in self._there and place.exists():
                        self._arrived(place)
            self._make_room()

    def _arrived(self, place: Path) -> None:
        self._there[place] = None
        self.kept += self._sizes[place]

    def _let_go(self, place: Path) -> None:
        with self._lock:
            self._users[place] -= 1

    def _make_room(self) -> None:
        """Remove what was not used for the longest time, as long as there is too much."""
        for place in [place for place in self._there if self._users[place] <= 0] if self.kept > self.limit else ():
            if self.kept <= self.limit:
                break
            place.unlink(missing_ok=True)
            del self._there[place]
            self.kept -= self._sizes[place]


def for_one_check(values: Mapping[str, TensorFile]) -> dict[str, TensorFile]:
    """Return the same values as objects of their own: files that were computed for them may go when they are gone."""
    return {name: replace(file) if file.recompute else file for name, file in values.items()}
