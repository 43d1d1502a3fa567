"""Layers before a search: what is measured of them, which are one unit, which are not searched, what they cost."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from onnx import ModelProto, NodeProto, TensorProto

from runner.exit_codes import UsageError
from runner.jobs.precision.layers import Layer, node_label
from runner.jobs.precision.mixer import FloatNode
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.setup import PrecisionModel
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import is_quantization, pairs_of
from runner.model.graph.scopes import NameSupply, initializers
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.reference.load import Loaded
from runner.schema.root import Settings
from runner.schema.strategy import FloatType, PrecisionSettings, Unit, Untaken
from runner.text import close, listed
from runner.workers.pool import Pool, limited
from strategies.search import Prior

log = logging.getLogger(__name__)

# Adds a quantized copy beside each raised layer, to measure the error that its Q/DQ pairs introduce.
#
# In a model with everything raised each layer gets a copy that reads what the pairs make of the same values. So the
# error that pairs introduce is seen where it comes from, not where it arrives.


def add_quantized(raised: ModelProto, original: ModelProto, layers: Iterable[Layer]) -> list[list[object]]:
    """Add copies of layers, and of the pairs that they read, to a model with all layers raised, in place.

    Returns [[index of the layer, number of its graph, what it makes, what its copy makes]]; beside what the graph hands
    out through a pair stands what the pair makes of it. Graphs are numbered in reading order. Left out: layers with a
    graph of their own, and those whose tensors the raised model has not.
    """
    below, made = (list(scopes.graphs_below(one.graph)) for one in (original, raised))
    makers = {name: node for graph in below for node in graph.node for name in node.output}
    outputs = {value.name for value in original.graph.output}
    handed = {pair.source: name for name, pair in pairs_of(original.graph)[0].items() if name in outputs}
    supply, copies = NameSupply({*scopes.names_of(original), *scopes.names_of(raised)}), dict[tuple[int, str], str]()

    def low(number: int, name: str) -> str:
        """Return what a graph has of a tensor where pairs are as they were."""
        maker = makers.get(name)
        if maker is None or not is_quantization(maker):
            return name
        if (number, name) not in copies:
            copies[number, name] = copied(number, maker)[0]
        return copies[number, name]

    def copied(number: int, node: NodeProto) -> list[str]:
        copy, reads = copy_of(node), [low(number, name) for name in node.input]
        copy.name, copy.input[:] = "", reads
        copy.output[:] = [name and supply.fresh(f"{name}_quantized") for name in node.output]
        made[number].node.append(copy)
        return list(copy.output)

    found: list[list[object]] = []
    there = [{name for node in graph.node for name in node.output} for graph in made]
    for index, layer in enumerate(layers):
        number, place = layer.key
        node = below[number].node[place]
        if not scopes.subgraphs(node) and there[number].issuperset(layer.writes):
            beside = dict(zip(node.output, copied(number, node), strict=True))
            found += [[index, number, name, beside[name]] for name in layer.writes]
            ends = [handed[name] for name in layer.writes if number == 0 and name in handed]
            found += [[index, 0, name, low(0, name)] for name in ends]
    wanted = {name for node in makers.values() if is_quantization(node) for name in node.input}
    wanted -= {name for graph in made for name in initializers_of(graph)}
    gone = {tensor.name: tensor for graph in reversed(below) for tensor in graph.initializer if tensor.name in wanted}
    raised.graph.initializer.extend(gone.values())
    return found


SPREAD = 16.0
"""A layer whose error is so many times that of one rounding has it from what it reads: its producers are likely too."""
SENTINEL = 1e30
"""Values from here on stand for infinity; nobody computes with them."""


@dataclass(frozen=True)
class Measurements:
    """What one instrumented run told.

    ``errors``: of each layer (inf: not finite). ``ranges``: the largest magnitude by "GRAPH/TENSOR". ``untaken``:
    layers in branches that no sample took, and in loops that none went round. ``why``: why nothing was measured, where
    nothing was.
    """

    errors: Mapping[int, float] = field(default_factory=dict)
    ranges: Mapping[str, float] = field(default_factory=dict)
    untaken: frozenset[int] = frozenset()
    why: str = ""

    def range_of(self, layer: Layer, name: str) -> float:
        """Return the largest magnitude of a tensor that a layer reads or makes; zero: not known."""
        return self.ranges.get(f"{layer.key[0]}/{name}", 0.0)


def measure(
    settings: Settings, pool: Pool, casting: PrecisionModel, loaded: Loaded, samples: Sequence[Mapping[str, TensorFile]]
) -> Measurements:
    """Run the model once with a rounded copy of each layer beside it; nothing is known where that cannot be done.

    ``samples``: what its inputs hold, and whatever else.
    """
    # it is fed as the model was: inputs keep their types
    mixer = replace(casting.mixer, keep_io=True)
    path = loaded.store.folder / "instrumented.onnx"
    pairs: list[list[object]] | None = None
    if isinstance(mixer, RegionMixer):
        model, pairs = mixer.measured()
    else:
        model = mixer.mixed(mixer.everything)
        if casting.quantized:
            pairs = add_quantized(model, casting.mixer.model, casting.layers)
    path.write_bytes(model.SerializeToString())
    names = {(layer.key[0], name) for layer in casting.layers for name in (*layer.reads, *layer.writes)}
    args = {
        "model": str(path),
        "low": casting.pair.low,
        "largest": FLOATS[casting.pair.low].largest,
        "layers": [
            [index, layer.key[0], layer.writes[0]] for index, layer in enumerate(casting.layers) if layer.writes
        ],
        "tensors": sorted(names),
        "beside": pairs,
        "clamped": sorted(casting.clamped),
        "samples": [
            {name: str(sample[name].path) for name in loaded.graph.inputs if name in sample} for sample in samples
        ],
    }
    reply = limited(pool, settings, "introduced", args)
    path.unlink(missing_ok=True)
    if reply.value is None:
        log.warning("the error of each layer is not known (%s): nodes are tried in their order", reply.why)
        return Measurements(why="the instrumented run failed")
    errors = {int(index): math.inf if error is None else float(error) for index, error in reply.value["layers"].items()}
    ranges = {str(name): math.inf if most is None else float(most) for name, most in reply.value["ranges"].items()}
    silent = set(reply.value["silent"])
    untaken = frozenset(
        index
        for index, layer in enumerate(casting.layers)
        if layer.nested and any(f"{layer.key[0]}/{name}" in silent for name in layer.writes)
    )
    return Measurements(errors, ranges, untaken)


def prior(casting: PrecisionModel, known: Measurements, parents: Sequence[tuple[int, ...]]) -> Prior:
    """Return what ranges and introduced errors say.

    A tensor beyond the range has to be high where it is made and where it is read.
    """
    largest = FLOATS[casting.pair.low].largest
    # weights beyond the range are clamped, and a clamped mask still stands for minus infinity
    weights = {tensor.name for tensor in initializers(casting.mixer.model)}
    suspects = tuple(
        index
        for index, layer in enumerate(casting.layers)
        if any(
            largest < known.range_of(layer, name) < SENTINEL
            for name in (*layer.reads, *layer.writes)
            if name not in weights
        )
    )
    scores = {index: known.errors.get(index, 0.0) for index in range(len(casting.layers))}
    one_rounding = 2.0 ** -FLOATS[casting.pair.low].digits
    # downstream first: a layer's error may come from far above; the error of its own Q/DQ pairs does not
    for index in () if casting.quantized else sorted(scores, reverse=True):
        if scores[index] > SPREAD * one_rounding:
            for parent in parents[index]:
                scores[parent] = max(scores[parent], scores[index] * 0.999)
    ranking = tuple(sorted(scores, key=lambda index: (-scores[index], index)))
    return Prior(suspects, ranking)


# Layers that are not searched, whatever is found.

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
