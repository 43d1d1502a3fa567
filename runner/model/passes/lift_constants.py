"""Constant nodes become initializers: what a Constant node says is data, not something that a search can leave out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from runner.model.graph import scopes
from runner.model.graph.fields import set_messages
from runner.model.graph.index import Graph
from runner.model.values import storage


def constant_tensor(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node, named like its output.

    None for other nodes, and for Constants that are sparse or malformed.
    """
    if node.op_type != "Constant" or scopes.domain_of(node.domain):
        return None
    if len(node.output) != 1 or not node.output[0] or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    tensor = TensorProto()
    if attribute.name == "value" and attribute.HasField("t"):
        tensor.CopyFrom(attribute.t)
    elif attribute.name == "value_float":
        tensor = helper.make_tensor("", TensorProto.FLOAT, [], [attribute.f])
    elif attribute.name == "value_floats":
        tensor = helper.make_tensor("", TensorProto.FLOAT, [len(attribute.floats)], list(attribute.floats))
    elif attribute.name == "value_int":
        tensor = helper.make_tensor("", TensorProto.INT64, [], [attribute.i])
    elif attribute.name == "value_ints":
        tensor = helper.make_tensor("", TensorProto.INT64, [len(attribute.ints)], list(attribute.ints))
    elif attribute.name == "value_string":
        tensor = helper.make_tensor("", TensorProto.STRING, [], [attribute.s])
    elif attribute.name == "value_strings":
        tensor = helper.make_tensor("", TensorProto.STRING, [len(attribute.strings)], list(attribute.strings))
    else:
        return None
    tensor.name = node.output[0]
    return tensor


def lower_constants(graph: GraphProto, ir_version: int) -> int:
    """Turn the Constant nodes of a graph (not of nested ones) into initializers, in place; return how many there were.

    Before IR version 4 an initializer must be listed as a graph input too, so there it is.
    """
    kept = []
    lowered = 0
    for node in graph.node:
        tensor = constant_tensor(node)
        if tensor is None:
            kept.append(node)
            continue
        lowered += 1
        graph.initializer.append(tensor)
        if ir_version < 4:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    if lowered:
        set_messages(graph.node, kept)
    return lowered


def as_nodes(graph: Graph, file: Path) -> Graph | None:
    """Return the graph with the top-level Constant nodes of its file as the nodes that they were, at their places.

    Elements stay what they are: Constants are carried along to whoever reads them. None where there are none.
    """
    model = ModelProto.FromString(file.read_bytes())
    nodes = {
        node.output[0]: (place, node)
        for place, node in enumerate(model.graph.node)
        if (tensor := constant_tensor(node))
        and not storage.is_external(tensor)
        and node.output[0] in graph.initializers
        and node.output[0] not in graph.overridable
    }
    if not nodes:
        return None
    places = {name: place for place, node in enumerate(model.graph.node) for name in node.output if name}
    positions = tuple(places.get(next(iter(node.outputs), ""), -1) for node in graph.nodes)
    carried = {name: (places.get(name, -1), node) for name, (_, node) in graph.carried.items()}
    if list(positions) != sorted(set(positions)):  # nodes were moved, or left out
        positions = graph.positions
        first = -len(nodes)
        nodes = {name: (first + at, node) for at, (name, (_, node)) in enumerate(nodes.items())}
        carried = dict(graph.carried)
    left = {name: tensor for name, tensor in graph.initializers.items() if name not in nodes}
    return replace(graph, positions=positions, carried={**carried, **nodes}, initializers=left)
