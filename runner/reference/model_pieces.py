"""Pieces of a model that are run together: what they give, how large that is, and what of it has to be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from runner.model.graph.graph_index import Graph
from runner.model.values import tensor_bytes

_LOW = frozenset({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})


@dataclass(frozen=True, eq=False)
class Piece:
    """Nodes that were run together. ``types``: what was known of their tensors before; ``folder``: of the values."""

    nodes: tuple[int, ...]
    types: Mapping[str, onnx.TypeProto]
    folder: Path


def is_low(graph: Graph, types: Mapping[str, onnx.TypeProto]) -> bool:
    """Return whether values of low precision occur.

    A runtime may go on with float32 from node to node and round only what it hands out: then a piece's edge is
    seen in the values, and where something overflows it is seen in all that follow.
    """
    stored = {getattr(tensor, "data_type", 0) for tensor in graph.initializers.values()}
    fed = [value.type for value in graph.model.graph.input]
    declared = {kind.tensor_type.elem_type for kind in (*fed, *types.values())}
    chosen = {one.i for proto in graph.protos for one in proto.attribute if one.name in ("to", "dtype")}
    return not _LOW.isdisjoint(stored | declared | chosen)


def needed(graph: Graph, piece: Sequence[int]) -> frozenset[str]:
    """Return the tensors of a piece that have to be kept: those that others read, and what is drawn at random."""
    made = frozenset(name for index in piece for name in graph.nodes[index].outputs)
    drawing = frozenset(graph.drawing)
    if any(graph.nodes[index].name in drawing for index in piece):
        return made  # all that follows from it would be another the second time
    inside = frozenset(piece)
    read = frozenset(name for name in made if not inside.issuperset(graph.readers.get(name, ())))
    return read | made & graph.output_set


def declared_bytes(graph: Graph, types: Mapping[str, onnx.TypeProto], piece: Sequence[int]) -> list[int]:
    """Return the bytes of each tensor that a piece makes and whose shape is known."""
    names = [name for index in piece for name in graph.nodes[index].outputs if name in types]
    return [size for name in names if (size := bytes_of(types[name]))]


def weight_bytes(graph: Graph, piece: Sequence[int]) -> int:
    """Return the bytes of the weights that a piece reads."""
    names = {name for index in piece for name in graph.nodes[index].inputs if name in graph.initializers}
    tensors = [tensor for name in names if isinstance(tensor := graph.initializers[name], onnx.TensorProto)]
    return sum(tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0 for tensor in tensors)


def bytes_of(kind: onnx.TypeProto) -> int:
    """Return the bytes of a tensor of this type; 0 where its shape is not known."""
    dims = [dim.dim_value for dim in kind.tensor_type.shape.dim]
    known = kind.HasField("tensor_type") and all(dim > 0 for dim in dims)
    return tensor_bytes.byte_size(kind.tensor_type.elem_type, dims) or 0 if known else 0
