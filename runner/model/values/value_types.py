"""Types of values, as the protobufs that models declare them with and as plain structures.

A structure is a tuple: ``("tensor", dtype)``, ``("sequence", inner)``, ``("optional", inner)`` or ``("map", dtype of
the keys, inner)``; dtypes are ``onnx.TensorProto.DataType`` numbers. The workers write the same.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any, Tuple  # noqa: UP035 - the aliases below are read under Python 3.8 too

from onnx import TensorProto, TypeProto, helper

from runner.model.values.dtypes import BY_NUMBER

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


# largest finite numbers of the float types
_LARGEST = {
    23: 6.0,  # FLOAT4E2M1
    24: 2.0**127,  # FLOAT8E8M0
    27: 7.5,  # FLOAT6E2M3
    28: 28.0,  # FLOAT6E3M2
    int(TensorProto.FLOAT): 3.4028234663852886e38,
    int(TensorProto.FLOAT16): 65504.0,
    int(TensorProto.BFLOAT16): 3.3895313892515355e38,
    int(TensorProto.FLOAT8E4M3FN): 448.0,
    int(TensorProto.FLOAT8E4M3FNUZ): 240.0,
    int(TensorProto.FLOAT8E5M2): 57344.0,
    int(TensorProto.FLOAT8E5M2FNUZ): 57344.0,
}
# of the float types that models are computed in: the least that is not zero
_LEAST = {int(TensorProto.FLOAT): 2.0**-149, int(TensorProto.FLOAT16): 2.0**-24, int(TensorProto.BFLOAT16): 2.0**-133}

# bits of the integer types; bool counts as one
_SIGNED = {number: kind.bits for number, kind in BY_NUMBER.items() if kind.name.startswith("int")}
_UNSIGNED = {**{number: kind.bits for number, kind in BY_NUMBER.items() if kind.name.startswith("uint")}, 9: 1}
# DOUBLE and COMPLEX128; COMPLEX64 has two fp32
_DOUBLES, _COMPLEX64 = (11, 15), 14
_ONLY_POSITIVE = 24  # FLOAT8E8M0: powers of two, without a sign


def limits_of(dtype: int) -> tuple[float, float] | None:
    """Return the least and the greatest finite number that a type holds (ints for integers); None for strings."""
    if dtype in _SIGNED:
        return -(1 << (_SIGNED[dtype] - 1)), (1 << (_SIGNED[dtype] - 1)) - 1
    if dtype in _UNSIGNED:
        return 0, (1 << _UNSIGNED[dtype]) - 1
    largest = sys.float_info.max if dtype in _DOUBLES else _LARGEST.get(1 if dtype == _COMPLEX64 else dtype)
    if largest is None:
        return None
    return (2.0**-127 if dtype == _ONLY_POSITIVE else -largest), largest


def is_integer(dtype: int) -> bool:
    """Whether a type holds whole numbers only (bool included)."""
    return dtype in _SIGNED or dtype in _UNSIGNED


def least_of(dtype: int) -> float:
    """Return the least positive number of a float type, 0 where that is not known here."""
    return _LEAST.get(dtype, 0.0)


def largest_of(dtype: int) -> float:
    """Return the largest finite number of a type that is known to be a float type (fp32's for double)."""
    return _LARGEST.get(dtype, _LARGEST[TensorProto.FLOAT])
