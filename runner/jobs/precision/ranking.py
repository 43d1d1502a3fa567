"""What is measured of layers: errors and ranges, which rank them; arithmetic and weights, which are what they cost."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from runner.jobs.precision.layers import Layer, is_quantization, pairs_of
from runner.jobs.precision.prepare_model import FloatNode, float_nodes
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.setup import PrecisionModel
from runner.jobs.precision.validation_samples import Samples, Values
from runner.judgment import UsageError
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.scopes import graphs_below, initializers
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.reference.load import Loaded
from runner.schema.strategy import PrecisionSettings
from runner.workers.pool import limited
from strategies.search import Prior

# Adds a quantized copy beside each raised layer, to measure the error that its Q/DQ pairs introduce.
#
# In a model with everything raised each layer gets a copy that reads what the pairs make of the same values. So the
# error that pairs introduce is seen where it comes from, not where it arrives.

_STEM = "winnow__quantized"


def add_quantized(raised: ModelProto, original: ModelProto, layers: Iterable[Layer]) -> list[list[object]]:
    """Add copies of layers to a model with all of them raised, in place.

    Returns [[index of the layer, number of its graph, what it makes, what its copy makes]]. Graphs are numbered in
    reading order. Left out: layers with a graph of their own, and those whose tensors the raised model has not.
    """
    known = pairs_of(original.graph)
    below, made = (list(scopes.graphs_below(one.graph)) for one in (original, raised))
    makers = {name: node for graph in below for node in graph.node for name in node.output}
    pairs, handed = {name for one in known for name in one}, {value.name for value in original.graph.output}
    ends = {pair.source: name for name, pair in known[0].items() if pair.source and name in handed}
    there = [{name for node in graph.node for name in node.output} for graph in made]
    copiers = [_Copier(f"{_STEM}_{number}", makers, pairs) for number in range(len(below))]
    found: list[list[object]] = []
    for index, layer in enumerate(layers):
        number, place = layer.key
        node = below[number].node[place]
        if not scopes.subgraphs(node) and there[number].issuperset(layer.writes):
            beside = copiers[number].beside(node, layer, {} if number else ends)
            found += [[index, number, name, other] for name, other in beside.items()]
    for graph, copier in zip(made, copiers, strict=True):
        graph.node.extend(copier.nodes)
    _restore_initializers(raised.graph, original.graph, makers)
    return found


class _Copier:
    """Makes copies of the layers of one graph. They stand behind everything that the graph has."""

    def __init__(self, stem: str, makers: Mapping[str, NodeProto], pairs: set[str]) -> None:
        self.nodes: list[NodeProto] = []
        self._stem, self._makers, self._pairs = stem, makers, pairs
        self._made: dict[str, str] = {}

    def beside(self, node: NodeProto, layer: Layer, ends: Mapping[str, str]) -> dict[str, str]:
        """Add a copy of a node with its pairs; return what it makes, by what the node makes or a graph hands out."""
        made = dict(zip(node.output, self._copied(node, map(self._quantized, node.input)), strict=True))
        # a graph output is limited by its pair in the model and in the copy alike
        return {
            ends.get(name, name): self._through(ends[name], made[name]) if name in ends else made[name]
            for name in layer.writes
        }

    def _quantized(self, name: str) -> str:
        """Return the name of what a pair makes; of any other tensor its own name."""
        if name not in self._pairs:
            return name
        if name not in self._made:
            self._made[name] = self._through(name)
        return self._made[name]

    def _through(self, name: str, source: str = "") -> str:
        """Copy a DequantizeLinear and, where there is one, the QuantizeLinear before it, which reads the source."""
        node = self._makers[name]
        first, *rest = node.input
        if (maker := self._makers.get(first)) is not None:
            first = self._copied(maker, [source or self._quantized(maker.input[0]), *maker.input[1:]])[0]
        return self._copied(node, [first, *rest])[0]

    def _copied(self, node: NodeProto, reads: Iterable[str]) -> list[str]:
        copy = copy_of(node)
        copy.name, copy.input[:] = "", list(reads)
        copy.output[:] = [name and f"{self._stem}_{len(self.nodes)}_{place}" for place, name in enumerate(node.output)]
        self.nodes.append(copy)
        return list(copy.output)


def _restore_initializers(graph: GraphProto, original: GraphProto, makers: Mapping[str, NodeProto]) -> None:
    """Add the initializers to a graph again that were removed with the pairs, those of nested graphs too."""
    wanted = {name for node in makers.values() if is_quantization(node) for name in node.input}
    there = {name for one in scopes.graphs_below(graph) for name in initializers_of(one)}
    for one in scopes.graphs_below(original):
        for tensor in one.initializer:
            if tensor.name in wanted and tensor.name not in there:
                there.add(tensor.name)
                graph.initializer.add().CopyFrom(tensor)


log = logging.getLogger(__name__)

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
        return self.measured_range(layer, name) or 0.0

    def measured_range(self, layer: Layer, name: str) -> float | None:
        """Return the same; None where it was not measured."""
        return self.ranges.get(f"{layer.key[0]}/{name}")


def measure(samples: Samples, values: Sequence[Values]) -> Measurements:
    """Run the model once with a rounded copy of each layer beside it; nothing is known where that cannot be done.

    ``samples``: of which model. ``values``: of its inputs, whatever else they hold.
    """
    casting, loaded = samples.casting, samples.loaded
    # it is fed as the model was: inputs keep their types
    mixer = replace(casting.mixer, keep_io=True)
    everything = frozenset(range(len(casting.layers)))
    path = loaded.store.folder / "instrumented.onnx"
    pairs: list[list[object]] | None = None
    if isinstance(mixer, RegionMixer):
        model, pairs = mixer.measured(everything)
    else:
        model = mixer.mixed(everything)
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
            {name: str(sample[name].path) for name in loaded.graph.inputs if name in sample} for sample in values
        ],
    }
    reply = limited(samples.pool, samples.settings, "introduced", args)
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
    weights = {tensor.name for graph in graphs_below(casting.mixer.model.graph) for tensor in graph.initializer}
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


# How much of a mixed-precision model is low (nodes, arithmetic, weights), and what layers cost in high precision.

Shapes = Mapping[str, tuple[int, ...]]

_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
_CONVOLUTIONS = ("Conv", "FusedConv", "NhwcFusedConv")
_ATTENTIONS = ("Attention", "MultiHeadAttention", "GroupQueryAttention")


def nodes_of(casting: PrecisionModel) -> tuple[FloatNode, ...]:
    """Return the float nodes that count: all; where only Q/DQ pairs make the difference, those that read one."""
    mixer = casting.mixer
    found = float_nodes(mixer.model, mixer.types, mixer.pair, mixer.layers, mixer.contrib)
    return tuple(one for one in found if one.index is not None or not casting.quantized)


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
        shown = ", ".join(sorted(known)[:3])
        raise UsageError(
            f"strategy.costs: no node that can run in both precisions is called {strangers[0]!r}; they are {shown}"
            f"{' and others' * (len(known) > 3)}"
        )
    for name, cost in strategy.costs.items():
        if not 0 <= cost < math.inf:
            raise UsageError(f"strategy.costs.{name}={cost}: a cost is a number that is not negative")
    return {index: float(strategy.costs.get(layer.path, 0.0)) for index, layer in enumerate(casting.layers)}


def _shapes(casting: PrecisionModel, loaded: Loaded) -> Shapes:
    shapes: dict[str, tuple[int, ...]] = {}
    for sample in loaded.recorded.values[:1]:
        shapes = {name: tensor.shape for name, tensor in sample.items()}
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
