"""Tensors in files: a serialized ``onnx.TensorProto`` each, read and written without protobuf.

So a tensor of several GiB needs no second copy, and an older onnx package does not have to know a newer element type.
The wire format is that of https://protobuf.dev/programming-guides/encoding, the field numbers are those of
``onnx.proto``.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PTH105, PTH123
from __future__ import annotations

import math
import os
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Dict, List, Tuple

import numpy as np

from runner.backends.errors import StageError
from runner.model.values.dtypes import BY_NUMBER, STRING, ElementType, finiteness

_DIMS, _TYPE, _STRINGS, _NAME, _RAW, _LOCATION = 1, 2, 6, 8, 9, 14
# typed fields: number -> (wire dtype if the elements are fixed width, the type they are cast to)
_TYPED = {4: "<f4", 5: "", 7: "", 10: "<f8", 11: ""}


@dataclass(frozen=True)
class Tensor:
    """A tensor as it lies in memory.

    ``raw``: little-endian bytes (uint8 array), sub-byte types packed; ``strings``: instead of it for strings.
    """

    kind: ElementType
    shape: Tuple[int, ...]
    raw: Any = None
    strings: Tuple[bytes, ...] = ()

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def array(self) -> Any:
        """Return the numpy array; types that numpy lacks come as bits (sub-byte ones packed and flat)."""
        if self.kind.number == STRING:
            decoded = np.empty(len(self.strings), object)
            decoded[:] = [text.decode(errors="surrogateescape") for text in self.strings]
            return decoded.reshape(self.shape)
        flat = self.raw.view(self.kind.storage)
        return flat if self.kind.bits < 8 else flat.reshape(self.shape)


def varint(file: BufferedReader) -> int:
    """Read a number of the wire format. Raises ValueError if the file ends in it."""
    value = shift = 0
    while True:
        byte = file.read(1)
        if not byte or shift > 63:
            raise ValueError("cut off")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return _signed(value)
        shift += 7


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def read(path: str) -> Tensor:
    """Read a TensorProto file. Raises StageError (setup, BadTensorFile) if it is none or keeps its data elsewhere."""
    try:
        with open(path, "rb") as file:
            return parse(file, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, OverflowError) as error:
        raise StageError("setup", "BadTensorFile", f"{path}: not a tensor file that can be read: {error}") from error


def parse(file: BufferedReader, end: int) -> Tensor:
    """Read the TensorProto that ends at ``end`` of a file. Raises ValueError or OverflowError if it is none."""
    fields = _Fields()
    while file.tell() < end:
        fields.take(file, end)
    return fields.tensor()


class _Fields:
    """The fields of a TensorProto, as they are met in a file."""

    def __init__(self) -> None:
        self.dims: List[int] = []
        self.number = 0
        self.raw: Any = None
        self.strings: List[bytes] = []
        self.typed: List[Any] = []

    def take(self, file: BufferedReader, end: int) -> None:
        """Read the next field of a message that ends at ``end``."""
        key = varint(file)
        field, wire = key >> 3, key & 7
        if wire == 0:
            self._whole(field, varint(file))
        elif wire == 2:
            length = varint(file)
            if not 0 <= length <= end - file.tell():
                raise ValueError("cut off")
            if field == _RAW:
                # straight into aligned memory: the only copy that is made of a large tensor
                self.raw = np.empty(length, np.uint8)
                file.readinto(self.raw.data)
            else:
                self._bytes(field, file.read(length))
        elif wire in (1, 5):
            chunk = file.read(8 if wire == 1 else 4)
            if field in _TYPED:
                self.typed.append(np.frombuffer(chunk, _TYPED[field] or "u1"))
        else:
            raise ValueError("no TensorProto")

    def _whole(self, field: int, value: int) -> None:
        if field == _DIMS:
            self.dims.append(value)
        elif field == _TYPE:
            self.number = value
        elif field == _LOCATION and value == 1:
            raise ValueError("its data lies in another file")
        elif field in _TYPED:
            self.typed.append(np.array([value]))

    def _bytes(self, field: int, chunk: bytes) -> None:
        if field == _STRINGS:
            self.strings.append(chunk)
        elif field == _DIMS:
            self.dims.extend(_varints(chunk))
        elif field in _TYPED:
            self.typed.append(np.frombuffer(chunk, _TYPED[field]) if _TYPED[field] else np.array(_varints(chunk)))

    def tensor(self) -> Tensor:
        """Return the tensor. Raises ValueError if the fields do not fit each other."""
        kind = BY_NUMBER.get(self.number)
        if kind is None:
            raise ValueError(f"unknown element type {self.number}")
        if min(self.dims, default=0) < 0:
            raise ValueError(f"negative dimension in {self.dims}")
        if kind.number == STRING:
            tensor = Tensor(kind, tuple(self.dims), None, tuple(self.strings))
            if len(self.strings) != tensor.count:
                raise ValueError(f"{len(self.strings)} strings for shape {self.dims}")
            return tensor
        raw = self.raw
        if raw is None:
            values = np.concatenate(self.typed) if self.typed else np.empty(0, np.int64)
            # int32_data and its like hold bit patterns for the small float types; complex ones are pairs
            part = {14: "<f4", 15: "<f8", 10: "<u2"}.get(kind.number, kind.storage)
            raw = values.astype(part).view(np.uint8)
        tensor = Tensor(kind, tuple(self.dims), raw)
        if raw.size != kind.bytes(tensor.count):
            raise ValueError(f"{raw.size} bytes for shape {self.dims} of {kind.name}")
        return tensor


def _varints(data: bytes) -> List[int]:
    values = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(_signed(value))
            value = shift = 0
    return values


def number(value: int) -> bytes:
    """Return a number in the wire format."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field(place: int, content: bytes) -> bytes:
    """Return a length-delimited field; ``place``: its number, below 16."""
    return bytes([place << 3 | 2]) + number(len(content)) + content


def pieces(tensor: Tensor, name: str) -> List[Any]:
    """Return a TensorProto in pieces; the large one is the memory of the tensor itself."""
    header = b"".join(b"\x08" + number(size) for size in tensor.shape) + b"\x10" + number(tensor.kind.number)
    header += b"".join(field(_STRINGS, text) for text in tensor.strings)
    header += field(_NAME, name.encode(errors="surrogateescape"))
    if tensor.kind.number == STRING:
        return [header]
    header += b"\x4a" + number(tensor.raw.size)
    return [header, memoryview(tensor.raw)] if tensor.raw.size else [header]


def write_pieces(content: List[Any], path: str) -> None:
    """Write a file that appears only when it is complete."""
    # two processes may be asked for the same file
    partial = f"{path}.{os.getpid()}.part"
    with open(partial, "wb") as file:
        for piece in content:
            file.write(piece)
    os.replace(partial, path)


def write(tensor: Tensor, name: str, path: str) -> Dict[str, Any]:
    """Write a tensor and return the JSON form of ``TensorFile``. The file appears only when it is complete."""
    write_pieces(pieces(tensor, name), path)
    return describe(tensor, name, path)


def describe(tensor: Tensor, name: str, path: str) -> Dict[str, Any]:
    """Return the JSON form of ``TensorFile`` for a tensor that lies at ``path``."""
    finite, nan = (True, False) if tensor.kind.number == STRING else finiteness(tensor.raw, tensor.kind)
    return {
        "name": name,
        "path": path,
        "dtype": tensor.kind.number,
        "shape": list(tensor.shape),
        "finite": finite,
        "nan": nan,
    }
