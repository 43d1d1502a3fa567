"""What is measured to rank the layers of a precision search before it begins."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import ModelProto, NodeProto

from runner.jobs.precision.held_out_samples import Samples, Values
from runner.jobs.precision.layers import Layer
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.setup import PrecisionModel
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import is_quantization, pairs_of
from runner.model.graph.scopes import NameSupply, graphs_below
from runner.model.values.dtypes import FLOATS
from runner.workers.pool import limited
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


def measure(samples: Samples, values: Sequence[Values]) -> Measurements:
    """Run the model once with a rounded copy of each layer beside it; nothing is known where that cannot be done.

    ``samples``: of which model. ``values``: of its inputs, whatever else they hold.
    """
    casting, loaded = samples.casting, samples.loaded
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
