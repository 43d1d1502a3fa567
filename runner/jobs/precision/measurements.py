"""Samples of a precision search, those that it does not look at, and what is measured on them to rank layers."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto

from runner.jobs.precision.layers import Layer
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.setup import PrecisionModel, samples_of
from runner.judgment import UsageError
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import is_quantization, pairs_of
from runner.model.graph.scopes import NameSupply, graphs_below
from runner.model.values import recorded
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.reference.hints import brings_own
from runner.reference.load import Loaded, profiled_samples
from runner.reference.models import outputs_of
from runner.reference.parent import with_outputs
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.verdict import Sample
from runner.workers.pool import Pool, limited
from strategies.search import Prior

# Variants of input samples: their floats perturbed by up to 1 %, so that other rounding errors occur.

MOVED = 0.01
"""By which share of itself a number is moved at most."""
_FLOATS = ("float16", "float32", "float64", "bfloat16")


def variants(
    samples: Sequence[Mapping[str, TensorFile]], count: int, seed: int, folder: Path
) -> tuple[Mapping[str, TensorFile], ...]:
    """Return ``count`` variants of the samples in turn; none where no sample holds real numbers.

    A tensor of whole numbers stands for something (a mask, an index, a step) and stays; the others keep their zeros and
    stay between their least and largest values. Files are written into ``folder``.
    """
    found = []
    for number in range(count):
        generator = np.random.Generator(np.random.PCG64([seed, number]))
        sample = samples[number % len(samples)]
        made = {}
        for position, (name, tensor) in enumerate(sample.items()):
            moved = _moved(tensor, generator, folder / f"variant_{number}" / f"input_{position}.pb")
            if moved is not None:
                made[name] = moved
        if made:
            found.append({**sample, **made})
    return tuple(found)


def _moved(tensor: TensorFile, generator: np.random.Generator, path: Path) -> TensorFile | None:
    if tensor.structure is not None:
        return None
    array = recorded.read(tensor)
    if str(array.dtype) not in _FLOATS or not array.size:
        return None
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size or np.array_equal(finite, np.rint(finite)):
        return None
    with np.errstate(invalid="ignore"):
        moved = wide * (1 + generator.uniform(-MOVED, MOVED, wide.shape))
    np.clip(moved, finite.min(), finite.max(), where=np.isfinite(wide), out=moved)
    path.parent.mkdir(parents=True, exist_ok=True)
    return recorded.write(moved.astype(array.dtype), tensor.name, path)


log = logging.getLogger(__name__)

SHARE = 3
"""Of so many samples one is held out."""
LEAST = 4
"""Samples that are made to be held out are cheap: so many at least."""
NONE_LEFT = "there are no samples but those that are searched"
GIVEN, DRAWN, VARIANTS = "given", "drawn", "variants of those given"
HELD_OUT = {GIVEN: "unseen sample", DRAWN: "fresh random sample", VARIANTS: "varied sample"}
"""A sample that is held out, in words, by its kind."""
_SEED = 0x9E3779B9

Values = Mapping[str, TensorFile]
"""What the inputs of the model hold, and what its outputs should."""


@dataclass(frozen=True)
class Division:
    """``kind``: what those are that are held out; ``reason``: why none is; both for a person."""

    searched: tuple[Values, ...]
    held: tuple[Values, ...] = ()
    reason: str = ""
    kind: str = GIVEN

    @property
    def given(self) -> int:
        """How many samples are the user's own, or the first that were drawn."""
        return len(self.searched) + (len(self.held) if self.kind == GIVEN else 0)


def held_places(given: int, wanted: int | None) -> set[int]:
    """Return which of the user's own samples are held out, evenly spread; ``wanted``: how many, None: as fits."""
    count = (given // SHARE or 1) if wanted is None else wanted
    return {given - 1 - (number * given) // count for number in range(count)}


@dataclass
class Samples:
    """Makes samples of mixed models of values, and further ones: random ones, or variants of those given.

    ``folder``: for values. ``wanted``: how many to hold out, None: as fits those that are searched.
    """

    settings: Settings
    casting: PrecisionModel
    loaded: Loaded
    pool: Pool
    folder: Path
    wanted: int | None
    _made: int = 0
    _nth: int = 0

    @property
    def is_endless(self) -> bool:
        """Whether there are as many as one likes."""
        return isinstance(self.settings.inputs, RandomInputs) and self.settings.inputs.name == "random"

    def divide(self) -> Division:
        """Say which samples are searched on, and which are held out.

        Of the user's own they are evenly spread. Raises UsageError where none is left to search on.
        """
        values, wanted = self.loaded.recorded.values, self.wanted
        checker = self.settings.checker
        if not checker.runs_samples:
            whose = "has data of its own" if brings_own(checker) else "judged all samples in the search"
            return Division(values, reason=f"checker={checker.name} {whose}")
        if wanted == 0:
            return Division(values, reason="strategy.held_out=0")
        if not values:
            return Division(values, reason="there are no samples")
        if self.is_endless or len(values) == 1:
            return self.further(values)
        if wanted is not None and wanted >= len(values):
            raise UsageError(
                f"strategy.held_out={wanted}: there are {len(values)} samples, and one at least has to be searched on"
            )
        places = held_places(len(values), wanted)
        held = tuple(one for place, one in enumerate(values) if place in places)
        return Division(tuple(one for place, one in enumerate(values) if place not in places), held)

    def further(self, searched: tuple[Values, ...]) -> Division:
        """Return those that are searched on, and further ones held out, if there are any."""
        held = self.more(searched)
        return Division(searched, held, "" if held else NONE_LEFT, DRAWN if self.is_endless else VARIANTS)

    def of(self, values: tuple[Values, ...]) -> tuple[Sample, ...]:
        """Return samples with good outputs, in the types that mixed models have.

        Raises what `samples_of` does, and UsageError where the reference cannot run the model with everything raised.
        """
        self._made += 1
        casting, folder = self.casting, self.folder / f"cast{self._made}"
        made = samples_of(casting, self.loaded, values, folder)
        told = self.settings.reference.model or self.loaded.expected or self.settings.checker.runs_own_code
        if not made or told or not casting.is_lossy:
            return made
        # the file itself is not as good as the model with everything raised
        everything = casting.mixer.mixed(frozenset(range(len(casting.layers))))
        try:
            good = self._outputs(everything, [sample.feeds for sample in made], folder.with_name(f"raised{self._made}"))
        except UsageError as error:
            raise UsageError(f"model={self.settings.model}: with everything in high precision {error}") from None
        return tuple(replace(sample, expected=outputs) for sample, outputs in zip(made, good, strict=True))

    def more(self, searched: tuple[Values, ...]) -> tuple[Values, ...]:
        """Return samples that nobody has looked at, with the outputs of the reference: drawn, or variants of those.

        None where there are none, or the reference cannot run them.
        """
        if not self.loaded.graph.inputs or self.loaded.recorded.off > 1:
            return ()
        self._nth += 1
        wanted, folder = self.wanted, self.folder / f"more{self._nth}"
        count = max(LEAST, (len(searched) + 1) // (SHARE - 1)) if wanted is None else wanted
        try:
            if self.is_endless:
                feeds = self._drawn(count, folder)
            else:  # samples that were held out last come first: they showed something new
                given = [
                    {name: one[name] for name in self.loaded.graph.inputs if name in one} for one in searched[::-1]
                ]
                feeds = variants(given, count, self._nth, folder / "inputs")
            return self._told(feeds, folder) if feeds else ()
        except UsageError as error:
            log.warning("no further samples to hold out: %s", error)
            return ()

    def _drawn(self, count: int, folder: Path) -> tuple[Values, ...]:
        inputs = self.settings.inputs
        assert isinstance(inputs, RandomInputs)
        others = replace(self.settings, inputs=replace(inputs, samples=count, seed=inputs.seed + self._nth * _SEED))
        drawn, _ = profiled_samples(others, self.loaded.graph, self.pool, folder / "inputs")
        return drawn[:count]

    def _told(self, feeds: tuple[Values, ...], folder: Path) -> tuple[Values, ...]:
        settings, loaded = self.settings, self.loaded
        if loaded.inherited:
            place = folder / "parent"
            return with_outputs(settings, loaded.graph, loaded.store, loaded.inherited, feeds, self.pool, place)
        outputs = self._outputs(copy_of(loaded.graph.model), feeds, folder / "outputs")
        return tuple({**fed, **made} for fed, made in zip(feeds, outputs, strict=True))

    def _outputs(self, model: ModelProto, feeds: Sequence[Values], folder: Path) -> list[Values]:
        """Return what the reference makes of a model. Raises UsageError where it cannot run it."""
        path = self.loaded.store.write(model, folder, "whole")
        try:
            return outputs_of(self.settings, self.pool, path, feeds, folder)
        finally:
            path.unlink(missing_ok=True)


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
