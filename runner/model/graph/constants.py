"""Nodes that compute constants: they come along with whatever reads them, and are no elements of a search."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from runner.model.graph.drawing import drawing_functions, draws

if TYPE_CHECKING:
    from runner.model.graph.graph_index import Graph


def constants(graph: Graph) -> frozenset[int]:
    """Return the elements that compute of initializers alone, and draw nothing.

    None that gives an output of the graph, that nobody reads, or that holds graphs; none at all in a model without
    inputs.
    """
    found: set[int] = set()
    functions = drawing_functions(graph.model)
    for node in graph.nodes if graph.inputs else ():
        known = all(
            name in graph.initializers or name in graph.carried or graph.producers.get(name) in found
            for name in node.inputs
        )
        if not known or node.nests or not graph.output_set.isdisjoint(node.outputs):
            continue
        if any(name in graph.readers for name in node.outputs) and not draws(graph.protos[node.index], functions):
            found.add(node.index)
    return frozenset(found)


def needed(graph: Graph, nodes: Collection[int], among: Collection[int]) -> frozenset[int]:
    """Return those elements ``among`` some that ``nodes`` read, directly or through others of them."""
    found: set[int] = set()
    waiting = list(nodes) if among else []
    while waiting:
        for parent in graph.parents[waiting.pop()]:
            if parent in among and parent not in found:
                found.add(parent)
                waiting.append(parent)
    return frozenset(found)
