"""The model as it is under one variant of its target after another: the subject of `strategy=passes` and `versions`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from runner.candidate import Candidate, Sample, Variant
from strategies.search_space import Space
from strategies.trial import Trial

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class WholeModel(Generic[Choice]):
    """A trial is some of the ``choices``; the text of each is its name. ``model``: the user's file."""

    model: Path | None
    choices: tuple[Choice, ...]
    samples: tuple[Sample, ...]

    @cached_property
    def space(self) -> Space:
        """The choices in their order, without structure."""
        return Space(tuple(range(len(self.choices))))

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the choices by name."""
        return tuple(str(self.choices[number]) for number in trial)

    def under(self, variant: Variant, trial: Trial, folder: Path) -> Candidate:
        """Return the model as a variant of the target runs it."""
        return Candidate(self.model, folder, trial, self.samples, variant=variant)
