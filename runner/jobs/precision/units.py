"""The units of a precision search: which layers are one, which are not searched, and what they cost."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from onnx import NodeProto, TensorProto

from runner.jobs.precision.layers import Layer, node_label
from runner.jobs.precision.measurements import SENTINEL, Measurements
from runner.jobs.precision.mixer import FloatNode
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.setup import PrecisionModel
from runner.judgment import UsageError
from runner.model.graph.low_precision import pairs_of
from runner.model.graph.scopes import initializers
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.reference.load import Loaded
from runner.schema.strategy import FloatType, PrecisionSettings, Unit, Untaken
from runner.text import close, listed
from strategies.search import Prior

_RULE = re.compile(r"\s*(range|error)\s*(>=?)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Fixed:
    """``high``: why a layer stays high, by its index. ``low``: those that stay low."""

    high: Mapping[int, str] = field(default_factory=dict)
    low: frozenset[int] = frozenset()

    def is_searched(self, index: int) -> bool:
        """Whether a layer may be raised or not."""
        return index not in self.high and index not in self.low


def fixed_layers(strategy: PrecisionSettings, casting: PrecisionModel, known: Measurements) -> Fixed:
    """Return what the settings and the measurements say. Raises UsageError for patterns and rules that are none."""
    layers = casting.layers
    kept = _matching("exclude", strategy.exclude, layers)
    low = frozenset(_matching("include", strategy.include, layers))
    if both := sorted(low & kept.keys()):
        raise UsageError(
            f"strategy.exclude and strategy.include both name {layers[both[0]].path}: the first keeps a node in "
            f"{strategy.high.value}, the second in {strategy.low.value}"
        )
    high, untaken = dict[int, str](), sorted(known.untaken) if strategy.untaken is Untaken.high else ()
    taken = dict.fromkeys(untaken, "in a branch or loop that no sample took").items()
    for index, why in (*kept.items(), *_measured(strategy.at_least, layers, known), *taken):
        if index not in low:
            high.setdefault(index, why)
    return Fixed(high, low)


def _matching(key: str, patterns: Sequence[str], layers: Sequence[Layer]) -> dict[int, str]:
    """Return the layers whose name or operator a pattern matches, with that pattern."""
    found: dict[int, str] = {}
    for pattern in patterns:
        matched = [
            index
            for index, layer in enumerate(layers)
            if layer.path == pattern or fnmatchcase(layer.path, pattern) or fnmatchcase(layer.op_type, pattern)
        ]
        if not matched:
            names = sorted({layer.path for layer in layers} | {layer.op_type for layer in layers})
            raise UsageError(
                f"strategy.{key}: no node that can run in both precisions has {pattern!r} as its name or operator"
                f"{close(pattern, names)}; * and ? stand for anything, as in a shell"
            )
        for index in matched:
            found.setdefault(index, f"strategy.{key}={pattern}")
    return found


def _measured(rules: Sequence[str], layers: Sequence[Layer], known: Measurements) -> Iterator[tuple[int, str]]:
    for rule in rules:
        match = _RULE.fullmatch(rule)
        if match is None:
            raise UsageError(
                f"strategy.at_least: {rule!r} is no rule; give what was measured and a number, 'range > 512' (the "
                "largest magnitude that a node reads or makes) or 'error > 0.01' (what it introduces, relative)"
            )
        if not known.errors and not known.ranges:
            raise UsageError(
                f"strategy.at_least={rule}: nothing was measured of this model (see the warnings), so no node can be "
                "kept high by it; name nodes or operators instead: strategy.exclude=[Softmax]"
            )
        limit = float(match[3])
        for index, layer in enumerate(layers):
            if match[1] == "error":
                value = known.errors.get(index, 0.0)
            else:
                ranges = (known.range_of(layer, name) for name in (*layer.reads, *layer.writes))
                # values that stand for minus infinity do not count as magnitudes
                value = max((one for one in ranges if one < SENTINEL), default=0.0)
            if value > limit or (match[2] == ">=" and value == limit):
                yield index, f"strategy.at_least: {match[1]} {value:.3g} {match[2]} {limit:g}"


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
    named = blocks(casting)
    inside = {index for block in named.values() for index in block}
    whole = [*named.values(), *((index,) for index in range(count) if index not in inside)]
    searched = (tuple(index for index in block if fixed.is_searched(index)) for block in whole)
    members = tuple(sorted(block for block in searched if block))
    return Units(members, tuple(range(len(members))))


def blocks(casting: PrecisionModel) -> dict[str, tuple[int, ...]]:
    """Return the layers of each block, by index and in the model's order, by the scope of their names.

    What is around the name of a nested graph's node is no scope of it, but part of what its block is called.
    """
    graphs, layers = casting.mixer.levels, casting.layers
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


Shapes = Mapping[str, tuple[int, ...]]

_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
_CONVOLUTIONS = ("Conv", "FusedConv", "NhwcFusedConv")
_ATTENTIONS = ("Attention", "MultiHeadAttention", "GroupQueryAttention")


def nodes_of(casting: PrecisionModel) -> tuple[FloatNode, ...]:
    """Return the float nodes that count: all; where only Q/DQ pairs make the difference, those that read one."""
    return tuple(one for one in casting.mixer.float_nodes if one.index is not None or not casting.quantized)


def low_share(casting: PrecisionModel, loaded: Loaded, raised: frozenset[int]) -> dict[str, float]:
    """Return the shares that are low in the model in which the layers of ``raised`` are high, between 0 and 1.

    ``nodes``; ``flops``: of the top-level ones, estimated from the shapes that were recorded; ``weights``: of the
    numbers that nodes read, those of a weight that is there in both types twice.
    """
    counts, work, stored = [0.0, 0.0], [0.0, 0.0], dict[tuple[str, bool], int]()
    for high, flops, weights in _parts(casting, loaded, raised):
        counts[high] += 1
        work[high] += flops
        stored |= {(name, high): size for name, size in weights.items()}
    numbers = (float(sum(size for (_, high), size in stored.items() if high is side)) for side in (False, True))
    return {"nodes": _share(*counts), "flops": _share(*work), "weights": _share(*numbers)}


def _parts(
    casting: PrecisionModel, loaded: Loaded, raised: frozenset[int]
) -> Iterator[tuple[bool, float, Mapping[str, int]]]:
    """Yield of each part of a model whether it is high, its arithmetic, and its weights with their sizes."""
    mixer = casting.mixer
    if isinstance(mixer, RegionMixer):
        work = arithmetic(casting, loaded)
        yield from ((at in raised, work[at], {str(at): one.weights}) for at, one in enumerate(mixer.found))
        return
    shapes = _shapes(casting, loaded)
    held = {one.name: one for one in initializers(mixer.model) if one.data_type in FLOATS}
    held |= {name: one.constant for pairs in pairs_of(mixer.model.graph) for name, one in pairs.items() if one.constant}
    sizes = {name: tensor_bytes.elements(one.dims) for name, one in held.items()}
    for one in nodes_of(casting):
        weights = {name: sizes[name] for name in one.node.input if name in sizes}
        yield one.is_high(raised), 0.0 if one.number else _flops(one.node, shapes), weights


def arithmetic(casting: PrecisionModel, loaded: Loaded) -> dict[int, float]:
    """Estimate the floating-point operations of each top-level layer from the shapes that were recorded."""
    shapes, nodes = _shapes(casting, loaded), casting.mixer.model.graph.node
    if isinstance(casting.mixer, RegionMixer) and loaded.inherited:
        parent = loaded.inherited.parent
        shapes = {name: one.shape for sample in parent.values[:1] for name, one in sample.items()}
        weights = ((name, one) for name, one in parent.graph.initializers.items() if isinstance(one, TensorProto))
        shapes |= {name: tuple(one.dims) for name, one in weights}
        return {
            index: sum(_flops(parent.graph.protos[at], shapes) for at in one.parent)
            for index, one in enumerate(casting.mixer.found)
        }
    return {
        index: 0.0 if layer.nested else _flops(nodes[layer.key[1]], shapes)
        for index, layer in enumerate(casting.layers)
    }


def costs_of(strategy: PrecisionSettings, casting: PrecisionModel, loaded: Loaded) -> dict[int, float]:
    """Return what each layer costs in high precision: the user's table, else its arithmetic.

    Raises UsageError for names that are none, and for costs that are no costs.
    """
    if not strategy.costs:
        return arithmetic(casting, loaded)
    known = {layer.path for layer in casting.layers}
    if strangers := [name for name in strategy.costs if name not in known]:
        called = f"is called {strangers[0]!r}; they are {listed(sorted(known))}"
        raise UsageError(f"strategy.costs: no node that can run in both precisions {called}")
    for name, cost in strategy.costs.items():
        if not 0 <= cost < math.inf:
            raise UsageError(f"strategy.costs.{name}={cost}: a cost is a number that is not negative")
    return {index: float(strategy.costs.get(layer.path, 0.0)) for index, layer in enumerate(casting.layers)}


def _shapes(casting: PrecisionModel, loaded: Loaded) -> Shapes:
    shapes = {name: one.shape for sample in loaded.recorded.values[:1] for name, one in sample.items()}
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in casting.mixer.model.graph.initializer}


def _flops(node: NodeProto, shapes: Shapes) -> float:
    made = float(sum(math.prod(shapes.get(name, ())) for name in node.output if name in shapes))
    first, second = (*(shapes.get(name, ()) for name in node.input[:2]), (), ())[:2]
    if node.op_type in _ATTENTIONS:
        return made + _attention(node, first, second)
    if not first or not second:
        return made
    if node.op_type in _PRODUCTS:
        turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        return 2.0 * made * (first[-2] if turned and len(first) > 1 else first[-1])
    inner = math.prod(second[1:])  # of a weight: (M, C/group, k...), or (C, M/group, k...)
    if node.op_type in _CONVOLUTIONS:
        return 2.0 * made * inner
    return 2.0 * math.prod(first) * inner if node.op_type == "ConvTranspose" else made


def _attention(node: NodeProto, first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Return the work of ONNX Runtime's attentions: logits and their product with the values, and what they project."""
    if len(first) != 3 or not node.domain:
        return 0.0
    batch, length, width = first
    if node.op_type == "Attention":
        projected = 2.0 * batch * length * width * (second[-1] if second else 0)
        return projected + 4.0 * batch * length * length * width
    return 4.0 * batch * length * (second[1] if len(second) == 3 else length) * width


def _share(low: float, high: float) -> float:
    return round(low / (low + high), 6) if low + high else 1.0
