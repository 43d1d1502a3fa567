"""Types of tensors as text: ``float16[1, 128, 768]``."""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern

from onnx import SparseTensorProto, TensorProto, TypeProto

from runner.model.graph.graph_index import Graph
from runner.model.values.dtypes import BY_NUMBER
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import structure_of, structure_text
from runner.report.page.collect.run_material import RunMaterial

_STRING = TensorProto.STRING


def dtype_text(number: int) -> str:
    """Return what a type of elements is called; of a number that stands for none, the number."""
    kind = BY_NUMBER.get(number)
    if kind is not None:
        return "string" if number == _STRING else kind.numpy_name
    return next((name.lower() for name, value in TensorProto.DataType.items() if value == number), f"type {number}")


def tensor_text(dtype: int, dims: Iterable[object]) -> str:
    """Return the type of a tensor of these dimensions."""
    return intern(f"{dtype_text(dtype)}[{', '.join(map(str, dims))}]")  # a long graph has few, and many tensors


def type_text(proto: TypeProto) -> str:
    """Return a type as a model declares it; "" where nothing is said."""
    if proto.WhichOneof("value") != "tensor_type":
        structure = structure_of(proto)
        return structure_text(structure) if structure else ""
    tensor = proto.tensor_type
    if not tensor.elem_type:
        return ""
    if not tensor.HasField("shape"):
        return dtype_text(tensor.elem_type)
    dims = (one.dim_value if one.HasField("dim_value") else one.dim_param or "?" for one in tensor.shape.dim)
    return tensor_text(tensor.elem_type, dims)


def value_text(value: TensorFile) -> str:
    """Return the type of a recorded value."""
    return structure_text(value.structure) if value.structure else tensor_text(value.dtype, value.shape)


def types_of(graph: Graph, material: RunMaterial) -> dict[str, str]:
    """Return what is known of tensors' types: as recorded, or else as declared or inferred."""
    found = {name: type_text(proto) for of in (material.types, graph.value_types) for name, proto in of.items()}
    found |= ((name, value_text(value)) for name, value in material.recorded.items())
    found |= ((name, weight_text(weight)) for name, weight in graph.initializers.items())
    return found


def weight_text(weight: TensorProto | SparseTensorProto) -> str:
    """Return the type of a weight."""
    dense = weight.values if isinstance(weight, SparseTensorProto) else weight
    return tensor_text(dense.data_type, weight.dims)
