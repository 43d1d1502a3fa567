"""A model of which every node is given good values: what it then makes says whether it is right, whatever is upstream.

Tensors with a good value become inputs of the model, and what their nodes make gets another name. One run of that
model shows all nodes side by side (teacher forcing, after Williams and Zipser, 1989). What comes out right then says,
too, which tensors without a partner hold what can be trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, ValueInfoProto

from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.lineage.fingerprints import Array, Weights, agree, print_of


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


def doubtful(graph: Graph, partnered: Collection[str], right: Collection[str]) -> tuple[str, ...]:
    """Return the tensors without a partner on which something wrong depends and nothing that is right, in order.

    ``partnered``: the tensors with a partner. ``right``: those of them that come out right on good values.
    """
    fine: set[str] = set()
    bad: set[str] = set()
    for node in reversed(graph.nodes):
        for name in node.outputs:
            if name in partnered:
                continue
            outs = [out for index in graph.readers.get(name, ()) for out in graph.nodes[index].outputs]
            if any(out in right or out in fine for out in outs):
                fine.add(name)
            elif any(out in partnered or out in bad for out in outs):
                bad.add(name)
    return tuple(name for node in graph.nodes for name in node.outputs if name in bad)


def restored(
    graph: Graph,
    name: str,
    good: Sequence[Mapping[str, TensorFile]],
    made: Sequence[Mapping[str, TensorFile]],
    weights: Weights,
) -> bool:
    """Whether ``name`` is what a QuantizeLinear makes of a good value, which its scale and zero point give back.

    False where that cannot be said: another operator, no good value before it, blocks of elements.
    """
    index = graph.producers.get(name)
    if index is None or graph.nodes[index].op_type != "QuantizeLinear":
        return False
    proto = graph.protos[index]
    scale = weights.array(proto.input[1])
    zero = weights.array(proto.input[2]) if len(proto.input) > 2 and proto.input[2] else np.zeros(1)
    axis = next((attribute.i for attribute in proto.attribute if attribute.name == "axis"), 1)
    if scale is None or zero is None or any(attribute.name == "block_size" for attribute in proto.attribute):
        return False
    for before, after in zip(good, made, strict=True):
        if proto.input[0] not in before or name not in after:
            return False
        source = recorded.read(before[proto.input[0]]).astype(np.float64)
        steps = recorded.read(after[name]).astype(np.float64)
        shape = [1] * steps.ndim
        if scale.size > 1:
            shape[axis] = scale.size
        back = (steps - _along(zero, shape)) * _along(scale, shape)
        if not agree(print_of([back]), print_of([source])):
            return False
    return True


def _along(one: Array, shape: list[int]) -> Array:
    wide = one.astype(np.float64)
    return wide.reshape(shape) if wide.size > 1 else wide.reshape(())
