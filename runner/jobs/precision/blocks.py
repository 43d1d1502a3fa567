"""What a precision search raises at once: a layer, or a block of layers whose names have one scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from onnx import ModelProto, NodeProto, TypeProto

from runner.jobs.precision.fixed_layers import Fixed
from runner.jobs.precision.layers import Layer, levels, node_label
from runner.jobs.precision.setup import PrecisionModel
from runner.model.graph.low_precision import pairs_of
from runner.reference.load import Loaded
from runner.schema.strategy import FloatType, PrecisionSettings, Unit
from strategies.search import Prior

# A unit is one layer, or a block (``strategy.unit=block``): the layers whose names have one scope, as exporters write
# it ("/layers.3/attn" of "/layers.3/attn/MatMul"). A scope says nothing where all names begin with it, where most
# layers lie in it, or where it is too large to be a part of a model's layer: what lies in it is then searched one by
# one.

_MOST = 32
"""Layers of a block. Tried: without a limit, scopes that are whole layers of a transformer ("l0", 46 nodes) were raised
one and all, 148 nodes where 52 do."""
_NAMESPACE = "namespace"
"""Where exporters that number nodes say of which module each one is: "model: Net/layers.3: Layer/add: aten.add"."""


@dataclass(frozen=True)
class Units:
    """``members``: the layers of each unit. ``searched``: the units that may be raised or not, in the model's order."""

    members: tuple[tuple[int, ...], ...]
    searched: tuple[int, ...]

    @cached_property
    def _unit_of(self) -> dict[int, int]:
        return {layer: unit for unit in self.searched for layer in self.members[unit]}

    def of(self, layers: Iterable[int]) -> tuple[int, ...]:
        """Return the searched units of layers, each once, in the order of their first layer."""
        return tuple(dict.fromkeys(self._unit_of[layer] for layer in layers if layer in self._unit_of))

    def parents(self, of_layers: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """Return the units that each unit reads from, given the same of layers."""
        return tuple(
            tuple(sorted({*self.of(parent for layer in layers for parent in of_layers[layer])} - {unit}))
            for unit, layers in enumerate(self.members)
        )

    def prior(self, of_layers: Prior, costs: dict[int, float] | None = None) -> Prior:
        """Return what is known beforehand of layers for their units; ``costs``: of layers, cheap units come first."""
        price = self.costs(costs or {})
        return Prior(self.of(of_layers.suspects), tuple(sorted(self.of(of_layers.ranking), key=price.__getitem__)))

    def kinds(self, layers: tuple[Layer, ...], parents: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """Return the searched units that play the same part: like operators between like ones, in each block."""
        above: list[list[str]] = [[] for _ in layers]
        below: list[list[str]] = [[] for _ in layers]
        for index, makers in enumerate(parents):
            for maker in makers:
                above[index].append(layers[maker].op_type)
                below[maker].append(layers[index].op_type)
        found: dict[object, list[int]] = {}
        for unit in self.searched:
            part = [
                (layers[at].op_type, tuple(sorted(above[at])), tuple(sorted(below[at]))) for at in self.members[unit]
            ]
            found.setdefault(tuple(part), []).append(unit)
        return tuple(tuple(units) for units in found.values())

    def costs(self, of_layers: dict[int, float]) -> dict[int, float]:
        """Return what each unit costs, given the same of layers."""
        return {unit: sum(of_layers.get(layer, 0.0) for layer in self.members[unit]) for unit in self.searched}


def quantized_nodes(strategy: PrecisionSettings, loaded: Loaded) -> frozenset[str]:
    """Return the float model's nodes that a tool has quantized, where ``strategy.quantize.operators`` says which."""
    inherited, known = loaded.inherited, strategy.quantize.operators
    if inherited is None or strategy.low is not FloatType.quantized:
        return frozenset()
    return frozenset(node.name for node in inherited.parent.graph.nodes if node.op_type in known)


def followers(casting: PrecisionModel, quantized: Collection[str]) -> dict[int, int]:
    """Return the layers that are no nodes of these, and the one of them with which each is raised.

    A tool quantizes some nodes; what else reads their pairs does so because a pair serves all who read a tensor. As the
    tool has it where it excludes a node, that reads what the node makes as it is.
    """
    layers, pairs = casting.layers, pairs_of(casting.mixer.model.graph)[0] if quantized else {}
    own = [index for index, layer in enumerate(layers) if layer.path in quantized]
    makers = {name: index for index in own for name in layers[index].writes}
    beside = {name: index for index in reversed(own) for name in layers[index].reads}

    def leaders(layer: Layer) -> Iterator[int]:
        """Yield who makes what it reads, then who reads it beside."""
        read = [*layer.reads, *(pairs[name].source or "" for name in layer.reads if name in pairs)]
        yield from (table[name] for table in (makers, beside) for name in read if name in table)

    found = ((index, next(leaders(layer), None)) for index, layer in enumerate(layers) if layer.path not in quantized)
    return {index: leader for index, leader in found if leader is not None}


def units(unit: Unit, casting: PrecisionModel, fixed: Fixed, following: Collection[int] = ()) -> Units:
    """Return each layer as a unit, or the blocks; a layer that is not searched, or follows another, is part of none."""
    count = len(casting.layers)
    if unit is Unit.node:
        alone = tuple((index,) for index in range(count))
        own = (index for index in range(count) if fixed.is_searched(index) and index not in following)
        return Units(alone, tuple(own))
    named = blocks(casting.mixer.model, casting.mixer.types, casting.layers)
    inside = {index for block in named.values() for index in block}
    whole = [*named.values(), *((index,) for index in range(count) if index not in inside)]
    searched = (tuple(index for index in block if fixed.is_searched(index)) for block in whole)
    members = tuple(sorted(block for block in searched if block))
    return Units(members, tuple(range(len(members))))


def blocks(model: ModelProto, types: Mapping[str, TypeProto], layers: tuple[Layer, ...]) -> dict[str, tuple[int, ...]]:
    """Return the layers of each block, by index and in the model's order, by the scope of their names.

    ``types``: what is known besides the file's value_info. What is around the name of a nested graph's node is no scope
    of it, but part of what its block is called.
    """
    graphs = levels(model, types)
    scope_of = []
    for layer in layers:
        number, place = layer.key
        scope_of.append((number, _scope(graphs[number].graph.node[place], place)))
    counts = Counter(scope_of)
    found: dict[str, list[int]] = {}
    for index, (number, scope) in enumerate(scope_of):
        is_common = all(other[: len(scope)] == scope for _, other in counts)
        if not is_common and counts[number, scope] <= min(_MOST, len(layers) / 2):
            found.setdefault(graphs[number].prefix + "/".join(scope), []).append(index)
    return {name: tuple(members) for name, members in found.items()}


def _scope(node: NodeProto, place: int) -> tuple[str, ...]:
    name = node_label(node, place)
    if "/" not in name:
        name = next((one.value for one in node.metadata_props if one.key == _NAMESPACE), "")
    return tuple(part for part in name.split("/")[:-1] if part)
