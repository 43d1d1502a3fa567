"""A trial: which elements are chosen. Equal sets are equal trials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby


@dataclass(frozen=True)
class Trial:
    """A set of element ids (positions in the subject's ordered list of elements)."""

    elements: frozenset[int]

    @staticmethod
    def of(elements: Iterable[int]) -> Trial:
        """Return the trial of these elements."""
        return Trial(frozenset(elements))

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.elements))

    def __contains__(self, element: object) -> bool:
        return element in self.elements

    @cached_property
    def ranges(self) -> str:
        """The set as text, runs folded: ``0-3,7,9-12``. The same set always gives the same text."""
        runs = []
        for _, run in groupby(enumerate(sorted(self.elements)), key=lambda pair: pair[1] - pair[0]):
            ids = [element for _, element in run]
            runs.append(str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}")
        return ",".join(runs)

    @cached_property
    def key(self) -> str:
        """A short stable digest of the set, fit for file names and the journal."""
        return hashlib.sha256(self.ranges.encode()).hexdigest()[:24]

    @staticmethod
    def parse(ranges: str) -> Trial:
        """Read the text that ``ranges`` wrote."""
        elements: set[int] = set()
        for part in ranges.split(",") if ranges else []:
            first, _, last = part.partition("-")
            elements.update(range(int(first), int(last or first) + 1))
        return Trial(frozenset(elements))
