"""How a reduction begins its search, and which end of the failing window it looks for first."""

from __future__ import annotations

from collections.abc import Callable

from runner.jobs.reduce.first_look.first_look import FirstLook
from runner.jobs.reduce.subgraph import Subgraph
from runner.schema.installed_choices import SEARCHES
from runner.schema.strategy import FirstEnd, ReduceSettings
from runner.session.judge import Judge
from strategies.bisect import First
from strategies.procedure import Options
from strategies.search import Step
from strategies.search_space import Space


def searching(
    strategy: ReduceSettings, wanted: FirstEnd, subject: Subgraph, judge: Judge, look: FirstLook | None = None
) -> Callable[[Space], Step]:
    """Return what makes the first step of the strategy's search, once the failure under study is known.

    ``look``: names elements that it asks about before all others.
    """

    def search(space: Space) -> Step:
        named = look.nodes if look and look.nodes and set(space.order).issuperset(look.nodes) else ()
        first = _first(wanted, subject, judge)
        options = Options(extra_checks=strategy.extra_checks, first=first, named=named)
        return SEARCHES[strategy.search].begin(space, options)

    return search


def _first(wanted: FirstEnd, subject: Subgraph, judge: Judge) -> First:
    """Return which end of the failing window is looked for first.

    A tolerance is meant for the model's own outputs, so a failure that may lie in values is looked for there first; it
    takes good values all the way to these outputs.
    """
    if wanted is not FirstEnd.auto:
        return First(wanted.value)
    good = bool(subject.recorded.values) and subject.recorded.healthy(subject.graph.outputs)
    failure = judge.studied.signature
    return First.START if good and failure is not None and failure.about_values else First.END
