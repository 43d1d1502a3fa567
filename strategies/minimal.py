"""Minimal sets that need not be contiguous or connected: the default search.

Bisection finds one end of the window, an element that the failure needs; group testing finds the others, those far away
first, so that a cluster of culprits is soon alone. A sweep proves the result 1-minimal. Unanswered questions can only
make the answer larger, never wrong.
"""

from __future__ import annotations

from dataclasses import replace

from strategies.beyond_minimal import beyond
from strategies.bisect import First, Window, find_end, first_end, window_trial
from strategies.group_testing import by_distance
from strategies.one_at_a_time import sweep
from strategies.procedure import Procedure, Task
from strategies.search import Step
from strategies.search_space import Space
from strategies.trial import Trial


def reduce(space: Space, extra: int | None = None, first: First = First.END) -> Step:
    """Return the first step of a search for a 1-minimal set; the whole is taken to fail.

    ``extra``: see `beyond`. ``first``: see `First`.
    """
    return shrink(space, space.whole, extra, first)


def linear(space: Space, extra: int | None = None) -> Step:
    """Return the first step of a search that removes one element at a time, the last first.

    The whole is taken to fail. ``extra``: see `beyond`.
    """
    return _proven(space, space.whole, (), extra)


MINIMAL = Procedure("minimal", Task.SUBSET, lambda space, told: reduce(space, told.extra_checks), ("extra_checks",))
"""The default search where an order has no ends to choose from."""
REDUCE = Procedure(
    "reduce",
    Task.SUBSET,
    lambda space, told: reduce(space, told.extra_checks, told.first or First.END),
    ("extra_checks", "first"),
)


LINEAR = Procedure("linear", Task.SUBSET, lambda space, told: linear(space, told.extra_checks), ("extra_checks",))


def shrink(space: Space, keep: Trial, extra: int | None = None, first: First = First.END) -> Step:
    """Find a 1-minimal subset of ``keep``, which fails."""
    part = replace(space, order=tuple(element for element in space.order if element in keep.elements))

    def then(window: Window) -> Step:
        end = part.order[window.start if first_end(space, first) is First.START else window.end]
        rest = window_trial(part, window).elements - space.close([end]).elements
        return by_distance(space, (end,), rest, proof)

    def proof(found: tuple[int, ...]) -> Step:
        return _proven(space, space.close(found), found, extra)

    return find_end(part, then, first)


def _proven(space: Space, keep: Trial, last: tuple[int, ...], extra: int | None) -> Step:
    """Remove what can be removed from ``keep``, one element at a time (``last`` after all others), and then more."""
    return sweep(space, keep, lambda found, unanswered: beyond(space, found, unanswered, extra), last)
