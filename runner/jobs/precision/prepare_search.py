"""What a precision search works with: units, fixed layers, subject, samples."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, TypeProto

from runner.checkers.auto_tolerance import coarse
from runner.engine.subject import values_digest
from runner.jobs.precision.layer_costs import costs_of
from runner.jobs.precision.layers import Layer, levels, node_label
from runner.jobs.precision.mixer import Mixer
from runner.jobs.precision.prepare_model import float_nodes
from runner.jobs.precision.ranking import SENTINEL, Measurements, measure, prior
from runner.jobs.precision.regions import examine
from runner.jobs.precision.setup import Ends, PrecisionModel, cast
from runner.jobs.precision.validation_samples import Division, Samples, Values
from runner.judgment import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph import scopes
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.edits import copy_of
from runner.model.graph.low_precision import pairs_of
from runner.model.graph.scopes import NameSupply
from runner.reference.load import Loaded, load
from runner.schema.inputs import FilesInputs
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import Direction, FloatType, Goal, PrecisionSettings, Unit, Untaken
from runner.text import counted, listed
from runner.verdict import Candidate, Invalid, Sample
from runner.workers.pool import Pool
from strategies.precision import cheapest, grow
from strategies.search import Options, Prior, Space, Step, Trial

# Layers that a precision search leaves alone: those that stay high, those that stay low, and why.

_RULE = re.compile(r"\s*(range|error)\s*(>=?)\s*([-+.\deE]+)\s*")


@dataclass(frozen=True)
class Fixed:
    """``high``: why a layer stays high, by its index. ``low``: those that stay low.

    ``untaken``: layers in branches that no sample took, whatever becomes of them.
    """

    high: Mapping[int, str] = field(default_factory=dict)
    low: frozenset[int] = frozenset()
    untaken: tuple[int, ...] = ()

    @property
    def raised(self) -> frozenset[int]:
        """The layers that are high in every trial."""
        return frozenset(self.high)

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
    high = dict(kept)
    for index, why in _measured(strategy.at_least, layers, known):
        if index not in low:
            high.setdefault(index, why)
    untaken = tuple(sorted(known.untaken))
    if strategy.untaken is Untaken.high:
        for index in untaken:
            if index not in low:
                high.setdefault(index, "in a branch or loop that no sample took")
    return Fixed(high, low, untaken)


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
            close = get_close_matches(pattern, names, 1)
            raise UsageError(
                f"strategy.{key}: no node that can run in both precisions has {pattern!r} as its name or operator"
                + (f"; did you mean {close[0]!r}?" if close else "")
                + " (* and ? stand for anything, as in a shell)"
            )
        for index in matched:
            found.setdefault(index, f"strategy.{key}={pattern}")
    return found


def _measured(rules: Sequence[str], layers: Sequence[Layer], known: Measurements) -> Iterator[tuple[int, str]]:
    for rule in rules:
        match = _RULE.fullmatch(rule)
        try:
            limit = float(match[3]) if match else None
        except ValueError:
            limit = None
        if match is None or limit is None:
            raise UsageError(
                f"strategy.at_least: {rule!r} is no rule; give what was measured and a number, 'range > 512' (the "
                "largest magnitude that a node reads or makes) or 'error > 0.01' (what it introduces, relative)"
            )
        if not known.errors and not known.ranges:
            raise UsageError(
                f"strategy.at_least={rule}: nothing was measured of this model (see the warnings), so no node can be "
                "kept high by it; name nodes or operators instead: strategy.exclude=[Softmax]"
            )
        for index, layer in enumerate(layers):
            if match[1] == "error":
                value = known.errors.get(index, 0.0)
            else:
                ranges = (known.range_of(layer, name) for name in (*layer.reads, *layer.writes))
                # values that stand for minus infinity do not count as magnitudes
                value = max((one for one in ranges if one < SENTINEL), default=0.0)
            if value > limit or (match[2] == ">=" and value == limit):
                yield index, f"strategy.at_least: {match[1]} {value:.3g} {match[2]} {limit:g}"


# Units: what a precision search raises at once, and which layers that is.
#
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

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All nodes that can run in either precision."""
        return self.mixer.layers

    def identity(self) -> dict[str, str]:
        """Return the two precisions, what is searched on which samples, and what happens to the rest."""
        mixer = self.mixer
        low, high = (onnx.TensorProto.DataType.Name(dtype).lower() for dtype in (mixer.pair.low, mixer.pair.high))
        paths = "\n".join(layer.path for layer in self.layers)
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

    def own(self, trial: Trial) -> frozenset[int]:
        """Return the layers that a trial raises, without those that are raised in every one."""
        return frozenset(layer for unit in trial.elements for layer in self.members[unit])

    def raised(self, trial: Trial) -> frozenset[int]:
        """Return all layers that are high in a trial."""
        raised = self.own(trial) | self.high
        return raised | {layer for layer, leader in self.following.items() if leader in raised}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the paths of the nodes that a trial raises, in the model's order."""
        return tuple(self.layers[index].path for index in sorted(self.own(trial)))

    def cut(self, trial: Trial) -> Cut:
        """Return the model in which the nodes of ``trial`` are raised; it is whole."""
        return Cut(self.model(self.raised(trial)), (), (), ())

    def model(self, raised: frozenset[int]) -> ModelProto:
        """Return the model in which these layers are high: an end as the user gave it, or one that is mixed."""
        end = self.ends.given if not raised else self.ends.parent if len(raised) == len(self.layers) else None
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


log = logging.getLogger(__name__)

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
    loaded = load(settings, pool, folder, examine=partial(_examine, settings, strategy))
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
    fed = samples.of(division.searched)
    subject = Precision(casting.mixer, loaded.store, fed, space, searched.members, kept.raised, casting.ends, following)
    single = "" if samples.is_endless or settings.checker.runs_own_code else _single(settings, loaded, division)
    left_alone = (*_left_alone(casting, kept), *filter(None, [single]))
    tolerance = coarse(settings.checker, subject.samples)
    warnings = (*casting.warnings, *_out_of_range(casting), *left_alone, *_scopeless(strategy, searched), *tolerance)
    warnings += (*_strangers(casting, known),)
    for warning in warnings:
        log.warning("%s", warning)
    loaded = replace(loaded, warnings=(*loaded.warnings, *warnings))
    found = (settings, strategy, pool, loaded, casting, samples, division, known, kept, searched, parents, costs)
    return PrecisionSetup(*found, subject)


def _strangers(casting: PrecisionModel, known: Measurements) -> Iterator[str]:
    """Doubt a parent whose nodes make something else, of the same values, than what is said to be made of them."""
    far = [index for index, error in known.errors.items() if error > _STRANGE]
    if casting.ends.brought and len(far) > len(known.errors) / 2:
        names = listed([casting.layers[index].path for index in sorted(far)])
        yield (
            f"reference.model may not be the original of this model: from the same inputs {len(far)} of "
            f"{counted(len(known.errors), 'node')} ({names}) compute other values than what replaced them"
        )


def _examine(settings: Settings, strategy: PrecisionSettings, structure: Path) -> None:
    if strategy.low is FloatType.quantized:
        examine(structure, bool(settings.reference.model), f"model={settings.model}")


def _measurements(strategy: PrecisionSettings, samples: Samples, values: tuple[Values, ...]) -> Measurements:
    """Measure errors and ranges, where they rank what is searched or say what is not."""
    ranked = "prior" in SEARCHES[strategy.search].reads
    if not ranked and not strategy.at_least and not any(layer.nested for layer in samples.casting.layers):
        return Measurements(why=f"strategy={strategy.name} follows the model's order")
    return measure(samples, values)


def _out_of_range(casting: PrecisionModel) -> tuple[str, ...]:
    found = []
    for counts, what in (
        (casting.clamped, "beyond the range of the low type; its largest number is taken"),
        (casting.flushed, "too small for the low type; zero is taken"),
        (casting.lifted, "too small for the low type; its smallest number is taken"),
    ):
        if counts:
            number = sum(counts.values())
            names = listed([repr(name) for name in counts])
            are = "is" if number == 1 else "are"
            found.append(f"weights in low precision: {counted(number, 'value')} of {names} {are} {what}")
    return tuple(found)


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


def _left_alone(casting: PrecisionModel, kept: Fixed) -> Iterator[str]:
    """Say what was not looked at, and what that means."""
    pair, mixer = casting.pair, casting.mixer
    every = float_nodes(mixer.model, mixer.types, pair, casting.layers, mixer.contrib)
    low = [one.path for one in every if one.index is None and not one.high]
    if low and pair.low != pair.high:
        are = "is" if len(low) == 1 else "are"
        yield (
            f"{counted(len(low), 'node')} {are} low in the given model already, and not searched ({listed(low)}). To "
            "search them too, give the model in high precision"
        )
    if kept.untaken:
        names = [casting.layers[index].path for index in kept.untaken]
        high = all(index in kept.high for index in kept.untaken)
        yield (
            f"no sample takes the branches of {counted(len(names), 'node')} ({listed(names)}): "
            + ("they stay high (strategy.untaken=low lowers them)" if high else "low precision was not tried for them")
        )
