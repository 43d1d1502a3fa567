"""Linear search: removes one element at a time, the last first."""

from __future__ import annotations

from strategies.beyond_minimal import beyond
from strategies.one_at_a_time import sweep
from strategies.procedure import Procedure, Task
from strategies.search import Step
from strategies.search_space import Space


def linear(space: Space, extra: int | None = None) -> Step:
    """Return the first step of a search that removes one element at a time; the whole is taken to fail.

    ``extra``: see `beyond`.
    """
    return sweep(space, space.whole, lambda found, unanswered: beyond(space, found, unanswered, extra))


LINEAR = Procedure("linear", Task.SUBSET, lambda space, told: linear(space, told.extra_checks), ("extra_checks",))
