"""Subject `passes`: the model as it is under a target of which some switches are on and the others off."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runner.candidate import Candidate, Sample, Variant
from runner.jobs.passes.switch import Switch, changes
from runner.schema.backend import BackendSettings
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Passes:
    """A trial is the switches that are on, or (``off``) those that are off.

    ``model``: the user's file. ``target``: its settings with all of them on.
    """

    model: Path
    switches: tuple[Switch, ...]
    target: BackendSettings
    samples: tuple[Sample, ...] = ()
    off: bool = False

    @cached_property
    def space(self) -> Space:
        """The switches, without structure."""
        return Space(tuple(range(len(self.switches))))

    def identity(self) -> dict[str, str]:
        """Return the names of all switches: a trial counts them."""
        kind = "passes off" if self.off else "passes on"
        return {"kind": kind, "switches": json.dumps([one.name for one in self.switches])}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the switches by name."""
        return tuple(self.switches[number].name for number in trial)

    def without(self, trial: Trial) -> tuple[Switch, ...]:
        """Return the switches that a trial turns off."""
        chosen = trial.elements
        return tuple(one for number, one in enumerate(self.switches) if (number in chosen) is self.off)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the model, with the settings of the target, or the words of the command, that the trial means."""
        off = self.without(trial)
        words = tuple(one.name for one in self.switches if not one.key and one not in off)
        return Candidate(self.model, folder, trial, self.samples, variant=Variant(changes(self.target, off), words))
