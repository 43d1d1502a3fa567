"""From a loaded model to everything that a precision search needs: types, weights in both precisions, a prior."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from runner.candidate import Sample
from runner.errors import NotApplicable, UsageError
from runner.loading import Loaded
from runner.model.cast.layers import Layer, Pair, layers
from runner.model.cast.mixed import Mixer
from runner.model.scopes import graphs_below
from runner.model.values import TensorFile
from runner.schema.root import Settings
from runner.schema.strategy import FloatType, PrecisionSettings
from runner.subjects.recording import recorded_types
from runner.workers.pool import Pool
from strategies.precision import Prior

log = logging.getLogger(__name__)

DTYPES = {
    FloatType.float32: TensorProto.FLOAT,
    FloatType.float16: TensorProto.FLOAT16,
    FloatType.bfloat16: TensorProto.BFLOAT16,
}
LARGEST = {TensorProto.FLOAT16: 65504.0, TensorProto.BFLOAT16: 3.39e38, TensorProto.FLOAT: 3.4e38}
SMALLEST = {TensorProto.FLOAT16: 5.96e-8, TensorProto.BFLOAT16: 9.2e-41, TensorProto.FLOAT: 1.4e-45}
SPREAD = 16.0
"""A layer whose error is so many times that of one rounding has it from what it reads: its producers are likely too."""
SENTINEL = 1e30
"""Values from here on stand for infinity; nobody computes with them."""
_DIGITS = {TensorProto.FLOAT16: 11, TensorProto.BFLOAT16: 8, TensorProto.FLOAT: 24}


@dataclass(frozen=True)
class Facts:
    """What one instrumented run told.

    ``errors``: of each layer (inf: not finite). ``ranges``: (largest, smallest) magnitude by "GRAPH/TENSOR".
    """

    errors: Mapping[int, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def range_of(self, layer: Layer, name: str) -> tuple[float, float]:
        """Return the largest and the smallest magnitude of a tensor that a layer reads or makes; zeros: not known."""
        return self.ranges.get(f"{layer.key[0]}/{name}", (0.0, 0.0))


@dataclass(frozen=True)
class Casting:
    """``clamped`` / ``flushed``: initializers with values that the low type does not reach, and how many."""

    mixer: Mixer
    pair: Pair
    clamped: Mapping[str, int]
    flushed: Mapping[str, int]
    warnings: tuple[str, ...]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The elements."""
        return self.mixer.layers


def pair_of(strategy: PrecisionSettings) -> Pair:
    """Return the two types. Raises UsageError if they are one, or the low one is the wider."""
    if strategy.low is strategy.high or strategy.low is FloatType.float32:
        raise UsageError(
            f"strategy.low={strategy.low.value} strategy.high={strategy.high.value}: the low precision must be "
            "narrower than the high one: low is float16 or bfloat16, high float32 (or the other of the two)"
        )
    return Pair(DTYPES[strategy.low], DTYPES[strategy.high])


def cast(settings: Settings, strategy: PrecisionSettings, loaded: Loaded, pool: Pool) -> Casting:
    """Find the layers, and make the weights in the other type. Raises NotApplicable for a model without any."""
    pair, store = pair_of(strategy), loaded.store
    typed = store.folder / "typed.onnx"
    reply = _worked(pool, settings, "prepare_cast", {"model": str(store.structure), "out": str(typed)})
    model = onnx.ModelProto()
    model.ParseFromString(typed.read_bytes())
    model.ir_version = max(model.ir_version, 4)  # initializers need not be inputs from there on
    types = {**loaded.types, **recorded_types(loaded.recorded.values)}
    found = layers(model, types, pair)
    if not found:
        raise NotApplicable(
            f"model={settings.model}: no node of it can run in both {strategy.low.value} and {strategy.high.value}: "
            "other operators, other types, or an opset whose operators do not know them"
        )
    warnings = [reply["warning"]] if reply["warning"] else []
    weights, clamped, flushed = _weights(settings, pool, store.folder, typed, pair)
    mixer = Mixer(model, types, found, pair, weights, keep_io=strategy.keep_io)
    return Casting(mixer, pair, clamped, flushed, tuple(warnings))


def _weights(settings: Settings, pool: Pool, folder: Path, typed: Path, pair: Pair) -> tuple[Any, Any, Any]:
    """Convert the initializers of each type of the pair to the other one; return what gives them, and the counts."""
    tables: dict[tuple[str, int], TensorProto] = {}
    clamped: dict[str, int] = {}
    flushed: dict[str, int] = {}
    for source, target in ((pair.high, pair.low), (pair.low, pair.high)):
        out = folder / f"weights-{target}.onnx"
        args = {"model": str(typed), "source": source, "target": target, "out": str(out)}
        counted = _worked(pool, settings, "convert_weights", args)
        made = onnx.ModelProto()
        made.ParseFromString(out.read_bytes())
        tables |= {(tensor.name, target): tensor for tensor in made.graph.initializer}
        if target == pair.low:
            clamped, flushed = counted["clamped"], counted["flushed"]
    return (lambda number, name, dtype: tables[f"{number}/{name}", dtype]), clamped, flushed


def facts(settings: Settings, casting: Casting, loaded: Loaded, pool: Pool) -> Facts:
    """Run the model once with a rounded copy of each layer beside it; nothing is known where that cannot be done."""
    mixer = casting.mixer
    everything = frozenset(range(len(casting.layers)))
    path = loaded.store.folder / "instrumented.onnx"
    path.write_bytes(mixer.mixed(everything).SerializeToString())
    names = {(layer.key[0], name) for layer in casting.layers for name in (*layer.reads, *layer.writes)}
    args = {
        "model": str(path),
        "low": casting.pair.low,
        "layers": [
            [index, layer.key[0], layer.writes[0]] for index, layer in enumerate(casting.layers) if layer.writes
        ],
        "tensors": sorted(names),
        "samples": [
            {name: str(sample[name].path) for name in loaded.graph.inputs if name in sample}
            for sample in loaded.recorded.values
        ],
    }
    reply = pool.call("introduced", args, timeout=settings.workers.timeout, memory_mb=settings.workers.memory_mb)
    path.unlink(missing_ok=True)
    if reply.value is None:
        why = reply.failure.message if reply.failure else reply.death
        log.warning("the error of each layer is not known (%s): nodes are tried in their order", why)
        return Facts()
    errors = {int(index): math.inf if error is None else float(error) for index, error in reply.value["layers"].items()}
    ranges = {
        str(name): (math.inf if most is None else float(most), 0.0 if least is None else float(least))
        for name, (most, least) in reply.value["ranges"].items()
    }
    return Facts(errors, ranges)


def prior(casting: Casting, known: Facts, parents: Sequence[tuple[int, ...]]) -> Prior:
    """Return what ranges and introduced errors say.

    A tensor beyond the range has to be high where it is made and where it is read.
    """
    largest = LARGEST[casting.pair.low]
    # weights are clamped, and a mask that stands for minus infinity goes on doing so when it is
    weights = {tensor.name for graph in graphs_below(casting.mixer.model.graph) for tensor in graph.initializer}
    suspects = tuple(
        index
        for index, layer in enumerate(casting.layers)
        if any(
            largest < known.range_of(layer, name)[0] < SENTINEL
            for name in (*layer.reads, *layer.writes)
            if name not in weights
        )
    )
    scores = {index: known.errors.get(index, 0.0) for index in range(len(casting.layers))}
    one_rounding = 2.0 ** -_DIGITS[casting.pair.low]
    # downstream first: what a layer suffers from may come from far above
    for index in sorted(scores, reverse=True):
        if scores[index] > SPREAD * one_rounding:
            for parent in parents[index]:
                scores[parent] = max(scores[parent], scores[index] * 0.999)
    ranking = tuple(sorted(scores, key=lambda index: (-scores[index], index)))
    return Prior(suspects, ranking)


def samples_of(casting: Casting, loaded: Loaded) -> tuple[Sample, ...]:
    """Return what the mixed models are fed, and what their outputs should be."""
    outputs = tuple(value.name for value in casting.mixer.model.graph.output)
    return tuple(
        Sample(
            {name: sample[name] for name in loaded.graph.inputs if name in sample},
            {name: _expected(sample[name]) for name in outputs if name in sample},
        )
        for sample in loaded.recorded.values
    )


def _expected(tensor: TensorFile) -> TensorFile:
    return tensor


def _worked(pool: Pool, settings: Settings, op: str, args: Mapping[str, Any]) -> dict[str, Any]:
    reply = pool.call(op, args, timeout=settings.workers.timeout, memory_mb=settings.workers.memory_mb)
    if reply.value is None:
        why = reply.failure.message if reply.failure else reply.death
        raise UsageError(f"model={settings.model}: it cannot be made ready for another precision: {why}")
    return reply.value
