"""Sequences, optionals and maps in files: ``SequenceProto``, ``OptionalProto`` and ``MapProto``, without protobuf.

See ``tensors`` for why; the field numbers are those of ``onnx-data.proto`` and ``onnx-ml.proto``.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, PTH123
from __future__ import annotations

import os
from io import BufferedReader
from typing import Any, Callable, Dict, Iterator, List, Tuple

from runner.backends.errors import StageError
from runner.backends.values import tensor_proto
from runner.backends.values.value_structure import Structure, Value, leaves
from runner.model.values.dtypes import STRING

# in SequenceProto and OptionalProto alike: field number of a value of each form; the element type is one less
_FIELDS = {"tensor": 3, "sequence": 5, "map": 6, "optional": 7}
_ELEMENT_TYPES = {"tensor": 1, "sequence": 3, "map": 4, "optional": 5}
_KEYS, _STRING_KEYS, _VALUES = 3, 4, 5


def write(value: Any, structure: Structure | None, name: str, path: str) -> Dict[str, Any]:
    """Write a value (``structure`` None: a tensor) and return the JSON form of ``TensorFile``."""
    if structure is None:
        return tensor_proto.write(value, name, path)
    tensor_proto.write_pieces(_pieces(value, structure, name), path)
    return describe(value, structure, name, path)


def describe(value: Any, structure: Structure | None, name: str, path: str) -> Dict[str, Any]:
    """Return the JSON form of ``TensorFile`` for a value that lies at ``path``."""
    if structure is None:
        return tensor_proto.describe(value, name, path)
    parts = [tensor_proto.describe(tensor, "", "") for tensor in leaves(value)]
    return {
        "name": name,
        "path": path,
        "dtype": 0,
        "shape": [],
        "finite": all(part["finite"] for part in parts),
        "nan": any(part["nan"] for part in parts),
        "structure": structure,
        "elements": [part["shape"] for part in parts],
    }


def _pieces(value: Any, structure: Structure, name: str) -> List[Any]:
    """Return the message of a value in pieces: the bytes of large tensors are not copied."""
    form = structure[0]
    if form == "tensor":
        return tensor_proto.pieces(value, name)
    head = tensor_proto.field(1, name.encode(errors="surrogateescape"))
    if form == "map":
        return [head, *_map(value, structure)]
    inner = structure[1]
    pieces = [head + b"\x10" + tensor_proto.number(_ELEMENT_TYPES[inner[0]])]
    items = value if form == "sequence" else [] if value is None else [value]
    for item in items:
        pieces += _embedded(_FIELDS[inner[0]], _pieces(item, inner, ""))
    return pieces


def _map(value: Dict[Any, Any], structure: Structure) -> Iterator[Any]:
    key_type, inner = structure[1:]
    yield b"\x10" + tensor_proto.number(key_type)
    for key in value:
        if key_type == STRING:
            yield tensor_proto.field(_STRING_KEYS, str(key).encode(errors="surrogateescape"))
        else:
            yield bytes([_KEYS << 3]) + tensor_proto.number(int(key))
    yield from _embedded(_VALUES, _pieces(list(value.values()), ("sequence", inner), ""))


def _embedded(number: int, pieces: List[Any]) -> List[Any]:
    size = sum(len(piece) for piece in pieces)
    return [bytes([number << 3 | 2]) + tensor_proto.number(size), *pieces]


def read(path: str, structure: Structure | None) -> Value:
    """Read a value of this structure (None: a tensor). Raises StageError (setup, BadTensorFile) if there is none."""
    if structure is None or structure[0] == "tensor":
        return tensor_proto.read(path)
    try:
        with open(path, "rb") as file:
            return _READERS[structure[0]](file, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, OverflowError) as error:
        message = f"{path}: no {structure[0]} that can be read: {error}"
        raise StageError("setup", "BadTensorFile", message) from error


def _fields(file: BufferedReader, end: int) -> Iterator[Tuple[int, int]]:
    """Yield (field number, where its content ends) of the message that ends at ``end``; numbers are skipped."""
    while file.tell() < end:
        key = tensor_proto.varint(file)
        if key & 7 == 2:
            length = tensor_proto.varint(file)
            stop = file.tell() + length
            if length < 0 or stop > end:
                raise ValueError("cut off")
            yield key >> 3, stop
            file.seek(stop)
        elif key & 7 == 0:
            here = file.tell()
            yield key >> 3, here
            if file.tell() == here:
                tensor_proto.varint(file)
        else:
            raise ValueError("none of ONNX's messages")


def _items(file: BufferedReader, end: int) -> Iterator[Value]:
    for number, stop in _fields(file, end):
        for form, field in _FIELDS.items():
            if field == number:
                yield _READERS[form](file, stop)
        if number == 4:
            raise ValueError("sparse tensors are not known here")


def _sequence(file: BufferedReader, end: int) -> Value:
    return list(_items(file, end))


def _optional(file: BufferedReader, end: int) -> Value:
    return next(_items(file, end), None)


def _read_map(file: BufferedReader, end: int) -> Value:
    keys: List[Any] = []
    values: Any = []
    for number, stop in _fields(file, end):
        if number == _KEYS and stop == file.tell():
            keys.append(tensor_proto.varint(file))
        elif number == _KEYS:
            while file.tell() < stop:
                keys.append(tensor_proto.varint(file))
        elif number == _STRING_KEYS:
            keys.append(file.read(stop - file.tell()).decode(errors="surrogateescape"))
        elif number == _VALUES:
            values = _sequence(file, stop)
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
    return dict(zip(keys, values))  # noqa: B905 - equally long; for 3.8


_READERS: Dict[str, Callable[[BufferedReader, int], Value]] = {
    "tensor": tensor_proto.parse,
    "sequence": _sequence,
    "optional": _optional,
    "map": _read_map,
}
