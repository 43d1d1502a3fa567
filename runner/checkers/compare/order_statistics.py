"""Quantiles of more numbers than fit in memory, exactly: radix selection on their bits.

The bits of non-negative float64 numbers, taken for integers, are in the order of the numbers (IEEE 754, 5.10; NaN come
last, as numpy sorts them). A pass counts the numbers by 16 bits, which tells the bits of the one that is looked for;
after four passes, or as soon as few have those bits, it is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Blocks = Callable[[], Iterator[Array]]
"""Yields the numbers in blocks of float64, none of them negative; the same at each call."""

_DIGIT, _ALL = 16, 64


def median(numbers: Blocks, count: int, most: int) -> float:
    """Return what ``np.median`` does; ``most``: so many numbers may be held at once."""
    return float(np.median(at_ranks(numbers, count, ((count - 1) // 2, count // 2), most)))


def quantile(numbers: Blocks, count: int, share: float, most: int) -> float:
    """Return what ``np.quantile`` does: between two neighbors on a line; ``most``: as above."""
    place = (count - 1) * share
    low = min(math.floor(place), count - 1)
    pair = at_ranks(numbers, count, (low, min(low + 1, count - 1)), most)
    return float(np.quantile(pair, place - low))


def at_ranks(numbers: Blocks, count: int, ranks: Sequence[int], most: int) -> list[float]:
    """Return the numbers that stand at these places when all ``count`` are sorted."""
    places, left, bits, prefix = list(ranks), count, 0, 0
    while left > most and bits < _ALL:
        bits += _DIGIT
        counts = np.zeros(1 << _DIGIT, np.int64)
        for keys in _keys(numbers, prefix, bits - _DIGIT):
            digits = (keys >> np.uint64(_ALL - bits)) & np.uint64((1 << _DIGIT) - 1)
            counts += np.bincount(digits.astype(np.intp), minlength=counts.size)
        ends = np.cumsum(counts)
        digit, *others = np.searchsorted(ends, places, side="right").tolist()
        if any(other != digit for other in others):
            return [at_ranks(numbers, count, (rank,), most)[0] for rank in ranks]
        before, left = int(ends[digit] - counts[digit]), int(counts[digit])
        places, prefix = [place - before for place in places], prefix << _DIGIT | digit
    if left > most:  # all that are left are equal
        return [float(np.array(prefix, np.uint64).view(np.float64))] * len(places)
    found = np.concatenate(list(_keys(numbers, prefix, bits)))
    found.partition(places)
    return [float(one) for one in found[places].view(np.float64)]


def _keys(numbers: Blocks, prefix: int, bits: int) -> Iterator[Array]:
    """Yield, as integers, the numbers whose first ``bits`` bits are ``prefix``."""
    for block in numbers():
        keys = block.view(np.uint64)
        yield keys[keys >> np.uint64(_ALL - bits) == np.uint64(prefix)] if bits else keys
