"""Values in files without protobuf: tensors, sequences, optionals and maps, and what a value is made of.

So a tensor of several GiB needs no second copy, and an older onnx package does not have to know a newer element type.
The field numbers are those of ``onnx.proto``; the elements are raw data, as `runner.model.values.recorded` writes them.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH105, PTH123
from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Tuple, Union

import numpy as np

from runner.backends.errors import StageError
from runner.model.values import wire
from runner.model.values.dtypes import BY_NAME, BY_NUMBER, STRING, ElementType, finiteness

_DIMS, _TYPE, _STRINGS, _NAME, _RAW = 1, 2, 6, 8, 9


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


@contextmanager
def opened(place: str) -> Iterator[Tuple[BinaryIO, int]]:
    """Open the file of a value, and say where in it the value ends.

    ``place``: a path, or the part of a file of many values: its path, the first byte and the bytes, a NUL between them.
    Raises OSError, or ValueError where the part is not there.
    """
    path, *part = place.split("\0")
    with open(path, "rb") as file:
        end = size = os.fstat(file.fileno()).st_size
        if part:
            start = file.seek(int(part[0]))
            end = start + int(part[1])
        if end > size:
            raise ValueError("cut off")
        yield file, end


def read(place: str) -> Tensor:
    """Read a TensorProto, see `opened`. Raises StageError (setup, BadTensorFile) if it is none."""
    try:
        with opened(place) as (file, end):
            return parse(file, end)
    except (OSError, ValueError, OverflowError) as error:
        path = place.partition("\0")[0]
        raise StageError("setup", "BadTensorFile", f"{path}: not a tensor file that can be read: {error}") from error


def parse(file: BinaryIO, end: int) -> Tensor:
    """Read the TensorProto that ends at ``end`` of a file. Raises ValueError or OverflowError if it is none."""
    # the bytes of each field, once for each time that it is given
    fields: Dict[int, List[Any]] = defaultdict(list)
    at = file.tell()
    while at < end:
        file.seek(at)
        number, _, start, stop = wire.field(file.read(wire.LONGEST_HEAD), 0)
        file.seek(at + start)
        at += stop
        if at > end:
            raise ValueError("cut off")
        # straight into aligned memory: the only copy that is made of a large tensor
        chunk = np.empty(stop - start, np.uint8)
        file.readinto(chunk.data)  # type: ignore[attr-defined]
        fields[number].append(chunk)
    return _tensor(fields)


def _tensor(fields: Mapping[int, List[Any]]) -> Tensor:
    """Return the tensor. Raises ValueError if the fields do not fit each other."""
    dims, types = ([wire.read_number(chunk.tobytes(), 0)[0] for chunk in fields[place]] for place in (_DIMS, _TYPE))
    kind = BY_NUMBER.get(types[-1] if types else 0)
    if kind is None:
        raise ValueError(f"unknown element type {types[-1] if types else 0}")
    if kind.number == STRING:
        tensor = Tensor(kind, tuple(dims), None, tuple(text.tobytes() for text in fields[_STRINGS]))
        if len(tensor.strings) != tensor.count:
            raise ValueError(f"{len(tensor.strings)} strings for shape {dims}")
        return tensor
    tensor = Tensor(kind, tuple(dims), fields[_RAW][-1] if fields[_RAW] else np.empty(0, np.uint8))
    if tensor.raw.size != kind.bytes(tensor.count):
        raise ValueError(f"{tensor.raw.size} bytes for shape {dims} of {kind.name}")
    return tensor


def field(place: int, content: bytes) -> bytes:
    """Return a length-delimited field; ``place``: its number."""
    return wire.delimited(place, len(content)) + content


def pieces(tensor: Tensor, name: str) -> List[Any]:
    """Return a TensorProto in pieces; the large one is the memory of the tensor itself."""
    header = (
        b"".join(b"\x08" + wire.write_number(size) for size in tensor.shape)
        + b"\x10"
        + wire.write_number(tensor.kind.number)
    )
    header += b"".join(field(_STRINGS, text) for text in tensor.strings)
    header += field(_NAME, name.encode(errors="surrogateescape"))
    if tensor.kind.number == STRING:
        return [header]
    header += wire.delimited(_RAW, tensor.raw.size)
    return [header, memoryview(tensor.raw)] if tensor.raw.size else [header]


def write_pieces(content: List[Any], path: str) -> None:
    """Write a file that appears only when it is complete."""
    # two processes may be asked for the same file
    partial = f"{path}.{os.getpid()}.part"
    with open(partial, "wb") as file:
        for piece in content:
            file.write(piece)
    os.replace(partial, path)


# What a value is made of: a tensor, or a sequence, an optional or a map of such.
#
# A structure is a plain tuple, which JSON keeps as lists: ``("tensor", dtype)``, ``("sequence", inner)``,
# ``("optional", inner)``, ``("map", dtype of the keys, inner)``; dtypes are ``onnx.TensorProto.DataType`` numbers.

Structure = Tuple[Any, ...]
# a sequence is a list, an optional without a value None, a map a dict
Value = Union[Tensor, List[Any], Dict[Any, Any], None]  # noqa: UP007 - read when the module is

_FORMS = {"seq": "sequence", "optional": "optional"}


def parse_structure(text: str) -> Structure | None:
    """Return the structure of a type as ONNX Runtime writes it, ``seq(tensor(float))``; None for what is not known."""
    match = re.match(r"^(\w+)\((.*)\)$", text)
    if not match:
        return None
    word, rest = match.groups()
    if word == "tensor":
        return ("tensor", BY_NAME[rest].number) if rest in BY_NAME else None
    if word == "map":
        key, _, rest = rest.partition(",")
        inner = parse_structure(rest)
        return ("map", BY_NAME[key].number, inner) if key in BY_NAME and inner else None
    inner = parse_structure(rest)
    return (_FORMS[word], inner) if word in _FORMS and inner else None


def of_value(value: Value) -> Structure | None:
    """Return the structure that a value shows; None where it is empty or its parts disagree."""
    if isinstance(value, Tensor):
        return ("tensor", value.kind.number)
    if isinstance(value, list):
        inner = {of_value(item) for item in value}
        return ("sequence", inner.pop()) if len(inner) == 1 and None not in inner else None
    return None


def leaves(value: Value) -> Iterator[Tensor]:
    """Yield the tensors of a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif value is not None:
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)


def type_text(structure: Structure) -> str:
    """Return a structure as ONNX Runtime writes it."""
    form, inner = structure[0], structure[-1]
    names = {kind.number: name for name, kind in BY_NAME.items()}
    if form == "tensor":
        return f"tensor({names.get(inner, inner)})"
    if form == "map":
        return f"map({names.get(structure[1], structure[1])},{type_text(inner)})"
    return f"{'seq' if form == 'sequence' else form}({type_text(inner)})"


# Sequences, optionals and maps in files: ``SequenceProto``, ``OptionalProto`` and ``MapProto``; tensors as well.
#
# The tensors inside are written and read by `tensor_proto`, so that the onnx package need not know their element
# types.

# in SequenceProto and OptionalProto alike: the type of a value of each form
_ELEMENT_TYPES = {"tensor": 1, "sequence": 3, "map": 4, "optional": 5}
_CONTAINER_NAME = 1


def write_container(value: Any, structure: Structure | None, name: str, path: str) -> Dict[str, Any]:
    """Write a value (``structure`` None: a tensor) and return the JSON form of ``TensorFile``."""
    write_pieces(container_pieces(value, structure, name), path)
    return describe_container(value, structure, name, path)


def container_pieces(value: Any, structure: Structure | None, name: str) -> List[Any]:
    """Return the file of a value in pieces."""
    if structure is None:
        return pieces(value, name)
    head = field(_CONTAINER_NAME, name.encode(errors="surrogateescape"))
    return [head, _message(value, structure).SerializeToString()]


def describe_container(value: Any, structure: Structure | None, name: str, path: str) -> Dict[str, Any]:
    """Return the JSON form of ``TensorFile`` for a value that lies at ``path``."""
    tensors = list(leaves(value))
    ends = [(True, False) if one.kind.number == STRING else finiteness(one.raw, one.kind) for one in tensors]
    found = {"name": name, "path": path, "finite": all(one for one, _ in ends), "nan": any(nan for _, nan in ends)}
    if structure is None:
        return {**found, "dtype": value.kind.number, "shape": list(value.shape)}
    elements = [list(one.shape) for one in tensors]
    return {**found, "dtype": 0, "shape": [], "structure": structure, "elements": elements}


def _message(value: Any, structure: Structure) -> Any:
    """Return a value as the protobuf of its structure, without a name."""
    from runner.model.values.recorded import MESSAGES

    form, inner = structure[0], structure[-1]
    message = MESSAGES[form]()
    if form == "tensor":
        message.ParseFromString(b"".join(pieces(value, "")))
    elif form == "map":
        message.key_type = structure[1]
        if structure[1] == STRING:
            message.string_keys.extend(str(key).encode(errors="surrogateescape") for key in value)
        else:
            message.keys.extend(int(key) for key in value)
        message.values.CopyFrom(_message(list(value.values()), ("sequence", inner)))
    else:
        message.elem_type = _ELEMENT_TYPES[inner[0]]
        if form == "sequence":
            getattr(message, f"{inner[0]}_values").extend(_message(item, inner) for item in value)
        elif value is not None:
            getattr(message, f"{inner[0]}_value").CopyFrom(_message(value, inner))
    return message


def read_container(place: str, structure: Structure | None) -> Value:
    """Read a value of this structure (None: a tensor), see `opened`.

    Raises StageError (setup, BadTensorFile) if there is none.
    """
    if structure is None or structure[0] == "tensor":
        return read(place)
    from runner.model.values.recorded import parse, plain
    from runner.model.values.value_types import frozen

    known = frozen(structure)
    assert known is not None
    try:
        with opened(place) as (file, end):
            content = file.read(end - file.tell())
        return plain(parse(content, known), known, _tensor_of_message)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        path = place.partition("\0")[0]
        message = f"{path}: no {structure[0]} that can be read: {error}"
        raise StageError("setup", "BadTensorFile", message) from error


def _tensor_of_message(message: Any) -> Value:
    data = message.SerializeToString()
    return parse(BytesIO(data), len(data))
