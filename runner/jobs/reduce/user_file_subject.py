"""Subject `file`: the candidate of every trial is the user's model file, unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.candidate import Candidate
from runner.jobs.reduce.subgraph import Subgraph
from runner.session.subject import Kept
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class UserFile:
    """The file that ``base`` cuts candidates out of; ``against``: what it is compared with, where not what is right."""

    base: Subgraph
    against: str = ""

    @property
    def space(self) -> Space:
        """The elements of the model."""
        return self.base.space

    def identity(self) -> dict[str, str]:
        """Return what the file is: the model is in the run's context, with its weights."""
        against = {"against": self.against} if self.against else {}
        return {"kind": "file", "graph": self.base.identity()["graph"], **against}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes."""
        return self.base.names(trial)

    def kept(self, trial: Trial) -> Kept:
        """Return the nodes of ``trial``."""
        return self.base.kept(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the file, with the values of its inputs."""
        return self.base.original(folder)
