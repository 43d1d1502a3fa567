"""The element types of ONNX: how each is stored and named by the runtimes, its limits, how its NaN and Inf look."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, UP045
from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

STRING = 8


@dataclass(frozen=True)
class ElementType:
    """One ``onnx.TensorProto.DataType``.

    ``name``: as in ONNX Runtime's ``tensor(name)`` and, where numpy lacks it, as ml_dtypes calls it. ``storage``: a
    numpy dtype of the same width (uint8 where several elements share a byte). ``bits``: of one element. ``native``:
    numpy has the type itself.
    """

    number: int
    name: str
    numpy_name: str
    storage: str
    bits: int
    native: bool

    def bytes(self, count: int) -> int:
        """Return how many bytes ``count`` elements take; sub-byte elements are packed."""
        return (count * self.bits + 7) // 8


_ROWS = [
    (1, "float", "float32", "<f4", 32, True),
    (2, "uint8", "uint8", "u1", 8, True),
    (3, "int8", "int8", "i1", 8, True),
    (4, "uint16", "uint16", "<u2", 16, True),
    (5, "int16", "int16", "<i2", 16, True),
    (6, "int32", "int32", "<i4", 32, True),
    (7, "int64", "int64", "<i8", 64, True),
    (8, "string", "object", "O", 0, True),
    (9, "bool", "bool", "?", 8, True),
    (10, "float16", "float16", "<f2", 16, True),
    (11, "double", "float64", "<f8", 64, True),
    (12, "uint32", "uint32", "<u4", 32, True),
    (13, "uint64", "uint64", "<u8", 64, True),
    (14, "complex64", "complex64", "<c8", 64, True),
    (15, "complex128", "complex128", "<c16", 128, True),
    (16, "bfloat16", "bfloat16", "<u2", 16, False),
    (17, "float8e4m3fn", "float8_e4m3fn", "u1", 8, False),
    (18, "float8e4m3fnuz", "float8_e4m3fnuz", "u1", 8, False),
    (19, "float8e5m2", "float8_e5m2", "u1", 8, False),
    (20, "float8e5m2fnuz", "float8_e5m2fnuz", "u1", 8, False),
    (21, "uint4", "uint4", "u1", 4, False),
    (22, "int4", "int4", "u1", 4, False),
    (23, "float4e2m1", "float4_e2m1fn", "u1", 4, False),
    (24, "float8e8m0", "float8_e8m0fnu", "u1", 8, False),
    (25, "uint2", "uint2", "u1", 2, False),
    (26, "int2", "int2", "u1", 2, False),
]
BY_NUMBER = {row[0]: ElementType(*row) for row in _ROWS}
BY_NAME = {kind.name: kind for kind in BY_NUMBER.values()}
# names that numpy, ml_dtypes and the custom dtypes of onnx < 1.19 have
BY_NUMPY = {kind.numpy_name: kind for kind in BY_NUMBER.values() if kind.number != STRING}
BY_NUMPY.update({"e4m3fn": BY_NUMBER[17], "e4m3fnuz": BY_NUMBER[18], "e5m2": BY_NUMBER[19], "e5m2fnuz": BY_NUMBER[20]})
BY_NUMPY.update({"float4_e2m1": BY_NUMBER[23], "float4e2m1": BY_NUMBER[23], "float8_e8m0": BY_NUMBER[24]})


class FloatFormat(NamedTuple):
    """A float type. ``short``: as precisions are called. ``digits``: binary digits of a number, the first one included.

    ``largest`` and ``least``: the largest finite number, and the least that is not zero.
    """

    short: str
    digits: int
    largest: float
    least: float


FLOATS = {
    1: FloatFormat("fp32", 24, 3.4028234663852886e38, 2.0**-149),
    10: FloatFormat("fp16", 11, 65504.0, 2.0**-24),
    11: FloatFormat("fp64", 53, sys.float_info.max, 2.0**-1074),
    16: FloatFormat("bf16", 8, 3.3895313892515355e38, 2.0**-133),
    17: FloatFormat("fp8e4m3fn", 4, 448.0, 2.0**-9),
    18: FloatFormat("fp8e4m3fnuz", 4, 240.0, 2.0**-10),
    19: FloatFormat("fp8e5m2", 3, 57344.0, 2.0**-16),
    20: FloatFormat("fp8e5m2fnuz", 3, 57344.0, 2.0**-17),
    23: FloatFormat("fp4e2m1", 2, 6.0, 0.5),
    24: FloatFormat("fp8e8m0", 1, 2.0**127, 2.0**-127),
    27: FloatFormat("fp6e2m3", 4, 7.5, 0.125),
    28: FloatFormat("fp6e3m2", 3, 28.0, 0.0625),
}
COMPUTED_IN = frozenset({1, 10, 11, 16})
"""The float types that ONNX's operators compute in: float32, float16, float64, bfloat16."""
# complex numbers have the limits of their two parts
FLOATS.update({14: FLOATS[1], 15: FLOATS[11]})
_ONLY_POSITIVE = 24  # powers of two, without a sign
BOOL = 9


def is_integer(dtype: int) -> bool:
    """Whether a type holds whole numbers only (bool included)."""
    return dtype in BY_NUMBER and dtype not in FLOATS and dtype != STRING


def limits_of(dtype: int) -> Optional[Tuple[float, float]]:
    """Return the least and the greatest finite number that a type holds (ints for integers); None for strings."""
    if is_integer(dtype):
        kind = BY_NUMBER[dtype]
        bits = 1 if dtype == BOOL else kind.bits
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.name.startswith("int") else (0, (1 << bits) - 1)
    if dtype not in FLOATS:
        return None
    return FLOATS[dtype].least if dtype == _ONLY_POSITIVE else -FLOATS[dtype].largest, FLOATS[dtype].largest


_CHUNK = 1 << 22
# NaN of the 8-bit types that have no Inf: its bits, where the sign does not matter without it
_NAN_ONLY = {17: (0x7F, 0x7F), 18: (0xFF, 0x80), 20: (0xFF, 0x80), 24: (0xFF, 0xFF)}


def finiteness(raw: Any, kind: ElementType) -> Tuple[bool, bool]:
    """Return (all elements are finite, any is NaN) of little-endian bytes, in chunks: no second copy is made."""
    finite, nan = True, False
    if kind.number in FLOATS and kind.bits >= 8:
        flat = np.frombuffer(raw, dtype=kind.storage)
        for start in range(0, flat.size, _CHUNK):
            chunk = flat[start : start + _CHUNK]
            if kind.number in _NAN_ONLY:
                mask, bits = _NAN_ONLY[kind.number]
                chunk = np.where(chunk & mask == bits, np.float16("nan"), np.float16(0))
            elif kind.number == 16:  # the upper half of a float
                chunk = (chunk.astype("<u4") << 16).view("<f4")
            elif kind.number == 19:  # the upper half of a float16
                chunk = (chunk.astype("<u2") << 8).view("<f2")
            finite = finite and bool(np.isfinite(chunk).all())
            nan = nan or bool(not finite and np.isnan(chunk).any())
    return finite, nan


def pack(values: Any, bits: int) -> Any:
    """Pack integers (one per byte, two's complement) into bytes, the first element in the low bits."""
    per = 8 // bits
    flat = values.reshape(-1).astype(np.uint8) & ((1 << bits) - 1)
    padded = np.zeros((flat.size + per - 1) // per * per, np.uint8)
    padded[: flat.size] = flat
    packed = np.zeros(padded.size // per, np.uint8)
    for place in range(per):
        packed |= padded[place::per] << (bits * place)
    return packed


def unpack(raw: Any, bits: int, count: int, signed: bool) -> Any:
    """Undo ``pack``: one element a byte, int8 if ``signed`` else uint8."""
    per = 8 // bits
    packed = np.frombuffer(raw, np.uint8)
    flat = np.empty(packed.size * per, np.uint8)
    for place in range(per):
        flat[place::per] = (packed >> (bits * place)) & ((1 << bits) - 1)
    flat = flat[:count]
    if not signed:
        return flat
    sign = 1 << (bits - 1)
    return ((flat ^ sign).astype(np.int16) - sign).astype(np.int8)
