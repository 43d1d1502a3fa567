"""A check that has ended, as whoever watches a run is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.verdict import Verdict
from strategies.trial import Trial


@dataclass(frozen=True)
class Checked:
    """A check.

    ``iteration``: 0 for a verdict that was known already. ``nodes``: what its candidate has. ``left``: the checks that
    the search, or what is repeated now, has left; None: nobody knows. ``names``: of the candidate's elements. ``of``:
    what is searched; another one for each stage of a run.
    """

    iteration: int
    phase: str
    label: str
    verdict: Verdict
    nodes: Trial
    left: int | None = None
    names: Callable[[], tuple[str, ...]] = tuple
    of: object = None
