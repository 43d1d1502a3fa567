"""How a reduction begins its search, and which end of the failing window it looks for first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from runner.jobs.reduce.first_look.first_look import FirstLook
from runner.jobs.reduce.subgraph import Subgraph
from runner.schema.installed_choices import SEARCHES
from runner.schema.strategy import FirstEnd, ReduceSettings
from runner.session.judge import Judge
from runner.verdict import Signature
from strategies.bisect import First
from strategies.procedure import Options
from strategies.search import Step
from strategies.search_space import Closure, Space


def searching(
    strategy: ReduceSettings, wanted: FirstEnd, subject: Subgraph, judge: Judge, look: FirstLook | None = None
) -> Callable[[Space], Step]:
    """Return what makes the first step of the strategy's search, once the failure under study is known.

    ``look``: names elements that it asks about before all others.
    """

    def search(space: Space) -> Step:
        named = look.nodes if look and look.nodes and set(space.order).issuperset(look.nodes) else ()
        first = first_end(wanted, judge.studied.signature, partial(_good, subject))
        options = Options(extra_checks=strategy.extra_checks, first=first, named=named)
        # what follows a node is computed with it, so that a set fails for what follows: the latest start comes first
        by_place = space.closure is Closure.PLACE and "first" not in SEARCHES[strategy.search].reads
        return SEARCHES["reduce" if by_place else strategy.search].begin(space, options)

    return search


def first_end(wanted: FirstEnd, failure: Signature | None, good: Callable[[], bool]) -> First:
    """Return which end of the failing window is looked for first. ``good``: whether the model's outputs have values.

    A tolerance is meant for the model's own outputs, so a failure that may lie in values is looked for there first; it
    takes good values all the way to these outputs.
    """
    if wanted is not FirstEnd.auto:
        return First(wanted.value)
    return First.START if failure is not None and failure.about_values and good() else First.END


def _good(subject: Subgraph) -> bool:
    return bool(subject.recorded.values) and subject.recorded.healthy(subject.graph.outputs)
