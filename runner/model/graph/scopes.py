"""Names and tensors across nested graphs: what nodes read, what graphs capture and define, all tensors of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from sys import intern

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto


def domain_of(domain: str) -> str:
    """Return a domain in its short spelling: ``ai.onnx`` is the same as the empty one."""
    return "" if domain == "ai.onnx" else domain


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """Return the graphs in a node's attributes, in order."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
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


def attribute_tensors(attributes: Iterable[AttributeProto]) -> Iterator[TensorProto]:
    """Yield the tensors in attributes (not in their graphs)."""
    for attribute in attributes:
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
    """Yield every other tensor: attributes, the parts of sparse initializers, and what functions hold."""
    functions = [node for function in model.functions for node in function.node]
    inside = [below for node in functions for graph in subgraphs(node) for below in graphs_below(graph)]
    for graph in (*graphs_below(model.graph), *inside):
        for sparse in graph.sparse_initializer:
            yield from sparse_parts(sparse)
    for graph in inside:
        yield from graph.initializer
    for node in all_nodes([*model.graph.node, *functions]):
        yield from attribute_tensors(node.attribute)
    for function in model.functions:
        yield from attribute_tensors(function.attribute_proto)


def function_key(function: FunctionProto) -> tuple[str, str, str]:
    """Return what a node is matched to a model-local function by: domain, name, overload."""
    return domain_of(function.domain), function.name, getattr(function, "overload", "")


def call_key(node: NodeProto) -> tuple[str, str, str]:
    """Return the key of the function that a node would call."""
    return domain_of(node.domain), node.op_type, getattr(node, "overload", "")


# Renaming tensors, in nested graphs too, without name clashes: what shadows a name there keeps its own.


class NameSupply:
    """Gives names that are in no use; ``taken`` are in use from the start."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*taken, ""}

    def fresh(self, wanted: str) -> str:
        """Return ``wanted``, with a number behind it if that is taken; from now on it is."""
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


def names_in(graph: GraphProto) -> set[str]:
    """Return every tensor name that a graph and those nested in it use."""
    found: set[str] = set()
    for below in graphs_below(graph):
        found |= definitions(below)
        found.update(value.name for group in (below.output, below.value_info) for value in group)
        for node in below.node:
            found.update(map(intern, node.input))
    found.discard("")
    return found


def names_of(model: ModelProto) -> set[str]:
    """Return every tensor name in a model, those of its functions left out: they are a world of their own."""
    return names_in(model.graph)


def rename_node(node: NodeProto, names: Mapping[str, str], supply: NameSupply, avoid: Collection[str] = ()) -> None:
    """Rename, in place, what a node reads and gives, and what its nested graphs capture.

    A name that a nested graph defines itself is another tensor and stays; it gets a fresh one where it would shadow a
    new name that the graph captures, or is one to ``avoid`` (the ONNX checker wants nested names to differ from outer
    ones).
    """
    for at, name in enumerate(node.input):
        if name in names:
            node.input[at] = names[name]
    for at, name in enumerate(node.output):
        if name in names:
            node.output[at] = names[name]
    for nested in subgraphs(node):
        _rename_nested(nested, names, supply, avoid)


def rename_graph(graph: GraphProto, names: Mapping[str, str], supply: NameSupply, avoid: Collection[str] = ()) -> None:
    """Rename, in place, in a graph: what it defines as well as what it captures. ``avoid``: see ``rename_node``."""
    for group in (graph.input, graph.output, graph.value_info):
        for value in group:
            value.name = names.get(value.name, value.name)
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = names.get(annotation.tensor_name, annotation.tensor_name)
        for entry in annotation.quant_parameter_tensor_names:
            entry.value = names.get(entry.value, entry.value)
    for node in graph.node:
        rename_node(node, names, supply, avoid)


def _rename_nested(graph: GraphProto, names: Mapping[str, str], supply: NameSupply, avoid: Collection[str]) -> None:
    own = definitions(graph)
    inner = {old: new for old, new in names.items() if old not in own}
    from_outside = captured(graph)
    arriving = {new for old, new in inner.items() if old in from_outside}
    inner.update((name, supply.fresh(name)) for name in sorted(own & arriving.union(avoid)))
    if inner or avoid:
        rename_graph(graph, inner, supply, avoid)
