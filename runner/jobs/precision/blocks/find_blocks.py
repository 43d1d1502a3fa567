"""Blocks of a model: nodes that belong together, by what exporters call them and by what is written out.

Nodes whose names have one scope ("/layers.3/attn" of "/layers.3/attn/MatMul") are a block. A scope says nothing where
all names have it or most nodes lie in it, and where two norms or softmaxes are written out in it, it is a layer of the
model rather than a part of one. Nodes without a scope that says something are in the block of the norm or softmax that
they are part of, else alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from onnx import ModelProto, NodeProto, TypeProto

from runner.jobs.precision.blocks.written_out_operators import Group, groups
from runner.jobs.precision.cast.layers import Layer, Pair, levels, node_label

_NAMESPACE = "namespace"
"""Where exporters that number nodes say of which module each one is: "model: Net/layers.3: Layer/add: aten.add"."""

Scope = tuple[int, tuple[str, ...]]
"""The number of a graph, and the parts of a scope in it."""


def blocks(
    model: ModelProto, types: Mapping[str, TypeProto], layers: tuple[Layer, ...], pair: Pair
) -> tuple[tuple[int, ...], ...]:
    """Return the layers of each block, by index, in the order of their first layers; each layer is in one."""
    written = groups(model, types, layers, pair)
    scope_of = _scopes(model, types, layers)
    telling = _telling(scope_of, written)
    group_of = {index: number for number, group in enumerate(written) for index in group.members}
    found: dict[object, list[int]] = {}
    for index, scope in enumerate(scope_of):
        block = scope if scope in telling else ("group", group_of[index]) if index in group_of else index
        found.setdefault(block, []).append(index)
    return tuple(tuple(members) for members in found.values())


def _scopes(model: ModelProto, types: Mapping[str, TypeProto], layers: Sequence[Layer]) -> list[Scope]:
    """Return the scope of each layer's name, without what is around the names of a nested graph."""
    graphs = levels(model, types)
    found = []
    for layer in layers:
        number, place = layer.key
        found.append((number, _parts(graphs[number].graph.node[place], place)))
    return found


def _parts(node: NodeProto, place: int) -> tuple[str, ...]:
    name = node_label(node, place)
    if "/" not in name:
        name = next((one.value for one in node.metadata_props if one.key == _NAMESPACE), "")
    return tuple(part for part in name.split("/")[:-1] if part)


def _telling(scope_of: Sequence[Scope], written: Sequence[Group]) -> set[Scope]:
    """Return the scopes that are blocks."""
    counts = Counter(scope_of)
    inside: Counter[Scope] = Counter()
    for group in written:
        inside.update({scope_of[index] for index in group.core})
    around = _common([parts for _, parts in counts])
    return {
        scope
        for scope, count in counts.items()
        if len(scope[1]) > around and 2 * count <= len(scope_of) and inside[scope] < 2
    }


def _common(names: Sequence[tuple[str, ...]]) -> int:
    """Return how many parts at their start all names have in common."""
    first, last = min(names), max(names)
    return next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
