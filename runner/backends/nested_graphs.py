"""Nested graphs: those in the attributes of a node, and all below a graph or a function; the order of nodes."""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

from typing import Any, Iterator, List, Set, Tuple


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


def put_in_order(graph: Any) -> None:
    """Put what makes a tensor in front of what reads it, in bodies too. ONNX Runtime takes any order, others do not.

    ONNX Runtime's converter to float16 puts the Cast of an input last. A cycle stays as it is.
    """
    for below in graphs(graph):
        order = _order(below)
        if order != sorted(order):
            nodes = [below.node[at] for at in order]
            copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
            del below.node[:]
            below.node.extend(copies)


def _order(graph: Any) -> List[int]:
    maker = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    needs = [{maker[name] for name in _reads(node) if name in maker} for node in graph.node]
    order: List[int] = []
    placed: Set[int] = set()
    open_ones: Set[int] = set()
    waiting = list(range(len(needs)))[::-1]
    while waiting:
        at = waiting[-1]
        first = needs[at] - placed - open_ones - {at}
        open_ones.add(at)
        waiting += sorted(first, reverse=True)
        if not first:
            waiting.pop()
            order += [] if at in placed else [at]
            placed.add(at)
    return order


def _reads(node: Any) -> List[str]:
    inside = [name for _, body in bodies(node) for below in graphs(body) for one in below.node for name in one.input]
    return [*node.input, *inside]
