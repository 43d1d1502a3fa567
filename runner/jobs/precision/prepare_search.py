"""What a precision search works with: samples, searched and held out, units, fixed layers, subject."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from runner.checkers.tolerances import coarse
from runner.engine.subject import values_digest
from runner.exit_codes import UsageError
from runner.jobs.precision.layers import Layer
from runner.jobs.precision.mixer import Mixer
from runner.jobs.precision.regions import examine
from runner.jobs.precision.setup import Ends, PrecisionModel, cast, samples_of
from runner.jobs.precision.units import (
    Fixed,
    Measurements,
    Units,
    arithmetic,
    costs_of,
    fixed_layers,
    followers,
    measure,
    prior,
    quantized_nodes,
    units,
)
from runner.model.files.candidate_store import Store
from runner.model.graph import scopes
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.edits import copy_of
from runner.model.graph.scopes import NameSupply
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.hints import brings_own
from runner.reference.load import Loaded, load, profiled_samples
from runner.reference.models import outputs_of
from runner.reference.parent import with_outputs
from runner.schema.inputs import FilesInputs, RandomInputs
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import Direction, Goal, PrecisionSettings, Unit
from runner.text import counted, listed
from runner.verdict import Candidate, Invalid, Sample
from runner.workers.pool import Pool
from strategies.precision import cheapest, grow
from strategies.search import Options, Prior, Space, Step, Trial

log = logging.getLogger(__name__)

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


SHARE = 3
"""Of so many samples one is held out."""
LEAST = 4
"""Samples that are made to be held out: so many at least."""
LEAST_DRAWN, LITTLE_WORK = 16, 1e8
"""The same of drawn ones, of a model whose sample takes at most so many operations: what fails on every tenth input
passes on 4 of them in two of three cases, on 16 in one of five."""
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
        everything = casting.mixer.mixed(casting.mixer.everything)
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
        cheap = self.is_endless and sum(arithmetic(self.casting, self.loaded).values()) <= LITTLE_WORK
        least = LEAST_DRAWN if cheap else LEAST
        count = max(least, (len(searched) + 1) // (SHARE - 1)) if wanted is None else wanted
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


# Subject `precision`: the elements are units of nodes that can run in low precision, a trial is what is raised.
#
# The candidate is the whole model, strongly typed, with casts where raised and other nodes meet.


@dataclass(frozen=True)
class Precision:
    """Makes mixed-precision models.

    ``samples``: what the model is fed, and what its outputs should be. ``space``: the units that are searched;
    ``members``: the layers of each unit; ``high``: layers that are raised in every trial. ``ends``: models that are
    checked as they are where nothing, or everything, is raised. ``following``: layers that are raised with another.
    """

    mixer: Mixer
    store: Store
    samples: tuple[Sample, ...]
    space: Space
    members: tuple[tuple[int, ...], ...]
    high: frozenset[int] = frozenset()
    ends: Ends = field(default_factory=Ends)
    following: Mapping[int, int] = field(default_factory=dict)

    def identity(self) -> dict[str, str]:
        """Return the two precisions, what is searched on which samples, and what happens to the rest."""
        mixer = self.mixer
        low, high = (onnx.TensorProto.DataType.Name(dtype).lower() for dtype in (mixer.pair.low, mixer.pair.high))
        paths = "\n".join(layer.path for layer in self.mixer.layers)
        searched = [self.members[unit] for unit in self.space.order]
        return {
            "kind": "precision",
            "low": "quantized" if low == high else low,
            "high": "int8" if mixer.instead else high,
            "keep_io": str(mixer.keep_io).lower(),
            "pairs": "restored where raised" if mixer.restores else "kept",
            "ends": ", ".join(name for name in ("given", "parent") if getattr(self.ends, name) is not None),
            "layers": hashlib.sha256(paths.encode()).hexdigest(),
            "searched": hashlib.sha256(
                f"{searched} {sorted(self.high)} {sorted(self.following.items()) or ''}".strip().encode()
            ).hexdigest(),
            "samples": values_digest(dict(sorted(sample.feeds.items())) for sample in self.samples),
        }

    def raised(self, trial: Trial) -> frozenset[int]:
        """Return all layers that are high in a trial."""
        raised = self.high.union(*(self.members[unit] for unit in trial))
        return raised | {layer for layer, leader in self.following.items() if leader in raised}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the paths of the nodes that a trial raises, in the model's order."""
        own = sorted(at for unit in trial for at in self.members[unit])
        return tuple(self.mixer.layers[index].path for index in own)

    def cut(self, trial: Trial) -> Cut:
        """Return the model in which the nodes of ``trial`` are raised; it is whole."""
        return Cut(self.model(self.raised(trial)), (), (), ())

    def model(self, raised: frozenset[int]) -> ModelProto:
        """Return the model in which these layers are high: an end as the user gave it, or one that is mixed."""
        end = self.ends.given if not raised else self.ends.parent if len(raised) == len(self.mixer.layers) else None
        return with_own_names(self.mixer.mixed(raised)) if end is None else copy_of(end)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the model in which the nodes of ``trial`` are raised, all others low."""
        try:
            path = self.store.write(self.cut(trial).model, folder)
        except CutError as error:
            return Invalid(str(error))
        return Candidate(path, folder, trial, self.samples, nodes=self.names(trial), temporary=True)


def with_own_names(model: ModelProto) -> ModelProto:
    """Return a model without the names that ONNX Runtime's fusions give to tensors; it is changed in place.

    A file that ONNX Runtime once optimized has them. A fusion that makes the same name again takes it for its own, and
    the model is refused ("Attempt to replace the existing tensor").
    """
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    names = scopes.names_of(model)
    supply = NameSupply(names)
    others = {name: supply.fresh(f"{name}_kept") for name in sorted(names - kept) if _OF_FUSIONS.search(name)}
    if others:
        scopes.rename_graph(model.graph, others, supply)
    return model


def parents_of(layers: tuple[Layer, ...]) -> tuple[tuple[int, ...], ...]:
    """Return for each layer those that make what it reads: culprits of one failure lie together."""
    makers = {name: index for index, layer in enumerate(layers) for name in layer.writes}
    return tuple(
        tuple(sorted({makers[name] for name in layer.reads if name in makers and makers[name] < index}))
        for index, layer in enumerate(layers)
    )


_OF_FUSIONS = re.compile(r"_token_\d+$|^gemm_(input|output)_(re)?shape")
"""Names that ONNX Runtime makes: a number behind the second of a name, and those of its MatMulAddFusion."""
_STRANGE = 0.5
"""The relative error from which on a node is not what another one was made of: quantizing costs less, but for a few."""


@dataclass(frozen=True)
class PrecisionSetup:
    """``known``: what was measured on the samples that are searched first; ``more``: on more of them, by their number.

    ``kept``: layers that are not searched. ``parents``: of layers. ``costs``: of layers, empty where few are wanted and
    not cheap ones.
    """

    settings: Settings
    strategy: PrecisionSettings
    pool: Pool
    loaded: Loaded
    casting: PrecisionModel
    samples: Samples
    division: Division
    known: Measurements
    kept: Fixed
    searched: Units
    parents: tuple[tuple[int, ...], ...]
    costs: dict[int, float]
    subject: Precision
    more: dict[int, Measurements] = field(default_factory=dict)

    def on(self, values: tuple[Values, ...]) -> PrecisionSetup:
        """Return the same with what is measured on these samples."""
        if values == self.division.searched:
            return self
        if len(values) not in self.more:
            self.more[len(values)] = _measurements(self.strategy, self.samples, values)
        return replace(self, known=self.more[len(values)])

    def prior(self, values: tuple[Values, ...]) -> Prior:
        """Return what is known of units before they are searched on these samples."""
        told = self.searched.prior(prior(self.casting, self.on(values).known, self.parents), self.costs)
        return replace(told, kinds=self.searched.kinds(self.casting.layers, self.parents))

    @property
    def likely(self) -> tuple[int, ...]:
        """The units, those that introduce most error first."""
        return self.searched.prior(prior(self.casting, self.known, self.parents)).ranking

    def step(self, base: Trial | None, values: tuple[Values, ...]) -> Step:
        """Return the first step of the search on these samples: of all, or of what is needed besides a ``base``."""
        known = self.prior(values)
        if base is not None:
            return grow(self.subject.space, base, known)
        reverse = self.strategy.direction is Direction.reverse
        options = Options(extra_checks=0, reverse=reverse, prior=known)
        return SEARCHES[self.strategy.search].begin(self.subject.space, options)


def prepare(settings: Settings, strategy: PrecisionSettings, pool: Pool, folder: Path) -> PrecisionSetup:
    """Read the model and measure it. Raises WinnowError where the question cannot be put at all."""
    if strategy.costs and strategy.goal is Goal.smallest:
        raise UsageError("strategy.costs without strategy.goal=cheapest counts for nothing: set strategy.goal=cheapest")
    loaded = load(settings, pool, folder, examine=partial(examine, settings))
    casting = cast(settings, strategy, loaded, pool)
    samples = Samples(settings, casting, loaded, pool, folder / "values", strategy.held_out)
    division = samples.divide()
    known = _measurements(strategy, samples, division.searched)
    kept = fixed_layers(strategy, casting, known)
    following = followers(casting, quantized_nodes(strategy, loaded))
    searched = units(strategy.unit, casting, kept, following)
    if not searched.searched:
        raise UsageError("strategy.exclude, include, at_least and untaken leave no node to search; name fewer")
    parents = parents_of(casting.layers)
    costs = costs_of(strategy, casting, loaded) if strategy.goal is Goal.cheapest else {}
    space = Space(searched.searched, searched.parents(parents))
    space = cheapest(space, searched.costs(costs)) if costs else space
    fed, high = samples.of(division.searched), frozenset(kept.high)
    subject = Precision(casting.mixer, loaded.store, fed, space, searched.members, high, casting.ends, following)
    single = "" if samples.is_endless or settings.checker.runs_own_code else _single(settings, loaded, division)
    left_alone = (*_left_alone(casting, kept, known), *filter(None, [single]))
    tolerance = coarse(settings.checker, subject.samples)
    doubts = (*_scopeless(strategy, searched), *tolerance, *_strangers(casting, known))
    warnings = (*casting.warnings, *_out_of_range(casting), *left_alone, *doubts)
    for warning in warnings:
        log.warning("%s", warning)
    loaded = replace(loaded, warnings=(*loaded.warnings, *warnings))
    found = (loaded, casting, samples, division, known, kept, searched, parents, costs, subject)
    return PrecisionSetup(settings, strategy, pool, *found)


def _strangers(casting: PrecisionModel, known: Measurements) -> Iterator[str]:
    """Doubt a parent whose nodes make something else, of the same values, than what is said to be made of them."""
    far = [index for index, error in known.errors.items() if error > _STRANGE]
    if casting.ends.brought and len(far) > len(known.errors) / 2:
        names = listed([casting.layers[index].path for index in sorted(far)])
        yield (
            f"reference.model may not be the original of this model: from the same inputs {len(far)} of "
            f"{counted(len(known.errors), 'node')} ({names}) compute other values than what replaced them"
        )


def _measurements(strategy: PrecisionSettings, samples: Samples, values: tuple[Values, ...]) -> Measurements:
    """Measure errors and ranges, where they rank what is searched or say what is not."""
    ranked = "prior" in SEARCHES[strategy.search].reads
    if not ranked and not strategy.at_least and not any(layer.nested for layer in samples.casting.layers):
        return Measurements(why=f"strategy={strategy.name} follows the model's order")
    return measure(samples.settings, samples.pool, samples.casting, samples.loaded, values)


def _out_of_range(casting: PrecisionModel) -> Iterator[str]:
    for counts, what in (
        (casting.clamped, "beyond the range of the low type; its largest number is taken"),
        (casting.flushed, "too small for the low type; zero is taken"),
        (casting.lifted, "too small for the low type; its smallest number is taken"),
    ):
        if counts:
            number, names = sum(counts.values()), listed([repr(name) for name in counts])
            yield f"weights in low precision: {counted(number, 'value')} of {names} {_are(number)} {what}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _scopeless(strategy: PrecisionSettings, searched: Units) -> Iterator[str]:
    if strategy.unit is Unit.block and all(len(block) == 1 for block in searched.members):
        yield (
            "strategy.unit=block: no names of nodes have a scope in common that others do not have (as /layers.3/attn "
            "of /layers.3/attn/MatMul), so each node is searched by itself, as with strategy.unit=node"
        )


def _single(settings: Settings, loaded: Loaded, division: Division) -> str:
    """Doubt an answer that rests on one sample; "" where there are several. Along an open first axis more may lie."""
    if division.given != 1:
        return ""
    kinds = [value.type.tensor_type for value in loaded.graph.model.graph.input]
    is_open = all(kind.shape.dim and not kind.shape.dim[0].HasField("dim_value") for kind in kinds)
    rows = {one.shape[:1] for one in division.searched[0].values()}
    (size,) = next(iter(rows)) if is_open and len(rows) == 1 else (1,)
    taken = isinstance(settings.inputs, FilesInputs) and settings.inputs.split is None and size > 1
    also = f", or take the {size} along its first axis as samples: inputs.split={size}" if taken else ""
    said = "only one sample was given: an answer that passes on it may fail on others"
    return f"{said}. Give several: --inputs FOLDER{also}"


def _left_alone(casting: PrecisionModel, kept: Fixed, known: Measurements) -> Iterator[str]:
    """Say what was not looked at, and what that means."""
    pair = casting.pair
    low = [one.path for one in casting.mixer.float_nodes if one.index is None and not one.high]
    if low and pair.low != pair.high:
        yield (
            f"{counted(len(low), 'node')} {_are(len(low))} low in the given model already, and not searched "
            f"({listed(low)}). To search them too, give the model in high precision"
        )
    if known.untaken:
        names = [casting.layers[index].path for index in sorted(known.untaken)]
        high = known.untaken <= kept.high.keys()
        yield (
            f"no sample takes the branches of {counted(len(names), 'node')} ({listed(names)}): "
            + ("they stay high (strategy.untaken=low lowers them)" if high else "low precision was not tried for them")
        )
