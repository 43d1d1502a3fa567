"""Subject `command`: the same thing again; a trial is the number of an iteration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.candidate import Candidate, Sample
from runner.files import sha256_of
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Command:
    """Repeats a check; the model is handed to it unchanged, if there is one."""

    model: Path | None = None
    samples: tuple[Sample, ...] = ()

    @property
    def space(self) -> Space:
        """No elements: iterations have no end of their own."""
        return Space(())

    def identity(self) -> dict[str, str]:
        """Return the content of the model's file, which is what is checked again and again."""
        content = sha256_of(self.model) if self.model else "none"
        return {"kind": "command", "model": content}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the iterations' numbers."""
        return tuple(f"iteration {number + 1}" for number in trial)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the unchanged model as the candidate."""
        # an iteration that shared anything with the others could not tell how often it fails
        return Candidate(self.model, folder, trial, self.samples, fresh=True)
