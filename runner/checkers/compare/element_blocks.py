"""Two tensors side by side, a block of elements at a time: temporaries stay below 64 MB, whatever the tensors' size."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK = 1 << 18
"""Elements of a block. About 15 temporaries of 8 bytes (complex numbers: 16) an element live at once."""


def blocks(flat: Array, block: int = BLOCK) -> Iterator[Array]:
    """Yield the parts of a flat array, in order, without a copy."""
    for start in range(0, flat.size, block):
        yield flat[start : start + block]


def real(array: Array) -> Array:
    """Return a block as numbers that numpy computes with: float64, or complex128 for complex numbers."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@dataclass(frozen=True)
class NonFiniteCounts:
    """How many elements are NaN (or Inf) in either tensor, and in one but not the same in the other."""

    either: int = 0
    only_target: int = 0
    only_reference: int = 0

    def more(self, mine: Array, theirs: Array, same: Array) -> NonFiniteCounts:
        """Count a block, given where each is and where both are the same."""
        either, only_target, only_reference = map(np.count_nonzero, (mine | theirs, mine & ~same, theirs & ~same))
        return NonFiniteCounts(
            self.either + int(either), self.only_target + int(only_target), self.only_reference + int(only_reference)
        )


@dataclass(frozen=True)
class Survey:
    """What a first pass finds. ``kept``: elements that are finite in both; ``largest``: of those, by absolute value."""

    nan: NonFiniteCounts
    inf: NonFiniteCounts
    kept: int
    largest: tuple[float, float]


@dataclass(frozen=True)
class Pair:
    """Two tensors of the same shape and type, flat. ``block``: elements of a block."""

    target: Array
    reference: Array
    block: int = BLOCK

    def stored(self) -> Iterator[tuple[Array, Array]]:
        """Yield the blocks as they are stored."""
        yield from zip(blocks(self.target, self.block), blocks(self.reference, self.block), strict=True)

    def kept(self) -> Iterator[tuple[Array, Array]]:
        """Yield, as real (complex) numbers, the elements that are finite in both."""
        for mine, theirs in self.stored():
            a, b = real(mine), real(theirs)
            finite = np.isfinite(a) & np.isfinite(b)
            if not finite.all():
                a, b = a[finite], b[finite]
            if a.size:
                yield a, b

    def survey(self) -> Survey:
        """Look at all elements once."""
        nan, inf, kept, largest = NonFiniteCounts(), NonFiniteCounts(), 0, (0.0, 0.0)
        for mine, theirs in self.stored():
            a, b = real(mine), real(theirs)
            finite = np.isfinite(a) & np.isfinite(b)
            if not finite.all():
                nan_a, nan_b, inf_a, inf_b = np.isnan(a), np.isnan(b), np.isinf(a), np.isinf(b)
                nan = nan.more(nan_a, nan_b, nan_a & nan_b)
                inf = inf.more(inf_a, inf_b, inf_a & inf_b & (a == b))
                a, b = a[finite], b[finite]
            if a.size:
                kept += a.size
                largest = max(largest[0], float(np.abs(a).max())), max(largest[1], float(np.abs(b).max()))
        return Survey(nan, inf, kept, largest)


class Angle:
    """The cosine of two vectors that come in blocks. ``largest``: of each, by absolute value."""

    def __init__(self, largest: tuple[float, float]) -> None:
        # of a complex number of two large parts it is infinite
        self._largest = tuple(min(one, sys.float_info.max) for one in largest)
        self._dot = self._target = self._reference = 0.0

    def more(self, a: Array, b: Array) -> None:
        """Take a block of both."""
        if all(self._largest):
            # scaled first, so that no product overflows
            a, b = a / self._largest[0], b / self._largest[1]
            self._dot += float(np.real(np.vdot(a, b)))
            self._target += _square(a)
            self._reference += _square(b)

    @property
    def cosine(self) -> float:
        """The cosine; of two vectors of zeros 1, of one of them 0."""
        if not all(self._largest):
            return 0.0 if any(self._largest) else 1.0
        return max(-1.0, min(1.0, self._dot / (math.sqrt(self._target) * math.sqrt(self._reference))))


def _square(a: Array) -> float:
    return float(a.real.dot(a.real) + a.imag.dot(a.imag)) if a.dtype.kind == "c" else float(a.dot(a))
