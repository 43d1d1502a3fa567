"""Which tensors without a partner hold what can be trusted, given what depends on them."""

from __future__ import annotations

from collections.abc import Collection

from runner.model.graph.index import Graph


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
