"""How many checks a run makes besides its search, as its settings say: on the average run with one culprit."""

from __future__ import annotations

from runner.schema.checker import Flaky
from runner.schema.diagnosis import WorkaroundSettings
from runner.schema.root import Settings
from runner.schema.strategy import Find, PrecisionSettings, ReduceSettings, RepeatSettings, TacticRepeatSettings


def checks_after(settings: Settings, searched: int, workers: int = 1) -> int:
    """Return how many checks follow a search of so many, made ``workers`` at once: what shows an answer to be right."""
    strategy, checker = settings.strategy, settings.checker
    if isinstance(strategy, WorkaroundSettings | RepeatSettings | TacticRepeatSettings):
        return 0
    repeated = checker.flaky is not Flaky.never and not checker.asks_a_person
    again = min(max(searched // 4 // workers, 2), 7)
    if isinstance(strategy, PrecisionSettings):
        # a check of ours is steady; what was left out is tried alone, and an answer on samples that were held back
        again = again if repeated and checker.runs_own_code else 0
        return 1 + again + min(searched, 32) + 2 * (checker.runs_samples and strategy.held_out != 0)
    if not isinstance(strategy, ReduceSettings):
        return 1
    simpler = (2 if checker.runs_own_code else 1) if strategy.shrink else 0
    cause = 2 if strategy.find is Find.cause else 0
    return 1 + (again if repeated else 0) + simpler + cause + settings.result.find_min_good
