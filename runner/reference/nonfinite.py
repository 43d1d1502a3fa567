"""Which non-finite values belong to a failure, and which are meant.

An attention mask holds -Inf on purpose: the softmax after it takes it out again. An overflow reaches the model's
output. So a non-finite tensor is part of the failure if a chain of non-finite tensors leads from it to a non-finite
output of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile


@dataclass(frozen=True)
class Taint:
    """``tainted``: on the way to a non-finite output. ``harmless``: non-finite as well, but it leads nowhere."""

    tainted: frozenset[str]
    harmless: frozenset[str]


def taint(graph: Graph, sample: Mapping[str, TensorFile]) -> Taint:
    """Sort the non-finite tensors of one recorded run with all tensors."""
    bad = {name for name, tensor in sample.items() if not tensor.finite}
    tainted: set[str] = set()
    waiting = [name for name in graph.outputs if name in bad]
    while waiting:
        name = waiting.pop()
        if name in tainted:
            continue
        tainted.add(name)
        if name in graph.producers:
            waiting += [source for source in graph.nodes[graph.producers[name]].inputs if source in bad]
    return Taint(frozenset(tainted), frozenset(bad - tainted))


def taint_of_all(graph: Graph, samples: tuple[Mapping[str, TensorFile], ...]) -> Taint:
    """Sort over all samples: tainted in one is tainted."""
    found = [taint(graph, sample) for sample in samples]
    tainted = frozenset().union(*(one.tainted for one in found))
    return Taint(tainted, frozenset().union(*(one.harmless for one in found)) - tainted)
