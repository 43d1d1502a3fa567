"""Norms, softmaxes and the like that a model has written out as single nodes.

Found from where they end, upwards. Operands may stand either way round, constants may lie anywhere, casts in between
do not matter. No node is in two groups, and a group lies in one graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import ModelProto, TypeProto

from runner.jobs.precision.blocks.activations import GELU, LOG_SOFTMAX, SOFTMAX
from runner.jobs.precision.blocks.graph_view import GraphView, views
from runner.jobs.precision.blocks.norms import FOLDED, NORM, kind_of, scale_and_bias
from runner.jobs.precision.blocks.tree_patterns import Match, Pattern
from runner.jobs.precision.cast.layers import Layer, Pair


@dataclass(frozen=True)
class Group:
    """Layers that are one thing, by index. ``core``: what makes it one; ``affine``: its scale and its bias, if any."""

    kind: str
    core: tuple[int, ...]
    affine: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """All its layers, in the model's order."""
        return tuple(sorted((*self.core, *self.affine)))

    def is_whole(self, raised: frozenset[int]) -> bool:
        """Whether it is raised as a whole; a scale and a bias may be left out."""
        return raised.issuperset(self.core)


def groups(
    model: ModelProto, types: Mapping[str, TypeProto], layers: tuple[Layer, ...], pair: Pair
) -> tuple[Group, ...]:
    """Return what is written out in a model, all of whose core nodes are layers, in the order of where they end.

    ``types``: what is known besides the file's value_info.
    """
    index_of = {layer.key: index for index, layer in enumerate(layers)}
    found: list[Group] = []
    for view in views(model, types, pair):
        level = view.level
        taken: set[int] = set()
        for kind, core, affine in _written_out(view):
            own = {place: index_of.get((level.number, place)) for place in core}
            if taken & core or any(index is None for index in own.values()):
                continue
            more = {place for place in affine - core - taken if (level.number, place) in index_of}
            taken |= core | more
            within = tuple(sorted(index_of[level.number, place] for place in core))
            found.append(Group(kind, within, tuple(sorted(index_of[level.number, place] for place in more))))
    return tuple(found)


_PATTERNS: Mapping[str, tuple[tuple[str, Pattern], ...]] = {
    "Div": (("Softmax", SOFTMAX), ("norm", NORM)),
    "Mul": (("Softmax", SOFTMAX), ("norm", NORM), ("Gelu", GELU)),
    "Sub": (("LogSoftmax", LOG_SOFTMAX), ("folded", FOLDED)),
    "Add": (("folded", FOLDED),),
}


def _written_out(view: GraphView) -> Iterator[tuple[str, frozenset[int], frozenset[int]]]:
    """Yield the kind of each, the places of its nodes, and those of its scale and bias."""
    for place, node in enumerate(view.nodes):
        for kind, pattern in _PATTERNS.get(view.operator(place), ()):
            found = next(pattern(view, node.output[0], Match()), None)
            if found is None:
                continue
            at_the_end = kind == "norm"  # else they are inside
            affine, behind = scale_and_bias(view, node.output[0]) if at_the_end else (found.affine, ())
            yield kind_of(view, found, behind) if kind in ("norm", "folded") else kind, found.places, affine
            break
