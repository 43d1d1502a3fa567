"""Subject `tactics`: choices in which a bad build differs from a good one; a trial is the bad ones that are pinned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runner.candidate import Candidate, Sample
from runner.jobs.tactics.engine_subject import write_request
from runner.jobs.tactics.recorded_tactics import Choice, Recording
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class TacticDifference:
    """One key for which two builds chose different tactics."""

    good: Choice
    bad: Choice

    @property
    def layer(self) -> str:
        """The operator's name, from whichever build tells it."""
        return self.bad.layer if self.bad.layer != self.bad.key else self.good.layer

    def __str__(self) -> str:
        return f"{self.layer}: {self.bad.shown}"


def differences(good: Recording, bad: Recording) -> tuple[TacticDifference, ...]:
    """Return the keys that both builds decided, and decided differently, in the bad build's order."""
    theirs = {choice.key: choice for choice in good.choices if choice.key}
    mine = {choice.key: choice for choice in bad.choices if choice.key}
    return tuple(
        TacticDifference(theirs[key], choice)
        for key, choice in mine.items()
        if key in theirs and theirs[key].tactic != choice.tactic
    )


def nearest(good: Sequence[Recording], bad: Sequence[Recording]) -> tuple[Recording, Recording] | None:
    """Return the good and the bad build with the fewest differences, at least one; None if all are alike."""
    pairs = [(len(found), a, b) for a in good for b in bad if (found := differences(a, b))]
    if not pairs:
        return None
    _, chosen, other = min(pairs, key=lambda pair: pair[0])
    return chosen, other


@dataclass(frozen=True)
class Tactics:
    """Independent elements: any of the bad choices can be pinned, all others are pinned as in the good build.

    ``caches``: files of timing caches that hold the keys.
    """

    model: Path
    good: Recording
    bad: Recording
    caches: tuple[Path, ...]
    samples: tuple[Sample, ...] = ()

    @cached_property
    def elements(self) -> tuple[TacticDifference, ...]:
        """The differing choices."""
        return differences(self.good, self.bad)

    @cached_property
    def space(self) -> Space:
        """The elements, without structure."""
        return Space(tuple(range(len(self.elements))))

    def identity(self) -> dict[str, str]:
        """Return the choices of both builds, whatever files these were read from."""
        said = [[[one.key, one.tactic] for one in recording.choices] for recording in (self.good, self.bad)]
        return {"kind": "tactics", "choices": hashlib.sha256(json.dumps(said).encode()).hexdigest()}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return layers and the bad tactics they get."""
        return tuple(str(self.elements[number]) for number in trial)

    def pins(self, trial: Trial) -> dict[str, str]:
        """Return {key: tactic} for every key of the good build."""
        pinned = {choice.key: choice.tactic for choice in self.good.choices if choice.key}
        return {**pinned, **{self.elements[number].bad.key: self.elements[number].bad.tactic for number in trial}}

    def recording(self, trial: Trial) -> Recording:
        """Return what a build of ``trial`` is to have chosen."""
        bad = {self.elements[number].bad.key: self.elements[number].bad for number in trial}
        choices = tuple(bad.get(choice.key, choice) for choice in self.good.choices)
        return Recording(choices, model=self.good.model, library=self.good.library, pinned=True)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the model, to be built with these pins. The empty trial pins all the good choices."""
        write_request(folder, load=self.caches, pins=self.pins(trial), save=None)
        return Candidate(self.model, folder, trial, self.samples, nodes=self.names(trial))
