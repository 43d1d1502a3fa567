"""Recorded values that are no tensors: a serialized SequenceProto, OptionalProto or MapProto a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onnx import MapProto, OptionalProto, SequenceProto, TensorProto

from runner.model.values import tensor_bytes
from runner.model.values.tensor_file import TensorFile, finite_of, read, to_array
from runner.model.values.value_types import Structure, leaf_dtype

Container = Any  # one of the three messages below

MESSAGES = {"tensor": TensorProto, "sequence": SequenceProto, "optional": OptionalProto, "map": MapProto}
# the field that holds a value of each form: several in a sequence, one in an optional
IN_SEQUENCE = {
    "tensor": "tensor_values",
    "sequence": "sequence_values",
    "map": "map_values",
    "optional": "optional_values",
}


def parse(data: bytes, structure: Structure) -> Container:
    """Return the message of this structure in ``data``. Raises ValueError for bytes that are none, or hold another."""
    message = MESSAGES[structure[0]]()
    try:
        message.ParseFromString(data)
    except Exception as error:  # the class that protobuf raises differs between its versions
        raise ValueError(f"no serialized {structure[0]}") from error
    for tensor in tensors(message, structure):
        if tensor_bytes.is_external(tensor):
            raise ValueError("a tensor in it refers to data outside the file")
        problem = tensor_bytes.size_problem(tensor)
        if problem:
            raise ValueError(f"a tensor in it cannot be used: {problem}")
        if tensor.data_type != leaf_dtype(structure):
            raise ValueError(f"it holds tensors of type {tensor_bytes.dtype_name(tensor.data_type)}")
    return message


def write(message: Container, structure: Structure, name: str, path: Path) -> TensorFile:
    """Write a sequence, an optional or a map under this name."""
    copy = MESSAGES[structure[0]]()
    copy.CopyFrom(message)
    copy.name = name
    Path(path).write_bytes(copy.SerializeToString())
    return describe(copy, structure, name, path)


def describe(message: Container, structure: Structure, name: str, path: Path) -> TensorFile:
    """Return what is known of a value whose file lies at ``path``."""
    found = list(tensors(message, structure))
    finite = [finite_of(tensor) for tensor in found]
    return TensorFile(
        name,
        Path(path),
        TensorProto.UNDEFINED,
        (),
        all(one for one, _ in finite),
        any(nan for _, nan in finite),
        structure,
        tuple(tuple(tensor.dims) for tensor in found),
    )


def contents(file: TensorFile) -> Any:
    """Read a value: an array, a list for a sequence, a dict for a map, and None for an optional without a value.

    Raises OSError, or ValueError for a file that holds something else.
    """
    if file.structure is None:
        return read(file)
    return plain(parse(file.content(), file.structure), file.structure)


def tensors(message: Container, structure: Structure) -> Iterator[TensorProto]:
    """Yield the tensors in a value, in order."""
    if structure[0] == "tensor":
        yield message
        return
    for item in _items(message, structure):
        yield from tensors(item, structure[-1])


def _items(message: Container, structure: Structure) -> list[Any]:
    """The values right inside. Raises ValueError where the message has values of another form."""
    form, inner = structure[0], structure[-1][0]
    if form == "map":
        items = _items(message.values, ("sequence", structure[-1]))
        if len(items) != len(_keys(message)):
            raise ValueError(f"a map of {len(_keys(message))} keys and {len(items)} values")
        return items
    others = [field for other, field in IN_SEQUENCE.items() if other != inner]
    if form == "sequence":
        if any(len(getattr(message, field)) for field in [*others, "sparse_tensor_values"]):
            raise ValueError(f"a sequence of something else than {inner} values")
        return list(getattr(message, IN_SEQUENCE[inner]))
    if any(message.HasField(field[:-1]) for field in [*others, "sparse_tensor_values"]):
        raise ValueError(f"an optional of something else than a {inner} value")
    field = IN_SEQUENCE[inner][:-1]
    return [getattr(message, field)] if message.HasField(field) else []


def _keys(message: Container) -> list[Any]:
    return list(message.keys) or [key.decode("utf-8", "surrogateescape") for key in message.string_keys]


def plain(message: Container, structure: Structure, leaf: Callable[[TensorProto], Any] = to_array) -> Any:
    """Return a message as Python's lists, dicts and None; ``leaf``: what is made of a tensor."""
    if structure[0] == "tensor":
        return leaf(message)
    items = [plain(item, structure[-1], leaf) for item in _items(message, structure)]
    if structure[0] == "map":
        return dict(zip(_keys(message), items))  # noqa: B905 - equally long
    if structure[0] == "optional":
        return items[0] if items else None
    return items
