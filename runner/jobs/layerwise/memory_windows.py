"""Which tensors are looked at in one run: as many as the memory of a worker has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.jobs.reduce.first_look.inner_values_subject import MOST_TENSORS
from runner.model.graph.graph_index import Graph
from runner.reference.model_pieces import weight_bytes

BARE_MB = 160
"""MiB that a worker takes before it has a model: the interpreter, NumPy, the runtime."""
LEAST = 1 << 20
"""Bytes of values that are looked at in any case; a tensor is looked at however large it is."""


def windows(sizes: Mapping[str, int], room: int, most: int = MOST_TENSORS) -> list[tuple[str, ...]]:
    """Return the tensors, in their order, in runs of no more than ``room`` bytes; one tensor alone may be larger."""
    found: list[list[str]] = []
    left = 0
    for name, size in sizes.items():
        if not found or size > left or len(found[-1]) >= most:
            found.append([])
            left = room
        found[-1].append(name)
        left -= size
    return [tuple(one) for one in found]


def room_beside(graph: Graph, sizes: Mapping[str, int], memory_mb: int) -> int:
    """Return how many bytes of values a worker of so many MiB has room for, beside the model while it runs."""
    every = tuple(range(len(graph.nodes)))
    return max(LEAST, (memory_mb - BARE_MB << 20) - weight_bytes(graph, every) - alive(graph, sizes))


def alive(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Return the most bytes of inner values that are needed at one moment, node after node."""
    last = {name: node.index for node in graph.nodes for name in node.inputs}
    most = now = 0
    for node in graph.nodes:
        now += sum(sizes.get(name, 0) for name in node.outputs)
        most = max(most, now)
        ended = {name for name in (*node.inputs, *node.outputs) if last.get(name, -1) <= node.index}
        now -= sum(sizes.get(name, 0) for name in ended if name in graph.producers)
    return most


def halves(window: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return both halves of a window; of one tensor there are none."""
    middle = len(window) // 2
    return (tuple(window[:middle]), tuple(window[middle:])) if middle else ()
