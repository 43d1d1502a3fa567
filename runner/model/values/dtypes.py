"""The element types of ONNX as bytes: how each is stored, named by the runtimes, and how its NaN and Inf look."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Tuple

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

_CHUNK = 1 << 22


def finiteness(raw: Any, kind: ElementType) -> Tuple[bool, bool]:
    """Return (all elements are finite, any is NaN) of little-endian bytes, in chunks: no second copy is made."""
    if kind.number in (1, 10, 11, 14, 15):
        parts = {14: "<f4", 15: "<f8"}
        flat = np.frombuffer(raw, dtype=parts.get(kind.number, kind.storage))
        finite, nan = True, False
        for start in range(0, flat.size, _CHUNK):
            chunk = flat[start : start + _CHUNK]
            if not np.isfinite(chunk).all():
                finite = False
                if np.isnan(chunk).any():
                    nan = True
                    break
        return finite, nan
    if kind.number not in (16, 17, 18, 19, 20, 24):
        return True, False
    flat = np.frombuffer(raw, dtype=kind.storage)
    finite, nan = True, False
    for start in range(0, flat.size, _CHUNK):
        bad, nans = _patterns(flat[start : start + _CHUNK], kind.number)
        finite = finite and not bad
        nan = nan or nans
    return finite, nan


def _patterns(bits: Any, number: int) -> Tuple[bool, bool]:
    """Return (any element is not finite, any is NaN) for the float types that numpy lacks."""
    if number == 16:
        special = (bits & 0x7F80) == 0x7F80
        return bool(special.any()), bool((special & ((bits & 0x007F) != 0)).any())
    if number == 17:
        nan = (bits & 0x7F) == 0x7F
    elif number in (18, 20):
        nan = bits == 0x80
    elif number == 24:
        nan = bits == 0xFF
    else:
        special = (bits & 0x7C) == 0x7C
        return bool(special.any()), bool((special & ((bits & 0x03) != 0)).any())
    return bool(nan.any()), bool(nan.any())


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
