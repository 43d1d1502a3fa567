"""Where two sequences have the same items in the same order: their longest common block, then what lies beside it.

Pattern matching as Ratcliff and Metzener do it (Dr. Dobb's Journal, July 1988), and as difflib does, which looks at all
pairs of equal items again for every block. Here these are runs from the start, which blocks found later make shorter:
longest first, so that the next run which is still whole is the next block of the part that it lies in.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

import numpy as np

MOST_ALIKE = 5_000_000
"""Pairs of equal items up to which sequences are aligned: the work grows with them."""
_AT_ONCE = 4096

Run = tuple[int, int, int]
"""Length, negative, so that the longest goes first; the places where it starts in either sequence."""


def aligned(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of equal items in their longest common blocks; nothing where that would take too long."""
    # between two of these lies a part that blocks are still looked for in
    blocks: list[Run] = [(0, 0, 0), (0, len(ours), len(theirs))]
    waiting: list[Run] = []
    for longest in chain(_runs(ours, theirs), [(0, 0, 0)]):
        heapq.heappush(waiting, longest)
        while waiting and waiting[0] <= longest:
            run = heapq.heappop(waiting)
            left = list(_left(run, blocks))
            if left == [run]:
                blocks.insert(bisect_right(blocks, run[1], key=_first), run)
            else:
                for part in left:
                    heapq.heappush(waiting, part)
    for size, first, second in blocks:
        yield from ((first + at, second + at) for at in range(-size))


def _first(run: Run) -> int:
    return run[1]


def _left(run: Run, blocks: Sequence[Run]) -> Iterator[Run]:
    """Yield what of a run lies between the blocks, in both sequences."""
    size, first, second = run
    at = 0
    while at < -size:
        place = bisect_right(blocks, first + at, key=_first)
        (before, one, other), (after, one_next, other_next) = blocks[place - 1], blocks[place]
        start = max(at, one - before - first, other - before - second)
        end = min(-size, one_next - first, other_next - second)
        if start < end:
            yield start - end, first + start, second + start
        at = one_next - after - first


def _runs(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Iterator[Run]:
    """Yield the longest runs of equal items, longest first, of these those that start first."""
    places: dict[Hashable, list[int]] = {}
    for at, item in enumerate(theirs):
        places.setdefault(item, []).append(at)
    found = [(at, places[item]) for at, item in enumerate(ours) if item in places]
    if not 0 < sum(len(others) for _, others in found) <= MOST_ALIKE:
        return
    first = np.repeat([at for at, _ in found], [len(others) for _, others in found])
    pairs = first - np.fromiter(chain.from_iterable(others for _, others in found), np.int64, len(first))
    # the diagonal before the place: pairs in a row on one diagonal become numbers in a row
    pairs += len(theirs)
    pairs <<= 32
    pairs += first
    del first
    pairs.sort()
    starts = np.flatnonzero(np.diff(pairs, prepend=pairs[0] - 2) != 1)
    sizes, pairs = -np.diff(starts, append=len(pairs)), pairs[starts]
    first = pairs & 0xFFFFFFFF
    second = first - (pairs >> 32) + len(theirs)
    order = np.lexsort((second, first, sizes))
    for at in range(0, len(order), _AT_ONCE):
        some = order[at : at + _AT_ONCE]
        yield from zip(sizes[some].tolist(), first[some].tolist(), second[some].tolist(), strict=True)
