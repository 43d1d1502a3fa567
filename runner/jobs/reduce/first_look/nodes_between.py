"""The nodes that make a tensor of others."""

from __future__ import annotations

from collections.abc import Collection

from runner.model.graph.graph_index import Graph

LARGEST = 64
"""Nodes that say where to look; more do not."""


def between(graph: Graph, end: str, begin: Collection[str]) -> tuple[int, ...]:
    """Return the nodes that make the tensor ``end`` of those of ``begin``; none where they are too many."""
    last = graph.producers[end]
    found, waiting = {last}, [last]
    while waiting:
        for name in graph.nodes[waiting.pop()].inputs:
            above = graph.producers.get(name)
            if above is not None and name not in begin and above not in found:
                found.add(above)
                waiting.append(above)
        if len(found) > LARGEST:
            return ()
    return tuple(sorted(found))
