"""Samples that a search does not see, and that its answer has to hold on: given, drawn, or variants of these."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

from runner.exit_codes import UsageError
from runner.jobs.precision.setup import PrecisionModel, samples_of
from runner.jobs.precision.units import (
    arithmetic,
)
from runner.model.graph.edits import copy_of
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.hints import brings_own
from runner.reference.load import Loaded, profiled_samples
from runner.reference.models import outputs_of
from runner.reference.parent import with_outputs
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.verdict import Sample
from runner.workers.pool import Pool

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
    if str(array.dtype) not in _FLOATS:
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
