"""Layer sensitivity: errors and ranges from one instrumented run, which rank the layers of a precision search."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from runner.jobs.precision.both_precisions import Casting
from runner.jobs.precision.cast.layers import Layer
from runner.jobs.precision.cast.quantized_copies import add_quantized
from runner.jobs.precision.held_out_samples import Samples, Values
from runner.model.graph.scopes import graphs_below
from runner.model.values.dtypes import FLOATS
from strategies.precision import Prior

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
    casting, loaded, limits = samples.casting, samples.loaded, samples.settings.workers
    # it is fed as the model was: inputs keep their types
    mixer = replace(casting.mixer, keep_io=True)
    everything = frozenset(range(len(casting.layers)))
    path = loaded.store.folder / "instrumented.onnx"
    model = mixer.mixed(everything)
    pairs = add_quantized(model, casting.mixer.model, casting.layers) if casting.quantized else None
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
    reply = samples.pool.call("introduced", args, timeout=limits.timeout, memory_mb=limits.memory_mb)
    path.unlink(missing_ok=True)
    if reply.value is None:
        why = reply.failure.message if reply.failure else reply.death
        log.warning("the error of each layer is not known (%s): nodes are tried in their order", why)
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


def prior(casting: Casting, known: Measurements, parents: Sequence[tuple[int, ...]]) -> Prior:
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
