"""Types of values, as the protobufs that models declare them with and as plain structures.

A structure is a tuple: ``("tensor", dtype)``, ``("sequence", inner)``, ``("optional", inner)`` or ``("map", dtype of
the keys, inner)``; dtypes are ``onnx.TensorProto.DataType`` numbers. The workers write the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Tuple  # noqa: UP035 - the aliases below are read under Python 3.8 too

from onnx import TypeProto, helper

Structure = Tuple[Any, ...]  # noqa: UP006
Shape = Tuple[int, ...]  # noqa: UP006

_FORMS = {"sequence_type": "sequence", "optional_type": "optional"}


def tensor_type(dtype: int, shape: tuple[int | str | None, ...] | None) -> TypeProto:
    """Return a tensor type; ``shape`` None means that not even the rank is known."""
    return helper.make_tensor_type_proto(dtype, None if shape is None else list(shape))


def type_of(structure: Structure, shapes: Collection[Shape] = ()) -> TypeProto:
    """Return the type of a structure whose tensors have these shapes; what differs between them is left open."""
    form, inner = structure[0], structure[-1]
    if form == "tensor":
        return tensor_type(inner, common_shape(shapes))
    if form == "map":
        return helper.make_map_type_proto(structure[1], type_of(inner))
    make = helper.make_sequence_type_proto if form == "sequence" else helper.make_optional_type_proto
    return make(type_of(inner, shapes))


def common_shape(shapes: Collection[Shape]) -> tuple[int | None, ...] | None:
    """Return the dimensions that all shapes share, None for one that differs; None for no shapes or several ranks."""
    if len({len(shape) for shape in shapes}) != 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes))  # noqa: B905 - equally long


def structure_of(proto: TypeProto) -> Structure | None:
    """Return the structure of a type, None where it is not fully said or is none of ours (sparse, opaque)."""
    form = proto.WhichOneof("value")
    if form == "tensor_type":
        return ("tensor", proto.tensor_type.elem_type) if proto.tensor_type.elem_type else None
    if form == "map_type":
        inner = structure_of(proto.map_type.value_type)
        return ("map", proto.map_type.key_type, inner) if inner else None
    inner = structure_of(getattr(proto, form).elem_type) if form in _FORMS else None
    return (_FORMS[form], inner) if inner else None


def declares_type(proto: TypeProto) -> bool:
    """Whether a type says what a value is; that of a tensor may lack its element type."""
    kind = proto.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or proto.tensor_type.elem_type != 0)


def has_no_rank(proto: TypeProto) -> bool:
    """Whether not even the rank of a tensor is said."""
    return proto.WhichOneof("value") == "tensor_type" and not proto.tensor_type.HasField("shape")


def without_shape(proto: TypeProto) -> TypeProto:
    """Return a tensor type of which only the dtype is said, and any other type as it is."""
    if proto.WhichOneof("value") != "tensor_type":
        return proto
    return tensor_type(proto.tensor_type.elem_type, None)


def leaf_dtype(structure: Structure) -> int:
    """Return the dtype of the tensors inside."""
    inner = structure[-1]
    return leaf_dtype(inner) if isinstance(inner, tuple) else int(inner)


def frozen(structure: Any) -> Structure | None:
    """Return a structure as tuples again, after JSON has made lists of it."""
    if structure is None:
        return None
    return tuple(frozen(part) if isinstance(part, (list, tuple)) else part for part in structure)


def structure_text(structure: Structure) -> str:
    """Return a structure in words, ``sequence of optional``; tensors and their types are left out."""
    inner = structure[-1]
    more = f" of {structure_text(inner)}" if isinstance(inner, tuple) and inner[0] != "tensor" else ""
    return f"{structure[0]}{more}"
