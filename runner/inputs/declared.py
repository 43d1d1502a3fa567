"""What a model declares about its inputs, and whether a value fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import TensorProto, TensorShapeProto, TypeProto

from runner.errors import NotApplicable, UsageError
from runner.model.graph import Graph


@dataclass(frozen=True)
class Declared:
    """One input of the model.

    ``dtype``: an ``onnx.TensorProto.DataType`` number. ``dims``: a size, the name of a dynamic dimension, or None
    where nothing is said; None as a whole where not even the rank is.
    """

    name: str
    dtype: int
    dims: tuple[int | str | None, ...] | None

    def mismatch(self, dtype: int, shape: Sequence[int]) -> str:
        """Why a tensor of this type and shape cannot be fed; "" if it can."""
        if dtype != self.dtype:
            return f"has type {type_name(dtype)}, the model declares {type_name(self.dtype)}"
        if self.dims is None:
            return ""
        if len(shape) != len(self.dims):
            return f"has rank {len(shape)} (shape {list(shape)}), the model declares {self.shape_text}"
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
        return f"{self.name} ({type_name(self.dtype)} {self.shape_text})"


def type_name(dtype: int) -> str:
    """The name of an ONNX element type, in small letters."""
    try:
        return str(TensorProto.DataType.Name(dtype)).lower()
    except ValueError:
        return f"type {dtype}"


def declared(graph: Graph) -> dict[str, Declared]:
    """The inputs that must be fed, in the model's order. Raises NotApplicable for one that is not a tensor."""
    return {name: _declared(name, graph.value_types.get(name)) for name in graph.inputs}


def _declared(name: str, proto: TypeProto | None) -> Declared:
    kind = proto.WhichOneof("value") if proto is not None else None
    if proto is None or kind != "tensor_type" or proto.tensor_type.elem_type == TensorProto.UNDEFINED:
        what = "no type" if proto is None or kind in (None, "tensor_type") else str(kind).removesuffix("_type")
        raise NotApplicable(f"the model's input {name!r} is no tensor ({what}): Winnow can only feed tensors")
    tensor = proto.tensor_type
    dims = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    return Declared(name, tensor.elem_type, dims)


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
            else inputs[name].mismatch(inputs[name].dtype, sizes)
        )
        if why:
            raise UsageError(f"inputs.shapes.{name}={list(shape)}: {why}")
        result[name] = Declared(name, inputs[name].dtype, sizes)
    return result


def refuse_unknown(key: str, names: Iterable[str], inputs: Mapping[str, Declared]) -> None:
    """Raise UsageError if ``names`` has one that is no input of the model."""
    if unknown := [name for name in names if name not in inputs]:
        raise UsageError(f"{key}: the model has no input {', '.join(map(repr, unknown))}; {listing(inputs)}")


def listing(inputs: Mapping[str, Declared]) -> str:
    """The model's inputs, for messages."""
    return f"its inputs are: {', '.join(map(str, inputs.values()))}" if inputs else "it has no inputs"
