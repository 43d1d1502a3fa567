"""Constant nodes become initializers: what they say is data, not something that a search can leave out."""

from __future__ import annotations

from pathlib import Path

from onnx import GraphProto, NodeProto, TensorProto, helper

from runner.model.files.parse_without_weights import parse
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.graph_index import Graph
from runner.model.values import tensor_bytes

# attributes of Constant that hold plain numbers or strings -> element type, field of the attribute
_PLAIN = {
    "value_float": (TensorProto.FLOAT, "f"),
    "value_int": (TensorProto.INT64, "i"),
    "value_string": (TensorProto.STRING, "s"),
    "value_floats": (TensorProto.FLOAT, "floats"),
    "value_ints": (TensorProto.INT64, "ints"),
    "value_strings": (TensorProto.STRING, "strings"),
}


def constant_tensor(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node, named like its output.

    None for other nodes, and for Constants that are sparse or malformed.
    """
    if node.op_type != "Constant" or scopes.domain_of(node.domain):
        return None
    if len(node.output) != 1 or not node.output[0] or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value" and attribute.HasField("t"):
        tensor = copy_of(attribute.t)
        tensor.name = node.output[0]
        return tensor
    if attribute.name not in _PLAIN:
        return None
    dtype, field = _PLAIN[attribute.name]
    value = getattr(attribute, field)
    values, dims = (list(value), [len(value)]) if field.endswith("s") and len(field) > 1 else ([value], [])
    return helper.make_tensor(node.output[0], dtype, dims, values)


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
    model = parse(file)
    constants = {
        place: node
        for place, node in enumerate(model.graph.node)
        if (tensor := constant_tensor(node))
        and not tensor_bytes.is_external(tensor)
        and tensor.name in graph.initializers
    }
    if not constants:
        return None
    first_outputs = [next(filter(None, node.output), "") for node in model.graph.node]
    known = {name: place for place, name in enumerate(first_outputs) if name}
    others = graph.model.graph.node
    places = [known.get(next(filter(None, node.output), ""), -1) for node in others]
    if places != sorted(set(places)):  # nodes were moved, or give nothing: Constants stand before all others
        places = [len(first_outputs) + place for place in range(len(others))]
    placed = {**constants, **dict(zip(places, others, strict=True))}
    names = {node.output[0] for node in constants.values()}
    made = copy_of(graph.model)
    set_messages(made.graph.node, [placed[place] for place in sorted(placed)])
    set_messages(made.graph.initializer, [one for one in made.graph.initializer if one.name not in names])
    set_messages(made.graph.input, [one for one in made.graph.input if one.name not in names])
    return Graph.of(made, names)
