"""Parsing a large model file without its weights: they stay where they are, and each tensor says where that is.

A file of 1.9 GB is not to be in memory, let alone twice: as bytes and as messages. So the file is walked, field by
field, and what is parsed has in place of each large tensor's bytes a reference to them, as external data of the model's
own file (the numbers of fields: see onnx.proto).

Whatever is strange (damaged, or hostile) is parsed whole, and so ends as any model file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from runner.model.files.weights import OWN_FILE, chunks
from runner.model.graph import scopes
from runner.model.values import tensor_bytes, wire

LARGE_FILE = 32 << 20
"""Bytes of a model file from which on its weights stay in it; smaller ones are parsed whole."""
_LEFT_FROM = 4096  # more than stays in the structure of a model
_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _SPARSE, _FUNCTION, _TENSOR = range(7)
# the fields that lead to tensors
_BELOW = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _FUNCTION: {7: _NODE},
}
# the fields whose content is a tensor's raw bytes, with the types that have their elements there
_DTYPE, _EXTERNAL_DATA, _LOCATION = 2, 13, 14
_PAYLOADS = {9: frozenset(tensor_bytes.BITS), 4: frozenset({1, 14}), 10: frozenset({11, 15})}
_DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
# a list of numbers or strings may be a field each: it is not walked through
_MOST_FIELDS = {_TENSOR: 64, _ATTRIBUTE: 64}
_DEEPEST = 100  # protobuf's own limit
# fields of a whole file; a model of a million nodes has fewer, and each takes about a microsecond
_MOST_STEPS = 4_000_000
_BUFFER = 1 << 16


@dataclass(frozen=True)
class _Walk:
    """One walk through a file. ``left``: places of bytes that were left there; ``steps``: those that it may take."""

    file: BinaryIO
    left: list[int] = field(default_factory=list)
    steps: Iterator[int] = field(default_factory=lambda: iter(range(_MOST_STEPS)))


class _ManyFields(Exception):  # noqa: N818
    """The message has too many fields."""


def parse(path: Path) -> ModelProto:
    """Return the model of a file; a large one without its large tensors' bytes.

    Raises OSError, and DecodeError (or what else protobuf raises) for a file that holds no model.
    """
    model = parse_without_weights(path) if path.stat().st_size > LARGE_FILE else None
    return model or ModelProto.FromString(path.read_bytes())


def parse_without_weights(path: Path) -> ModelProto | None:
    """Return the model of a file without its large tensors' bytes; None where it must be parsed whole.

    Raises OSError.
    """
    try:
        with path.open("rb", buffering=_BUFFER) as file:
            walk = _Walk(file)
            pieces = _structure(walk, _MODEL, 0, path.stat().st_size)
        model = ModelProto.FromString(b"".join(pieces))
    except (DecodeError, ValueError):
        return None
    own = [one for one in (*scopes.initializers(model), *scopes.inline_tensors(model)) if is_own(one)]
    # a tensor that nobody would look at, or one that is put together from two, is none of ours
    return model if len(own) == len(walk.left) and all(map(_is_sound, own)) else None


def is_own(tensor: TensorProto) -> bool:
    """Whether the elements lie in the model's own file."""
    if not tensor_bytes.is_external(tensor):
        return False
    return any(entry.key == "location" and entry.value == OWN_FILE for entry in tensor.external_data)


def take_in(tensor: TensorProto, path: Path) -> None:
    """Read the elements that ``parse`` has left in the file at ``path`` into the tensor."""
    _, offset, length = tensor_bytes.reference(tensor)
    tensor_bytes.set_raw(tensor, b"".join(chunks(path, offset, length or 0)))


def _is_sound(tensor: TensorProto) -> bool:
    """Whether a tensor refers to as many bytes as it must have, and has no others."""
    try:
        _, _, length = tensor_bytes.reference(tensor)
        wanted = tensor_bytes.byte_size(tensor.data_type, tensor.dims)
    except ValueError:
        return False
    held = {field.name for field, _ in tensor.ListFields()}
    return length == wanted and len(tensor.external_data) == 3 and held.isdisjoint(_DATA)


def _structure(walk: _Walk, message: int, start: int, end: int, depth: int = 0) -> list[bytes]:
    """Return the content of a message without the bytes of large tensors, whose places are noted."""
    if depth > _DEEPEST:
        raise ValueError("not as a model file is")
    below = _BELOW[message]
    pieces, copied = [], start
    for number, kind, at, body, stop in _fields(walk, start, end, _MOST_FIELDS.get(message)):
        if kind != wire.BYTES or stop - body < _LEFT_FROM or number not in below:
            continue
        try:
            if below[number] == _TENSOR:
                inside = _tensor(walk, body, stop)
            else:
                inside = _structure(walk, below[number], body, stop, depth + 1)
        except _ManyFields:
            continue
        pieces += [_read(walk.file, copied, at), wire.delimited(number, sum(map(len, inside))), *inside]
        copied = stop
    return [*pieces, _read(walk.file, copied, end)]


def _tensor(walk: _Walk, start: int, end: int) -> list[bytes]:
    """Return the content of a tensor, with a reference in place of its bytes if they are many."""
    fields = list(_fields(walk, start, end, _MOST_FIELDS[_TENSOR]))
    numbers = {
        number: wire.read_number(_read(walk.file, body, stop), 0)[0]
        for number, kind, _, body, stop in fields
        if kind == wire.NUMBER
    }
    outside = numbers.get(_LOCATION) or any(number == _EXTERNAL_DATA for number, *_ in fields)
    dtype = None if outside else numbers.get(_DTYPE)
    pieces, copied = [], start
    for number, kind, at, body, stop in fields:
        if kind == wire.BYTES and stop - body >= _LEFT_FROM and dtype in _PAYLOADS.get(number, ()):
            reference = TensorProto()
            tensor_bytes.set_reference(reference, OWN_FILE, body, stop - body)
            pieces += [_read(walk.file, copied, at), reference.SerializeToString()]
            copied = stop
            walk.left.append(body)
    return [*pieces, _read(walk.file, copied, end)]


def _fields(walk: _Walk, at: int, end: int, most: int | None) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, wire type, start, start of the content and end of the fields of a message."""
    count = 0
    while at < end:
        count += 1
        if most and count > most:
            raise _ManyFields
        if next(walk.steps, None) is None:
            raise ValueError("not as a model file is")
        walk.file.seek(at)
        number, kind, body, stop = wire.field(walk.file.read(wire.LONGEST_HEAD), 0)
        body, stop = at + body, at + stop
        if stop > end or not number:
            raise ValueError("not as a model file is")
        yield number, kind, at, body, stop
        at = stop


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    data = file.read(end - start)
    if len(data) < end - start:
        raise ValueError("not as a model file is")
    return data
