"""The searches of a reduction by name, and which end of the failing window they look for first."""

from __future__ import annotations

from collections.abc import Callable

from runner.errors import UsageError
from runner.jobs.reduce.subgraph import Subgraph
from runner.schema.strategy import FirstEnd, SearchKind, StrategySettings
from runner.session.judge import Judge
from strategies.bisect import First, bisect
from strategies.linear import linear
from strategies.minimal import minimal, reduce
from strategies.search import Step
from strategies.space import Space

SEARCHES: dict[SearchKind, Callable[[Space, int | None, First], Step]] = {
    SearchKind.reduce: reduce,
    SearchKind.bisect: lambda space, extra, first: bisect(space, first),
    SearchKind.linear: lambda space, extra, first: linear(space, extra),
    SearchKind.minimal: lambda space, extra, first: minimal(space, extra),
}


def search_of(strategy: StrategySettings, first: Callable[[], First] = lambda: First.END) -> Callable[[Space], Step]:
    """Return what makes the first step of the strategy's search. Raises UsageError for one that searches no subsets."""
    kind = strategy.search
    if kind not in SEARCHES:
        known = ", ".join(one.value for one in SEARCHES)
        raise UsageError(f"strategy.search={kind.value}: subsets are not searched so. Choose one of {known}")
    return lambda space: SEARCHES[kind](space, strategy.extra_checks, first())


def searching(strategy: StrategySettings, wanted: FirstEnd, subject: Subgraph, judge: Judge) -> Callable[[Space], Step]:
    """Return what makes the first step of a reduction's search, once the failure under study is known."""
    return search_of(strategy, lambda: _first(wanted, subject, judge))


def _first(wanted: FirstEnd, subject: Subgraph, judge: Judge) -> First:
    """Return which end of the failing window is looked for first.

    A tolerance is meant for the model's own outputs, so a failure that may lie in values is looked for there first; it
    takes good values all the way to these outputs.
    """
    if wanted is not FirstEnd.auto:
        return First(wanted.value)
    good = bool(subject.recorded.values) and subject.recorded.healthy(subject.graph.outputs)
    return First.START if good and judge.baseline is not None and judge.baseline.about_values else First.END
