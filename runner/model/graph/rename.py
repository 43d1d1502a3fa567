"""Renaming tensors, in nested graphs too, without name clashes: what shadows a name there keeps its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from sys import intern

from onnx import GraphProto, ModelProto, NodeProto

from runner.model.graph import scopes


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
    for below in scopes.graphs_below(graph):
        found |= scopes.definitions(below)
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
    for nested in scopes.subgraphs(node):
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
    own = scopes.definitions(graph)
    inner = {old: new for old, new in names.items() if old not in own}
    captured = scopes.captured(graph)
    arriving = {new for old, new in inner.items() if old in captured}
    inner.update((name, supply.fresh(name)) for name in sorted(own & arriving.union(avoid)))
    if inner or avoid:
        rename_graph(graph, inner, supply, avoid)
