"""What a precision search works with: the model in both precisions, samples, and what is known beforehand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from runner.checkers.compare.coarse_tolerance import coarse
from runner.errors import UsageError
from runner.jobs.precision.both_precisions import Casting, cast
from runner.jobs.precision.cast.float_nodes import float_nodes
from runner.jobs.precision.fixed_layers import Fixed, fixed_layers
from runner.jobs.precision.held_out_samples import Division, Samples, Values
from runner.jobs.precision.ranking import Measurements, measure, prior
from runner.jobs.precision.report.low_share import costs_of
from runner.jobs.precision.search_units import Units, units
from runner.jobs.precision.subject import Precision, parents_of
from runner.loading.load import Loaded, load
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import Direction, Goal, PrecisionSettings, Unit
from runner.text import counted, listed
from runner.workers.pool import Pool
from strategies.precision import Prior, cheapest, grow
from strategies.procedure import Options
from strategies.search import Step
from strategies.search_space import Space
from strategies.trial import Trial

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Material:
    """``known``: what was measured on the samples that are searched first. ``kept``: layers that are not searched.

    ``parents``: of layers. ``costs``: of layers, empty where few are wanted and not cheap ones.
    """

    settings: Settings
    strategy: PrecisionSettings
    pool: Pool
    loaded: Loaded
    casting: Casting
    samples: Samples
    division: Division
    known: Measurements
    kept: Fixed
    searched: Units
    parents: tuple[tuple[int, ...], ...]
    costs: dict[int, float]
    subject: Precision

    def prior(self, values: tuple[Values, ...]) -> Prior:
        """Return what is known of units before they are searched on these samples."""
        known = self.known
        if values != self.division.searched:
            known = _measured(self.strategy, self.samples, values)
        told = self.searched.prior(prior(self.casting, known, self.parents), self.costs)
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


def prepare(settings: Settings, strategy: PrecisionSettings, pool: Pool, folder: Path) -> Material:
    """Read the model and measure it. Raises WinnowError where the question cannot be put at all."""
    if strategy.costs and strategy.goal is Goal.smallest:
        raise UsageError("strategy.costs without strategy.goal=cheapest counts for nothing: set strategy.goal=cheapest")
    loaded = load(settings, pool, folder)
    casting = cast(settings, strategy, loaded, pool)
    samples = Samples(settings, casting, loaded, pool, folder / "values", strategy.held_out)
    division = samples.divide()
    known = _measured(strategy, samples, division.searched)
    kept = fixed_layers(strategy, casting, known)
    searched = units(strategy.unit, casting, kept)
    if not searched.searched:
        raise UsageError("strategy.exclude, include, at_least and untaken leave no node to search; name fewer")
    parents = parents_of(casting.layers)
    costs = costs_of(strategy, casting, loaded) if strategy.goal is Goal.cheapest else {}
    space = Space(searched.searched, searched.parents(parents))
    space = cheapest(space, searched.costs(costs)) if costs else space
    mixing = casting.mixer, loaded.store, samples.of(division.searched), space.order, space.parents
    subject = Precision(*mixing, searched.members, kept.raised)
    left_alone = _left_alone(casting, kept, division, drawn=samples.is_endless)
    tolerance = coarse(settings.checker, subject.samples)
    warnings = (*casting.warnings, *_out_of_range(casting), *left_alone, *_scopeless(strategy, searched), *tolerance)
    for warning in warnings:
        log.warning("%s", warning)
    loaded = replace(loaded, warnings=(*loaded.warnings, *warnings))
    found = (settings, strategy, pool, loaded, casting, samples, division, known, kept, searched, parents, costs)
    return Material(*found, subject)


def _measured(strategy: PrecisionSettings, samples: Samples, values: tuple[Values, ...]) -> Measurements:
    """Measure errors and ranges, where they rank what is searched or say what is not."""
    ranked = "prior" in SEARCHES[strategy.search].reads
    if not ranked and not strategy.at_least and not any(layer.nested for layer in samples.casting.layers):
        return Measurements(why=f"strategy={strategy.name} follows the model's order")
    return measure(samples, values)


def _out_of_range(casting: Casting) -> tuple[str, ...]:
    found = []
    for counts, what in (
        (casting.clamped, "beyond the range; the largest value it has is taken"),
        (casting.flushed, "too small for it; zero is taken"),
        (casting.lifted, "too small for it; the least value it has is taken"),
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


def _left_alone(casting: Casting, kept: Fixed, division: Division, *, drawn: bool) -> Iterator[str]:
    """Say what was not looked at, and what that means."""
    pair, mixer = casting.pair, casting.mixer
    every = float_nodes(mixer.model, mixer.types, pair, casting.layers, mixer.contrib)
    low = [one.path for one in every if one.index is None and not one.high]
    if low and pair.low != pair.high:
        are = "is" if len(low) == 1 else "are"
        yield (
            f"{counted(len(low), 'node')} {are} low in the model as it is, most of which is high, and not searched "
            f"({listed(low)}): give the model in high precision to search them too"
        )
    if kept.untaken:
        names = [casting.layers[index].path for index in kept.untaken]
        high = all(index in kept.high for index in kept.untaken)
        yield (
            f"no sample takes the branches of {counted(len(names), 'node')} ({listed(names)}): "
            + ("they stay high (strategy.untaken=low lowers them)" if high else "how they do low is not known")
        )
    if division.given == 1 and not drawn:
        yield (
            "one sample alone was given: what passes on it need not pass on others of the same kind. Give several: "
            "inputs=files inputs.path=FOLDER"
        )
