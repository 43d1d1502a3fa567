"""A trial: which elements are chosen. Equal sets are equal trials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, groupby

HELD = 2
"""Sets that are kept beside their text, of those used last: one of 60,000 elements takes 4 MB."""


class Trial:
    """A set of element ids (positions in the subject's ordered list of elements); it does not change.

    A search remembers every set that was tried, and each may hold thousands of elements. So one that was written down
    (``ranges``) is kept as that text only, and read back where its elements are asked for.
    """

    __slots__ = ("_elements", "_hash", "_key", "_ranges", "_size")

    def __init__(self, elements: frozenset[int]) -> None:
        self._elements: frozenset[int] | None = elements
        self._hash = hash(elements)
        self._size = len(elements)
        self._ranges: str | None = None
        self._key: str | None = None

    @staticmethod
    def of(elements: Iterable[int]) -> Trial:
        """Return the trial of these elements."""
        return Trial(frozenset(elements))

    @property
    def elements(self) -> frozenset[int]:
        """The set."""
        held = self._elements  # another thread may be writing it down
        return _read(self._ranges or "") if held is None else held

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        if self._ranges is None:
            return iter(sorted(self.elements))
        return chain.from_iterable(range(first, last + 1) for first, last in _runs(self._ranges))

    def __contains__(self, element: object) -> bool:
        return element in self.elements

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trial):
            return NotImplemented
        if self is other or self._hash != other._hash:
            return self is other
        if self._ranges is not None and other._ranges is not None:
            return self._ranges == other._ranges
        return self.elements == other.elements

    def __repr__(self) -> str:
        return f"Trial({self.ranges})"

    @property
    def ranges(self) -> str:
        """The set as text, runs folded: ``0-3,7,9-12``. The same set always gives the same text."""
        if self._ranges is None:
            self._ranges = _written(self.elements)
            self._elements = None
        return self._ranges

    @property
    def bits(self) -> int:
        """The set as a number with a bit for each element: how much two of many sets differ is told at once."""
        return sum((1 << last + 1) - (1 << first) for first, last in _runs(self.ranges))

    @property
    def key(self) -> str:
        """A short stable digest of the set, fit for file names and the journal."""
        if self._key is None:
            self._key = hashlib.sha256(self.ranges.encode()).hexdigest()[:24]
        return self._key

    @staticmethod
    def parse(ranges: str) -> Trial:
        """Read the text that ``ranges`` wrote."""
        return Trial(_read(ranges))


def size_of(ranges: str) -> int:
    """Return how many elements the text that ``ranges`` wrote stands for; the set itself is not made."""
    return sum(last + 1 - first for first, last in _runs(ranges))


def _written(elements: frozenset[int]) -> str:
    runs = []
    for _, run in groupby(enumerate(sorted(elements)), key=lambda pair: pair[1] - pair[0]):
        ids = [element for _, element in run]
        runs.append(str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}")
    return ",".join(runs)


@lru_cache(maxsize=HELD)
def _read(ranges: str) -> frozenset[int]:
    elements: set[int] = set()
    for first, last in _runs(ranges):
        elements.update(range(first, last + 1))
    return frozenset(elements)


def _runs(ranges: str) -> Iterator[tuple[int, int]]:
    for part in ranges.split(",") if ranges else []:
        first, _, last = part.partition("-")
        yield int(first), int(last or first)
