"""The weights of a model, looked into one after the other, and where in the model each is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from runner.jobs.inspect.weight_values import WeightValues, inline_pieces, values_in
from runner.model.errors import ModelError
from runner.model.files.external_data import ExternalFiles, chunks
from runner.model.graph import scopes
from runner.model.values import tensor_bytes


@dataclass(frozen=True)
class Constant:
    """One tensor that the model holds.

    ``name``: of the initializer, or of the output of the node whose attribute it is. ``problem``: why its elements
    could not be seen.
    """

    name: str
    dtype: int
    dims: tuple[int, ...]
    bytes: int
    values: WeightValues
    problem: str = ""

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.dims) if all(dim >= 0 for dim in self.dims) else 0


def constants_of(model: ModelProto, path: Path) -> list[Constant]:
    """Return all tensors of the model that was read from ``path``, as far as they can be read."""
    files = ExternalFiles(path, own=True)
    return [_seen(name, tensor, files) for name, tensor in _tensors(model)]


def graphs_of(model: ModelProto) -> Iterator[GraphProto]:
    """Yield the graph of a model, those nested in it, and those nested in its functions."""
    yield from scopes.graphs_below(model.graph)
    for function in model.functions:
        for node in function.node:
            for nested in scopes.subgraphs(node):
                yield from scopes.graphs_below(nested)


def _tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    for graph in graphs_of(model):
        yield from ((tensor.name, tensor) for tensor in graph.initializer)
        yield from ((one.values.name, part) for one in graph.sparse_initializer for part in scopes.sparse_parts(one))
    for body in (model.graph.node, *(function.node for function in model.functions)):
        for node in scopes.all_nodes(body):
            name = next(iter(node.output), "") or node.name
            yield from ((name, tensor) for tensor in (*scopes.attribute_tensors(node), *_numbers(node)))


def _numbers(node: NodeProto) -> Iterator[TensorProto]:
    """Yield what a Constant holds that is written as plain numbers."""
    for one in node.attribute if node.op_type == "Constant" else ():
        if one.name in ("value_float", "value_floats"):
            floats = [one.f] if one.name == "value_float" else one.floats
            yield TensorProto(data_type=TensorProto.FLOAT, dims=[len(floats)], float_data=floats)
        elif one.name in ("value_int", "value_ints"):
            whole = [one.i] if one.name == "value_int" else one.ints
            yield TensorProto(data_type=TensorProto.INT64, dims=[len(whole)], int64_data=whole)


def _seen(name: str, tensor: TensorProto, files: ExternalFiles) -> Constant:
    dtype, dims, size, problem, values = tensor.data_type, tuple(tensor.dims), 0, "", WeightValues()
    try:
        if tensor_bytes.is_external(tensor):
            size = tensor_bytes.byte_size(dtype, dims) or 0
            values = values_in(dtype, chunks(*files.region(tensor)))
        elif problem := tensor_bytes.size_problem(tensor) or "":
            pass
        elif dtype == tensor_bytes.STRING:
            size = sum(map(len, tensor.string_data))
        else:
            size = tensor_bytes.byte_size(dtype, dims) or 0
            values = values_in(dtype, inline_pieces(tensor))
    except (ModelError, OSError, ValueError) as error:
        problem = str(error)
    return Constant(name, dtype, dims, size, values, problem)
