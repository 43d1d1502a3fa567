"""Two sequences side by side: what stands at the same place among the same things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

MOST_ALIKE = 5_000_000
"""Pairs of equal items up to which sequences are aligned: the work grows with them."""


def aligned(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of equal items in their longest common blocks; nothing where that would take too long.

    Pattern matching as Ratcliff and Metzener do it (Dr. Dobb's Journal, July 1988), which the standard library has.
    """
    counts = Counter(theirs)
    if sum(counts[item] for item in ours) > MOST_ALIKE:
        return
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        for at in range(block.size):
            yield block.a + at, block.b + at
