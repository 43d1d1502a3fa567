"""What is in the elements of a weight, seen piece by piece: a model's weights are never in memory all at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.model.values import dtypes, tensor_bytes

HALF_LARGEST = dtypes.FLOATS[TensorProto.FLOAT16].largest
HALF_VANISHES = dtypes.FLOATS[TensorProto.FLOAT16].least / 2
"""The largest number that float16 rounds to zero."""
_PIECE = 4 << 20
# what a slice has for "to the end", and less one for "to the beginning": no number that anything is computed with
_TO_THE_END = 2**63 - 1
# how the elements of a float type lie (complex numbers are two): unsigned integers, bits without the sign, of the
# fraction, and the numpy type
_LAYOUTS = {
    TensorProto.FLOAT: ("<u4", 0x7FFFFFFF, 0x007FFFFF, "<f4"),
    TensorProto.COMPLEX64: ("<u4", 0x7FFFFFFF, 0x007FFFFF, "<f4"),
    TensorProto.DOUBLE: ("<u8", 0x7FFFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF, "<f8"),
    TensorProto.COMPLEX128: ("<u8", 0x7FFFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF, "<f8"),
    TensorProto.FLOAT16: ("<u2", 0x7FFF, 0x03FF, "<f2"),
    TensorProto.BFLOAT16: ("<u2", 0x7FFF, 0x007F, ""),
}


@dataclass(frozen=True)
class WeightValues:
    """What is known of the elements of one tensor.

    ``digest``: of its bytes. ``subnormal``: elements below the least normal number of the type that are not zero;
    ``beyond_half``: finite ones that float16 has no number for. ``least``, ``greatest``: of all numbers, infinite ones
    included, but not those that mean "to the end" in int64 (None: there are none, or the type is not looked into);
    ``beyond``: the same of those that are infinite or that float16 has no number for.
    """

    nan: int = 0
    infinite: int = 0
    subnormal: int = 0
    beyond_half: int = 0
    least: float | int | None = None
    greatest: float | int | None = None
    beyond: tuple[float, float] | None = None
    digest: str = ""

    @property
    def magnitude(self) -> float | None:
        """The largest absolute value."""
        return None if self.least is None or self.greatest is None else max(abs(self.least), abs(self.greatest))

    def __add__(self, more: WeightValues) -> WeightValues:
        """Return what is known of both together, but for their bytes."""
        ranges = [one for one in (self.beyond, more.beyond) if one]
        return WeightValues(
            self.nan + more.nan,
            self.infinite + more.infinite,
            self.subnormal + more.subnormal,
            self.beyond_half + more.beyond_half,
            min((one for one in (self.least, more.least) if one is not None), default=None),
            max((one for one in (self.greatest, more.greatest) if one is not None), default=None),
            (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None,
        )


def inline_pieces(tensor: TensorProto) -> Iterator[Any]:
    """Yield the bytes of a tensor that has them itself, in pieces; nothing where they have no such form."""
    raw = memoryview(tensor_bytes.raw_bytes(tensor) or b"")
    yield from (raw[at : at + _PIECE] for at in range(0, len(raw), _PIECE))


def values_in(dtype: int, pieces: Iterable[Any]) -> WeightValues:
    """Return what is in a tensor of this type whose little-endian bytes come in pieces of whole elements."""
    digest, found = hashlib.blake2b(digest_size=16), WeightValues()
    for piece in pieces:
        digest.update(piece)
        if dtype in _LAYOUTS:
            found += _floats(piece, dtype)
        elif dtype == TensorProto.INT64:
            whole = np.frombuffer(piece, "<i8")
            whole = whole[(whole > -_TO_THE_END) & (whole < _TO_THE_END)]
            if whole.size:
                found += WeightValues(least=int(whole.min()), greatest=int(whole.max()))
        elif dtype in dtypes.FLOATS and dtype in dtypes.BY_NUMBER:
            found += WeightValues(nan=int(dtypes.finiteness(piece, dtypes.BY_NUMBER[dtype])[1]))
    return replace(found, digest=digest.hexdigest())


def _floats(piece: Any, dtype: int) -> WeightValues:
    unsigned, magnitude, fraction, kind = _LAYOUTS[dtype]
    bits = np.frombuffer(piece, unsigned)
    # zero minus one is the largest of all
    subnormal = int(np.count_nonzero((bits & magnitude) - bits.dtype.type(1) < fraction))
    numbers = np.frombuffer(piece, kind) if kind else (bits.astype("<u4") << 16).view("<f4")
    nan = 0
    if np.isnan(numbers.min()):  # as rare as it is cheap to see
        whole, numbers = numbers.size, numbers[~np.isnan(numbers)]
        nan = whole - numbers.size
        if not numbers.size:
            return WeightValues(nan)
    least, greatest = float(numbers.min()), float(numbers.max())
    found = WeightValues(nan, 0, subnormal, 0, least, greatest)
    if least >= -HALF_LARGEST and greatest <= HALF_LARGEST:
        return found
    beyond = numbers[np.abs(numbers) > HALF_LARGEST]
    infinite = int(np.count_nonzero(np.isinf(beyond)))
    ends = float(beyond.min()), float(beyond.max())
    return replace(found, infinite=infinite, beyond_half=beyond.size - infinite, beyond=ends)
