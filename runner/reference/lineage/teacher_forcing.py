"""A model of which every node is given good values: what it then makes says whether it is right, whatever is upstream.

Tensors with a good value become inputs of the model, and what their nodes make gets another name. One run of that
model shows all nodes side by side (teacher forcing, after Williams and Zipser, 1989).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from onnx import ModelProto, ValueInfoProto

from runner.model.graph.graph_index import Graph


@dataclass(frozen=True, eq=False)
class Forced:
    """``made``: what a tensor with a good value is called where its own node makes it, by its name."""

    graph: Graph
    made: dict[str, str]


def forced(graph: Graph, given: Collection[str]) -> Forced:
    """Return the model with the tensors ``given`` as inputs."""
    model = ModelProto()
    model.CopyFrom(graph.model)
    mark = "/made"
    taken = {*graph.producers, *graph.inputs, *graph.initializers}
    while any(f"{name}{mark}" in taken for name in given):
        mark += "_"
    made = {name: f"{name}{mark}" for name in graph.producers if name in given}
    for node in model.graph.node:
        node.output[:] = [made.get(name, name) for name in node.output]
    model.graph.input.extend(ValueInfoProto(name=name) for name in made)
    kept = [value for value in model.graph.value_info if value.name not in made]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    outputs = [value for value in model.graph.output if value.name not in made]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    return Forced(Graph.of(model), made)
