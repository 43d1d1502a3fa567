"""Nested graphs: those in the attributes of a node, and all below a graph or a function."""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

from typing import Any, Iterator, List, Tuple


def bodies(node: Any) -> Iterator[Tuple[str, Any]]:
    """Yield a node's nested graphs with the names of their attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for number, body in enumerate(attribute.graphs):
            yield f"{attribute.name}[{number}]", body


def graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph or a function and the graphs below it, in reading order."""
    yield graph
    for node in graph.node:
        for _, body in bodies(node):
            yield from graphs(body)


def all_graphs(model: Any) -> List[Any]:
    """Return whatever holds nodes in a model: its graph, its functions, and the graphs below these."""
    return [one for top in (model.graph, *model.functions) for one in graphs(top)]
