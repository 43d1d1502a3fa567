"""Which non-finite values belong to a failure, and which are meant.

An attention mask holds -Inf on purpose: the softmax after it takes it out again. An overflow reaches the model's
output. So a non-finite tensor is part of the failure if a chain of non-finite tensors leads from it to a non-finite
output of the model.

The chain ends where a softmax makes a NaN of an Inf that the model's own constants put there: the mask that has filled
a whole row with -Inf is not at fault, and holds what it was given. Other operators take no mask: of an infinite bias or
embedding a normalization makes a NaN as well, and there it is the weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import TensorProto

from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile, finite_of
from runner.model.values.tensor_file import to_array

_FILLS = frozenset({"Constant", "ConstantOfShape"})
_MOVES = {"Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile"}
_PUTS = frozenset({*_MOVES, "Add", "ScatterND", "Transpose", "Trilu", "Unsqueeze", "Where"})
"""Operators that hand an Inf on as it is, or put it in place of something else: what masks are made with."""
_MASKED = ("Softmax", "Attention")
"""Words in the names of the operators that take what is masked."""


@dataclass(frozen=True)
class Taint:
    """``tainted``: on the way to a non-finite output. ``harmless``: non-finite as well, but it leads nowhere."""

    tainted: frozenset[str]
    harmless: frozenset[str]


def taint_of_all(graph: Graph, samples: tuple[Mapping[str, TensorFile], ...]) -> Taint:
    """Sort the non-finite tensors of recorded runs with all tensors: tainted in one is tainted."""
    put = _constant_infinities(graph)
    bad: set[str] = set()
    tainted: set[str] = set()
    for sample in samples:
        found = {name for name, tensor in sample.items() if not tensor.finite}
        meant = _only_put(graph, sample, found, put)
        seen: set[str] = set()
        waiting = [name for name in graph.outputs if name in found]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                node = graph.nodes[graph.producers[name]] if name in graph.producers else None
                masked = node and name in sample and sample[name].nan and any(one in node.op_type for one in _MASKED)
                made = [source for source in (node.inputs if node else ()) if source in found]
                waiting += [source for source in made if not (masked and source in meant)]
        bad |= found
        tainted |= seen
    return Taint(frozenset(tainted), frozenset(bad - tainted))


def _constant_infinities(graph: Graph) -> frozenset[str]:
    """Return the constants of the model that hold -Inf, no Inf and no NaN: with these a mask takes elements out."""
    found = set()
    for name, tensor in graph.initializers.items():
        if isinstance(tensor, TensorProto):
            finite, nan = finite_of(tensor)
            found |= set() if finite or nan or bool((to_array(tensor) == math.inf).any()) else {name}
    return frozenset(found)


def _only_put(
    graph: Graph, sample: Mapping[str, TensorFile], found: set[str], constants: frozenset[str]
) -> frozenset[str]:
    """Return the tensors that hold an Inf, and no NaN, only because an operator has put a constant there."""
    put: set[str] = set()
    for node in graph.nodes:
        sources = {name for name in node.inputs if name in found or name in constants}
        fills = node.op_type in _FILLS and not node.domain
        if (sources and sources <= put | constants and node.op_type in _PUTS and not node.domain) or fills:
            put |= {name for name in node.outputs if name in found and not sample[name].nan}
    return frozenset(put)
