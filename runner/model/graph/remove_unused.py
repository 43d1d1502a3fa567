"""Removing outputs, dead nodes, unused initializers and stale value_info from a graph; the rest keeps its order."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from onnx import GraphProto

from runner.model.graph import scopes
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.protobuf_edits import set_messages


def remove_dead_nodes(graph: GraphProto) -> int:
    """Remove the nodes that no graph output depends on, and return how many there were."""
    needed = {value.name for value in graph.output}
    dead = []
    for at in reversed(range(len(graph.node))):
        node = graph.node[at]
        if needed.intersection(node.output):
            needed.update(scopes.reads(node))
        else:
            dead.append(at)
    remove_nodes(graph, dead)
    return len(dead)


def remove_nodes(graph: GraphProto, places: Iterable[int]) -> None:
    """Remove nodes by their places in the file."""
    for at in sorted(places, reverse=True):
        del graph.node[at]


def remove_unused_initializers(graph: GraphProto, among: Iterable[str] | None = None) -> int:
    """Remove the initializers (``among`` these names only, if given) that nothing reads; return how many there were.

    Those that are graph inputs or outputs too are part of the model's face and stay.
    """
    used = {name for node in graph.node for name in scopes.reads(node)}
    used.update(value.name for group in (graph.input, graph.output) for value in group)
    names = None if among is None else set(among)
    dense = [tensor.name for tensor in graph.initializer]
    sparse = [tensor.values.name for tensor in graph.sparse_initializer]
    count = 0
    for group, held in ((graph.initializer, dense), (graph.sparse_initializer, sparse)):
        for at in reversed(range(len(held))):
            if held[at] not in used and (names is None or held[at] in names):
                del group[at]
                count += 1
    return count


def remove_stale_value_info(graph: GraphProto) -> None:
    """Remove what is said about tensors that are not there."""
    there = {value.name for group in (graph.input, graph.output) for value in group}
    there.update(name for node in graph.node for name in (*node.input, *node.output))
    for at in reversed([at for at, value in enumerate(graph.value_info) if value.name not in there]):
        del graph.value_info[at]


def with_outputs(made: Cut, names: Collection[str]) -> Cut:
    """Return a cut with these of its outputs alone. Raises CutError where it has none of them."""
    kept = tuple(name for name in made.outputs if name in names)
    if not kept:
        raise CutError(f"it hands out nothing but {', '.join(made.outputs)}, which is infinite on purpose")
    set_messages(made.model.graph.output, [value for value in made.model.graph.output if value.name in names])
    return replace(made, outputs=kept)
