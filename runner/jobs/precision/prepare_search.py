"""What a precision search works with: units, fixed layers, the mixed models that are its candidates."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnx
from onnx import ModelProto

from runner.checkers.tolerances import coarse
from runner.engine.subject import values_digest
from runner.exit_codes import UsageError
from runner.jobs.precision.held_out_samples import Division, Samples, Values
from runner.jobs.precision.layers import Layer
from runner.jobs.precision.mixer import Mixer
from runner.jobs.precision.regions import examine
from runner.jobs.precision.setup import Ends, PrecisionModel, cast
from runner.jobs.precision.units import (
    Fixed,
    Measurements,
    Units,
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
from runner.reference.load import Loaded, load
from runner.schema.inputs import FilesInputs
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import Direction, Goal, PrecisionSettings, Unit
from runner.text import counted, listed
from runner.verdict import Candidate, Invalid, Sample
from runner.workers.pool import Pool
from strategies.precision import cheapest, grow
from strategies.search import Options, Prior, Space, Step, Trial

log = logging.getLogger(__name__)

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
            **({"unit": Unit.block.value} if any(len(one) > 1 for one in self.members) else {}),
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
