"""Elements of tensors: their bytes, the ranges of their types, and where they lie in a file.

How a tensor's elements lie in memory: bits per element, raw little-endian bytes, plausibility of sizes.

The ONNX specification (``onnx.proto``, message TensorProto) says which field holds which dtype and how sub-byte types
are packed.
Dtypes are plain numbers, so that a model with a dtype newer than the installed onnx still passes through.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from runner.model.values import dtypes, wire
from runner.model.values.dtypes import is_integer, limits_of

STRING = dtypes.STRING
# bits of one element, by onnx.TensorProto.DataType; strings have no fixed size; no runtime has FLOAT6E2M3, FLOAT6E3M2
BITS = {**{number: kind.bits for number, kind in dtypes.BY_NUMBER.items() if number != STRING}, 27: 6, 28: 6}
# (typed field, numpy dtype of one stored entry); all others are in int32_data
_FIELDS = {
    1: ("float_data", "<f4"),
    6: ("int32_data", "<i4"),
    7: ("int64_data", "<i8"),
    11: ("double_data", "<f8"),
    12: ("uint64_data", "<u4"),
    13: ("uint64_data", "<u8"),
    14: ("float_data", "<f4"),
    15: ("double_data", "<f8"),
}
_SIX_BITS = (27, 28)
_MOST_DIGITS = 20


def is_external(tensor: TensorProto) -> bool:
    """Whether the elements lie in a file of their own."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def elements(dims: Iterable[int]) -> int:
    """Return the number of elements. Raises ValueError for a negative dimension."""
    dims = list(dims)
    if min(dims, default=0) < 0:
        raise ValueError(f"negative dimension in {dims}")
    return math.prod(dims)


def byte_size(dtype: int, dims: Iterable[int]) -> int | None:
    """Return the bytes that the elements take (sub-byte types packed), or None where the dtype does not fix it."""
    count = elements(dims)
    bits = BITS.get(dtype)
    return None if bits is None else (count * bits + 7) // 8


def raw_bytes(tensor: TensorProto) -> bytes | None:
    """Return the elements of an inline tensor as raw little-endian bytes, or None where they have no such form."""
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    dtype = tensor.data_type
    if dtype not in BITS or dtype in _SIX_BITS:
        return None
    if dtype in _FIELDS:
        field, entry = _FIELDS[dtype]
        return np.asarray(getattr(tensor, field), dtype=entry).tobytes()
    stored = np.asarray(tensor.int32_data, dtype=np.int64)
    return stored.astype("<u2" if BITS[dtype] == 16 else "u1").tobytes()


def size_problem(tensor: TensorProto) -> str | None:
    """Say what is wrong with the amount of data in an inline tensor, or return None."""
    dims = list(tensor.dims)
    try:
        count = elements(dims)
    except ValueError as error:
        return str(error)
    if tensor.data_type == 0:
        return "has no element type"
    if tensor.data_type == STRING:
        have = len(tensor.string_data)
        return None if have == count else f"{dims} needs {count} strings, has {have}"
    wanted, raw = byte_size(tensor.data_type, dims), raw_bytes(tensor)
    if wanted is None or raw is None or len(raw) == wanted:
        return None
    return f"{dims} of dtype {dtype_name(tensor.data_type)} needs {wanted} bytes, has {len(raw)}"


def dtype_name(dtype: int) -> str:
    """Return the ONNX name of a dtype, or its number where the installed onnx does not know it."""
    try:
        return str(onnx.TensorProto.DataType.Name(dtype))
    except ValueError:
        return str(dtype)


def set_raw(tensor: TensorProto, data: bytes | None) -> None:
    """Replace the elements by raw bytes; None leaves the tensor without data (its dims and dtype stay)."""
    for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data"):
        tensor.ClearField(field)
    tensor.ClearField("raw_data")
    tensor.ClearField("data_location")
    if data is not None:
        tensor.raw_data = data


def set_reference(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Make the tensor refer to bytes of a file beside the model."""
    set_raw(tensor, None)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def reference(tensor: TensorProto) -> tuple[str, int, int | None]:
    """Return (location, offset, length or None) of an external tensor.

    Raises ValueError for entries that are no text, no number or negative.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    for text in (*entries, *entries.values()):
        if isinstance(text, bytes):  # what protobuf hands out for it
            raise ValueError(f"external data with an entry that is not UTF-8 text ({text!r})")
    location = entries.get("location", "")
    if not location:
        raise ValueError("external data without a location")
    offset = _whole(entries, "offset")
    return location, offset or 0, _whole(entries, "length")


def _whole(entries: Mapping[str, str], key: str) -> int | None:
    text = entries.get(key, "")
    if not text:
        return None
    # more digits than these are more bytes than any file has, and slow to read
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"external data with {key}={text!r}: it must be a number of bytes")
    return int(text)


# Ranges of element types: which values do not fit, and clipping to the range.

Array = np.ndarray[Any, Any]


def range_of(dtype: int) -> tuple[float, float] | None:
    """Return the least and the largest finite number of an ONNX type; None for booleans, and for what is no number."""
    ends = limits_of(dtype)
    if ends is None or dtype == TensorProto.BOOL:
        return None
    return min(ends[0], 0), ends[1]


def beyond(array: Array, dtype: int) -> Array:
    """Return which elements an ONNX type cannot hold, as booleans.

    The ends of an integer type are no numbers beyond those of another one: they stand for as far as it goes.
    """
    ends = range_of(dtype)
    found = np.zeros(array.shape, bool)
    if ends is None or array.dtype.kind in "OSUbc":
        return found
    least, largest = ends
    if array.dtype.kind in "iu":
        own = np.iinfo(array.dtype)
        if largest < own.max:
            found |= array > largest
        if least > own.min:
            found |= array < least
        if is_integer(dtype):
            found &= (array != own.max) & ((array != own.min) | (own.min == 0))
        return found
    wide = array.astype(np.float64)
    if is_integer(dtype):
        return ~((wide > least - 1) & (wide < largest + 1))  # NaN and Inf are beyond as well
    return np.isfinite(wide) & ((wide > largest) | (wide < least))


def clipped(array: Array, dtype: int) -> Array:
    """Return numbers with those beyond the range of an ONNX type as its least and largest ones."""
    ends = range_of(dtype)
    if ends is None or array.dtype.kind in "OSUbc":
        return array
    least, largest = ends
    if array.dtype.kind in "iu":
        own = np.iinfo(array.dtype)
        return np.clip(array, max(least, own.min), min(largest, own.max)).astype(array.dtype)
    wide = array.astype(np.float64)
    if is_integer(dtype):
        # the largest int64 has no float64: the next one would wrap
        top = float(largest) if int(float(largest)) == largest else float(np.nextafter(float(largest), 0))
        return np.clip(np.nan_to_num(wide), least, top)
    return np.where(beyond(array, dtype), np.clip(wide, least, largest), wide)


# The elements of a recorded tensor where they lie in its file: memory-mapped, so that large ones cost no copy.
#
# This module also runs in workers under older interpreters (Python 3.8, onnx 1.13, numpy 1).

# number of the field raw_data of TensorProto
_RAW_DATA = 9
_SMALL = 1 << 20
"""A smaller file is read: a map costs a system call and a file handle that stays open."""


def content(path: Path) -> Any:
    """Return what a file holds, as bytes or a map that cannot be written. Raises OSError."""
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size < _SMALL:
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def split(data: Any) -> tuple[TensorProto, Any]:
    """Return a serialized tensor without its raw data, and that: a view of ``data``, or None where it has none.

    Raises ValueError for what is no TensorProto.
    """
    rest, raw, at = bytearray(), None, 0
    while at < len(data):
        start, (number, kind, body, at) = at, wire.field(data, at)
        if at > len(data):
            raise ValueError("cut off")
        if (number, kind) == (_RAW_DATA, wire.BYTES):
            raw = memoryview(data)[body:at]  # of a field that is given twice the last one counts
        else:
            rest += data[start:at]
    tensor = TensorProto()
    try:
        tensor.ParseFromString(bytes(rest))
    except Exception as error:  # the class that protobuf raises differs between its versions
        raise ValueError(str(error)) from error
    return tensor, raw


def array_of(tensor: TensorProto, raw: Any) -> Any:
    """Return a view of raw data as an array; None where its elements do not lie there as numpy has them."""
    bits = BITS.get(tensor.data_type, 0)
    if raw is None or not bits or bits % 8:
        return None
    # what onnx makes of no elements tells the type that it takes for them: before 1.19 that is not of the same width
    kind = numpy_helper.to_array(TensorProto(data_type=tensor.data_type, dims=[0], raw_data=b"")).dtype
    if kind.itemsize * 8 != bits:
        return None
    return np.frombuffer(raw, kind).reshape(tuple(tensor.dims))


def write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that appears whole or not at all. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
