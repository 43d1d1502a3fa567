"""The elements of a recorded tensor where they lie in its file: memory-mapped, so that large ones cost no copy.

This module also runs in workers under older interpreters (Python 3.8, onnx 1.13, numpy 1).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from runner.model.values import wire
from runner.model.values.tensor_bytes import BITS

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
