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


def taint_of_all(graph: Graph, samples: tuple[Mapping[str, TensorFile], ...]) -> Taint:
    """Sort the non-finite tensors of recorded runs with all tensors: tainted in one is tainted."""
    bad: set[str] = set()
    tainted: set[str] = set()
    for sample in samples:
        found = {name for name, tensor in sample.items() if not tensor.finite}
        seen: set[str] = set()
        waiting = [name for name in graph.outputs if name in found]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                made = graph.nodes[graph.producers[name]].inputs if name in graph.producers else ()
                waiting += [source for source in made if source in found]
        bad |= found
        tainted |= seen
    return Taint(frozenset(tainted), frozenset(bad - tainted))
