"""Subject `workaround`: the whole model with one remedy; a trial is its number, or that and a sample."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from runner.candidate import Candidate, Invalid, Sample, Variant
from runner.jobs.reduce.control_samples import samples_of
from runner.jobs.workaround.remedy import Remedy
from runner.loading.load import Loaded
from runner.model.graph.control_model import Form, control
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.edits import edited
from runner.session.subject import values_digest
from strategies.search_space import Space
from strategies.trial import Trial

CONTROL = 0
"""The element that stands for a lone Identity, which any sane check passes."""
ONE_SAMPLE = 10_000
"""Elements from this number on stand for a single sample."""


@dataclass(frozen=True)
class Workarounds:
    """The empty trial is the user's file as it is; that of remedy ``n`` of ``remedies`` is ``n + 1``.

    ``fresh``: the samples are others than those that were recorded. ``written``: files of remedies that edit the model,
    as they are handed over. ``python``: the interpreter where a remedy names no other.
    """

    loaded: Loaded
    remedies: tuple[Remedy, ...]
    python: str
    samples: tuple[Sample, ...] = ()
    fresh: bool = False
    written: Mapping[int, Path] = field(default_factory=dict)

    @cached_property
    def space(self) -> Space:
        """What should pass: a flaky check is measured on it."""
        return Space((CONTROL,))

    def identity(self) -> dict[str, str]:
        """Return the remedies: a trial counts them."""
        remedies = json.dumps([one.identity() for one in self.remedies])
        drawn = values_digest(sample.feeds for sample in self.samples) if self.fresh else "recorded"
        return {"kind": "workaround", "remedies": remedies, "samples": drawn}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return what the remedies do."""
        return tuple(self.remedies[number - 1].what for number in trial if CONTROL < number < ONE_SAMPLE)

    def cut(self, trial: Trial) -> Cut:
        """Return the model that a remedy makes; it is whole. Raises CutError."""
        remedy = self.remedies[min(trial) - 1]
        try:
            return Cut(edited(self.loaded.graph.model, remedy.edits), (), (), ())
        except KeyError as error:
            raise CutError(f"no node makes {error}") from error

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the user's file, or write the model that a remedy makes."""
        loaded, own = self.loaded, Variant(python=self.python)
        if not trial:
            return Candidate(loaded.path, folder, trial, self.samples, variant=own)
        number, samples = min(trial), self.samples
        if number == CONTROL:
            made = control(loaded.graph, loaded.graph.value_types, Form(), {})
            path = loaded.store.write(made.cut.model, folder)
            given = samples_of(made, loaded.recorded.values, folder / "given")
            return Candidate(path, folder, trial, given, variant=own, temporary=True, control=True)
        if len(trial) == 2:
            samples = (self.samples[max(trial) - ONE_SAMPLE],)
        remedy = self.remedies[number - 1]
        if remedy.why_not:
            return Invalid(remedy.why_not)
        if not remedy.edits:
            variant = replace(remedy.variant, python=remedy.variant.python or self.python)
            return Candidate(loaded.path, folder, trial, samples, variant=variant)
        if number in self.written:
            return Candidate(self.written[number], folder, trial, samples, variant=own)
        try:
            path = loaded.store.write(self.cut(trial).model, folder)
        except CutError as error:
            return Invalid(str(error))
        return Candidate(path, folder, trial, samples, variant=own, temporary=True)
