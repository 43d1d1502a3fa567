"""What a model declares about its inputs, and how values are made to fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto, TensorShapeProto, TypeProto, helper

from runner.exit_codes import NotApplicable, UsageError
from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import NUMPY
from runner.model.values.tensor_bytes import beyond, clipped
from runner.model.values.value_types import Structure, leaf_dtype, structure_of, structure_text

_MOST_SIZES = 16  # of a shape that a file claims, in messages


@dataclass(frozen=True)
class Declared:
    """One input of the model.

    ``dtype``: an ``onnx.TensorProto.DataType`` number. ``dims``: a size, the name of a dynamic dimension, or None
    where nothing is said; None as a whole where not even the rank is. ``structure``: None for a tensor; else what the
    input is (a sequence, an optional, a map), ``dtype`` is UNDEFINED, and ``dims`` are those of the tensors inside.
    """

    name: str
    dtype: int
    dims: tuple[int | str | None, ...] | None
    structure: Structure | None = None

    @property
    def inside(self) -> Declared:
        """What is declared of the tensors inside; of a tensor, itself."""
        if self.structure is None:
            return self
        return Declared(self.name, leaf_dtype(self.structure), self.dims)

    def mismatch(self, dtype: int, shape: Sequence[int]) -> str:
        """Why a tensor of this type and shape cannot be fed; "" if it can."""
        if dtype != self.dtype:
            return f"has type {type_name(dtype)}, the model declares {type_name(self.dtype)}"
        if self.dims is None:
            return ""
        if len(shape) != len(self.dims):
            return f"has rank {len(shape)} (shape {_sizes(shape)}), the model declares {self.shape_text}"
        if any(isinstance(dim, int) and dim != size for dim, size in zip(self.dims, shape, strict=True)):
            return f"has shape {list(shape)}, the model declares {self.shape_text}"
        return ""

    @property
    def shape_text(self) -> str:
        """The declared shape as people write it: ``[N, 3, ?]``."""
        if self.dims is None:
            return "[...]"
        return f"[{', '.join('?' if dim is None else str(dim) for dim in self.dims)}]"

    def __str__(self) -> str:
        what = f"{structure_text(self.structure)} of " if self.structure else ""
        return f"{self.name} ({what}{type_name(self.inside.dtype)} {self.shape_text})"


def _sizes(shape: Sequence[int]) -> str:
    sizes = [*map(str, shape[:_MOST_SIZES]), *(["..."] if len(shape) > _MOST_SIZES else [])]
    return f"[{', '.join(sizes)}]"


def type_name(dtype: int) -> str:
    """The name of an ONNX element type, in small letters."""
    try:
        return str(TensorProto.DataType.Name(dtype)).lower()
    except ValueError:
        return f"type {dtype}"


def declared(graph: Graph) -> dict[str, Declared]:
    """The inputs that must be fed, in the model's order. Raises NotApplicable for one whose type is not known."""
    return {name: _declared(name, graph.value_types.get(name)) for name in graph.inputs}


def declared_outputs(graph: Graph) -> dict[str, Declared]:
    """The outputs, in the model's order. Raises NotApplicable for one whose type is not known."""
    return {name: _declared(name, graph.value_types.get(name), "output") for name in graph.outputs}


def _declared(name: str, proto: TypeProto | None, word: str = "input") -> Declared:
    structure = structure_of(proto) if proto is not None else None
    if proto is None or structure is None:
        kind = proto.WhichOneof("value") if proto is not None else None
        what = "no type" if kind in (None, "tensor_type") else str(kind).removesuffix("_type")
        raise NotApplicable(
            f"the model's {word} {name!r} has a type that cannot be fed ({what}): Winnow feeds tensors, and sequences, "
            "optionals and maps of them"
        )
    if leaf_dtype(structure) not in TensorProto.DataType.values():
        raise NotApplicable(
            f"the model's {word} {name!r} has {type_name(leaf_dtype(structure))}, which the installed onnx does not "
            "know"
        )
    dims = _dims(proto)
    return Declared(name, structure[1], dims) if structure[0] == "tensor" else Declared(name, 0, dims, structure)


def _dims(proto: TypeProto) -> tuple[int | str | None, ...] | None:
    """The declared shape of a tensor, or of the tensors inside."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return tuple(_dim(dim) for dim in proto.tensor_type.shape.dim) if proto.tensor_type.HasField("shape") else None
    return _dims(proto.map_type.value_type if kind == "map_type" else getattr(proto, kind).elem_type)


def _dim(dim: TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) if dim.HasField("dim_param") and dim.dim_param else None


def concrete(inputs: Mapping[str, Declared], shapes: Mapping[str, Sequence[int]]) -> dict[str, Declared]:
    """The inputs with the shapes that the user gives (``inputs.shapes``) in the place of the declared ones.

    Raises UsageError for an unknown name, another rank, a negative size, or a size that the model fixes otherwise.
    """
    refuse_unknown("inputs.shapes", shapes, inputs)
    result = dict(inputs)
    for name, shape in shapes.items():
        sizes = tuple(int(size) for size in shape)
        why = (
            "has a negative size"
            if any(size < 0 for size in sizes)
            else inputs[name].inside.mismatch(inputs[name].inside.dtype, sizes)
        )
        if why:
            raise UsageError(f"inputs.shapes.{name}={list(shape)}: {why}")
        result[name] = replace(inputs[name], dims=sizes)
    return result


def refuse_unknown(key: str, names: Iterable[str], inputs: Mapping[str, Declared]) -> None:
    """Raise UsageError if ``names`` has one that is no input of the model."""
    if unknown := [name for name in names if name not in inputs]:
        raise UsageError(f"{key}: the model has no input {', '.join(map(repr, unknown))}; {listing(inputs)}")


def listing(inputs: Mapping[str, Declared], word: str = "input") -> str:
    """The model's inputs, or outputs, for messages."""
    return f"the model's {word}s: {', '.join(map(str, inputs.values()))}" if inputs else f"the model has no {word}s"


# Values in the types that a model declares.

# the element types that numpy has itself: everything else (bfloat16, float8, int4) travels through files as something
# else
NATIVE = frozenset({*NUMPY, TensorProto.STRING})
# what `values.write` takes: an array, or a tensor of a type that numpy lacks
Value: TypeAlias = np.ndarray[Any, Any] | TensorProto


def tensor(array: np.ndarray[Any, Any], name: str, dtype: int) -> Value:
    """``array``'s values in the ONNX type ``dtype`` (rounded where the array's type is wider)."""
    if dtype == TensorProto.STRING:
        return array.astype(object)
    if dtype in NATIVE:
        return array.astype(helper.tensor_dtype_to_np_dtype(dtype), copy=False)
    return helper.make_tensor(name, dtype, array.shape, array.reshape(-1).astype(np.float32))


def in_range(array: np.ndarray[Any, Any], name: str, dtype: int) -> Value:
    """``array``'s numbers in a float type; those beyond its range become its ends, which are no infinities."""
    return tensor(np.where(beyond(array, dtype), clipped(array, dtype), array), name, dtype)
