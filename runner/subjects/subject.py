"""What a trial means in files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from runner.candidate import Candidate, Invalid
from strategies.space import Space
from strategies.trial import Trial


class Subject(Protocol):
    """Elements with their structure, and a candidate for any set of them."""

    @property
    def space(self) -> Space:
        """The elements, in order."""
        ...

    def names(self, trial: Trial) -> tuple[str, ...]:
        """What a person calls the elements of ``trial``."""
        ...

    def make(self, trial: Trial, folder: Path, iteration: int, phase: str, label: str) -> Candidate | Invalid:
        """Write the candidate of ``trial`` into ``folder``, which exists and is empty.

        The empty trial is the control: the most harmless candidate there is.
        """
        ...

    def discard(self, candidate: Candidate) -> None:
        """Remove the files of a candidate that nobody needs any more."""
        ...
