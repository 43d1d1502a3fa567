"""Names and tensors across nested graphs: what nodes read, what graphs capture and define, all tensors of a model."""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

_GRAPH, _GRAPHS = AttributeProto.GRAPH, AttributeProto.GRAPHS


def domain_of(domain: str) -> str:
    """Return a domain in its short spelling: ``ai.onnx`` is the same as the empty one."""
    return "" if domain == "ai.onnx" else domain


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """Return the graphs in a node's attributes, in order."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        kind = attribute.type
        if kind == _GRAPH:
            found.append(attribute.g)
        elif kind == _GRAPHS:
            found.extend(attribute.graphs)
        elif kind == 0:  # IR version 1 had no attribute types
            if attribute.HasField("g"):
                found.append(attribute.g)
            found.extend(attribute.graphs)
    return found


def definitions(graph: GraphProto) -> set[str]:
    """Return the names that a graph defines itself: inputs, initializers, what its nodes give."""
    found = {value.name for value in graph.input}
    found.update(tensor.name for tensor in graph.initializer)
    found.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        found.update(map(intern, node.output))  # of a long graph: protobuf makes new texts whenever it is asked
    found.discard("")
    return found


def captured(graph: GraphProto) -> dict[str, None]:
    """Return the names that a nested graph takes from outside, in order of first use, nested ones included."""
    inside = definitions(graph)
    names: dict[str, None] = {}
    for node in graph.node:
        for name in reads(node):
            if name not in inside:
                names[name] = None
    # a branch may hand out a value of the outer graph directly
    for value in graph.output:
        if value.name and value.name not in inside:
            names[value.name] = None
    return names


def reads(node: NodeProto) -> tuple[str, ...]:
    """Return what a node reads, each name once: its non-empty inputs, then what its nested graphs capture."""
    names = dict.fromkeys(name for name in node.input if name)
    if node.attribute:
        for graph in subgraphs(node):
            names.update(captured(graph))
    return tuple(names)


def all_nodes(nodes: list[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes and, after each, the nodes nested in it."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def graphs_below(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield the graph and every graph nested in it."""
    yield graph
    for node in graph.node:
        for nested in subgraphs(node):
            yield from graphs_below(nested)


def attribute_tensors(node: NodeProto) -> Iterator[TensorProto]:
    """Yield the tensors in a node's own attributes (not in its nested graphs)."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("sparse_tensor"):
            yield from sparse_parts(attribute.sparse_tensor)
        for sparse in attribute.sparse_tensors:
            yield from sparse_parts(sparse)


def sparse_parts(sparse: SparseTensorProto) -> tuple[TensorProto, TensorProto]:
    """Return the two tensors of a sparse one."""
    return sparse.values, sparse.indices


def initializers(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every dense initializer, those of nested graphs included: what may lie in a weights file."""
    for graph in graphs_below(model.graph):
        yield from graph.initializer


def inline_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every other tensor: attributes (also of functions) and the parts of sparse initializers."""
    for graph in graphs_below(model.graph):
        for sparse in graph.sparse_initializer:
            yield from sparse_parts(sparse)
    bodies = [model.graph.node] + [function.node for function in model.functions]
    for body in bodies:
        for node in all_nodes(body):
            yield from attribute_tensors(node)
    for function in model.functions:
        for attribute in function.attribute_proto:
            if attribute.HasField("t"):
                yield attribute.t
        for node in function.node:
            for nested in subgraphs(node):
                for graph in graphs_below(nested):
                    yield from graph.initializer
                    for sparse in graph.sparse_initializer:
                        yield from sparse_parts(sparse)


def function_key(function: FunctionProto) -> tuple[str, str, str]:
    """Return what a node is matched to a model-local function by: domain, name, overload."""
    return domain_of(function.domain), function.name, getattr(function, "overload", "")


def call_key(node: NodeProto) -> tuple[str, str, str]:
    """Return the key of the function that a node would call."""
    return domain_of(node.domain), node.op_type, getattr(node, "overload", "")
