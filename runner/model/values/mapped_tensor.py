"""The elements of a recorded tensor where they lie in its file: memory-mapped, so that large ones cost no copy.

The wire format is that of https://protobuf.dev/programming-guides/encoding. This module also runs in workers under
older interpreters (Python 3.8, onnx 1.13, numpy 1).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from runner.model.values.tensor_bytes import BITS

# number of the field raw_data of TensorProto
_RAW_DATA = 9
_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
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
        start = at
        key, at = _varint(data, at)
        wire, length = key & 7, 0
        if wire == _VARINT:
            _, at = _varint(data, at)
        elif wire == _DELIMITED:
            length, at = _varint(data, at)
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if wire == _EIGHT_BYTES else 4
        else:
            raise ValueError("no field of a message")
        at += length
        if at > len(data):
            raise ValueError("cut off")
        if key == _RAW_DATA << 3 | _DELIMITED:
            # of a field that is given twice the last one counts
            raw = memoryview(data)[at - length : at]
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


def _varint(data: Any, at: int) -> tuple[int, int]:
    """Return the number that stands at a place, and where it ends. Raises ValueError if there is none."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
    raise ValueError("cut off")
