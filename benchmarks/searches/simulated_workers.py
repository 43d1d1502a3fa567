"""A search with several workers, all checks of the same length: in each round every worker checks one trial."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random

from benchmarks.searches.published_algorithms import Condition
from strategies.outcome import Answer
from strategies.search import Search, Step
from strategies.search_space import Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Ended:
    """A search that has ended. ``checks``: also those that came to nothing; ``thought``: seconds without the checks."""

    trial: Trial
    checks: int
    rounds: int
    thought: float


def simulate(
    space: Space, first: Step, condition: Condition, workers: int = 1, unresolved: float = 0.0, seed: int = 0
) -> Ended:
    """Run a search to its end. ``unresolved``: the share of trials that have no verdict, drawn with ``seed``."""
    started = time.perf_counter()
    search, checks, rounds = Search(space, first, {space.whole: Answer.YES}), 0, 0
    while not search.done:
        asked = search.ask(workers)
        for question in asked:
            silent = unresolved and Random(f"{seed} {question.trial.ranges}").random() < unresolved
            told = Answer.UNKNOWN if silent else Answer.YES if condition(question.trial.elements) else Answer.NO
            search.tell(question.trial, told)
        checks, rounds = checks + len(asked), rounds + 1
    assert search.done.trial is not None
    return Ended(search.done.trial, checks, rounds, time.perf_counter() - started)
