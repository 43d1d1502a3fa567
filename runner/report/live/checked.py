"""A check that has ended, as whoever watches a run is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from runner.verdict import Verdict
from strategies.trial import Trial


class ExpectedRepeats(Protocol):
    """How often a flaky check is repeated."""

    def looks_failing(self, failed: int, passed: int) -> bool:
        """Whether a candidate rather has the failure, by so many checks that failed and passed."""
        ...

    def more(self, *, failing: bool, failed: int = 0, passed: int = 0) -> float:
        """Return how many checks a candidate takes on average after these; ``failing``: it has the failure."""
        ...


@dataclass(frozen=True)
class Checked:
    """A check.

    ``iteration``: 0 for a verdict that was known already. ``nodes``: what its candidate has. ``left``: the checks that
    the search, or what is repeated now, has left; None: nobody knows. ``following``: the phase of
    the search's next question. ``names``: of the candidate's elements. ``of``:
    what is searched; another one for each stage of a run. ``repeats``: of a check that is known to be flaky.
    """

    iteration: int
    phase: str
    label: str
    verdict: Verdict
    nodes: Trial
    left: int | None = None
    following: str = ""
    names: Callable[[], tuple[str, ...]] = tuple
    of: object = None
    repeats: ExpectedRepeats | None = None
