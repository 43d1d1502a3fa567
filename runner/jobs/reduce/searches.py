"""The searches of a reduction by name, and which end of the failing window they look for first."""

from __future__ import annotations

from collections.abc import Callable

from runner.errors import UsageError
from runner.jobs.reduce.subgraph import Subgraph
from runner.schema.choices import added
from runner.schema.strategy import FirstEnd, StrategySettings
from runner.session.judge import Judge
from strategies.bisect import First, bisect
from strategies.linear import linear
from strategies.minimal import minimal, reduce
from strategies.search import Step
from strategies.space import Space

SEARCHES: dict[str, Callable[[Space, int | None, First], Step]] = {
    "reduce": reduce,
    "bisect": lambda space, extra, first: bisect(space, first),
    "linear": lambda space, extra, first: linear(space, extra),
    "minimal": lambda space, extra, first: minimal(space, extra),
    **added().searches,
}


def searching(strategy: StrategySettings, wanted: FirstEnd, subject: Subgraph, judge: Judge) -> Callable[[Space], Step]:
    """Return what makes the first step of the strategy's search, once the failure under study is known."""
    if strategy.search not in SEARCHES:
        raise UsageError(
            f"strategy.search={strategy.search}: there is no such search; choose one of {', '.join(SEARCHES)}"
        )

    def search(space: Space) -> Step:
        return SEARCHES[strategy.search](space, strategy.extra_checks, _first(wanted, subject, judge))

    return search


def _first(wanted: FirstEnd, subject: Subgraph, judge: Judge) -> First:
    """Return which end of the failing window is looked for first.

    A tolerance is meant for the model's own outputs, so a failure that may lie in values is looked for there first; it
    takes good values all the way to these outputs.
    """
    if wanted is not FirstEnd.auto:
        return First(wanted.value)
    good = bool(subject.recorded.values) and subject.recorded.healthy(subject.graph.outputs)
    return First.START if good and judge.baseline is not None and judge.baseline.about_values else First.END
