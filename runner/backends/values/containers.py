"""Sequences, optionals and maps in files: ``SequenceProto``, ``OptionalProto`` and ``MapProto``; tensors as well.

The tensors inside are written and read by `tensor_proto`, so that the onnx package need not know their element types.
"""

# runs under Python 3.8 (and so without subscripted builtins); the interpreter may lack the onnx package
# ruff: noqa: UP006, UP035, PLC0415, PTH123
from __future__ import annotations

from io import BytesIO
from typing import Any, Dict, List

from runner.backends.errors import StageError
from runner.backends.values import tensor_proto
from runner.backends.values.value_structure import Structure, Value, leaves
from runner.model.values.dtypes import STRING

# in SequenceProto and OptionalProto alike: the type of a value of each form
_ELEMENT_TYPES = {"tensor": 1, "sequence": 3, "map": 4, "optional": 5}
_NAME = 1


def write(value: Any, structure: Structure | None, name: str, path: str) -> Dict[str, Any]:
    """Write a value (``structure`` None: a tensor) and return the JSON form of ``TensorFile``."""
    tensor_proto.write_pieces(pieces(value, structure, name), path)
    return describe(value, structure, name, path)


def pieces(value: Any, structure: Structure | None, name: str) -> List[Any]:
    """Return the file of a value in pieces."""
    if structure is None:
        return tensor_proto.pieces(value, name)
    head = tensor_proto.field(_NAME, name.encode(errors="surrogateescape"))
    return [head, _message(value, structure).SerializeToString()]


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


def _message(value: Any, structure: Structure) -> Any:
    """Return a value as the protobuf of its structure, without a name."""
    from runner.model.values.sequences_and_maps import IN_SEQUENCE, MESSAGES

    form, inner = structure[0], structure[-1]
    message = MESSAGES[form]()
    if form == "tensor":
        message.ParseFromString(b"".join(tensor_proto.pieces(value, "")))
    elif form == "map":
        message.key_type = structure[1]
        if structure[1] == STRING:
            message.string_keys.extend(str(key).encode(errors="surrogateescape") for key in value)
        else:
            message.keys.extend(int(key) for key in value)
        message.values.CopyFrom(_message(list(value.values()), ("sequence", inner)))
    else:
        message.elem_type = _ELEMENT_TYPES[inner[0]]
        field = IN_SEQUENCE[inner[0]]
        if form == "sequence":
            getattr(message, field).extend(_message(item, inner) for item in value)
        elif value is not None:
            getattr(message, field[:-1]).CopyFrom(_message(value, inner))
    return message


def read(path: str, structure: Structure | None) -> Value:
    """Read a value of this structure (None: a tensor). Raises StageError (setup, BadTensorFile) if there is none."""
    if structure is None or structure[0] == "tensor":
        return tensor_proto.read(path)
    from runner.model.values.sequences_and_maps import parse, plain
    from runner.model.values.value_types import frozen

    known = frozen(structure)
    assert known is not None
    try:
        with open(path, "rb") as file:
            return plain(parse(file.read(), known), known, _tensor)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        message = f"{path}: no {structure[0]} that can be read: {error}"
        raise StageError("setup", "BadTensorFile", message) from error


def _tensor(message: Any) -> Value:
    data = message.SerializeToString()
    return tensor_proto.parse(BytesIO(data), len(data))
