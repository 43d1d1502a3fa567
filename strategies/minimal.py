"""Minimal sets that need not be contiguous or connected: the default search.

Bisection finds one end of the window, an element that the failure needs; group testing finds the others, those far away
first, so that a cluster of culprits is soon alone. A sweep proves the result 1-minimal. Unanswered questions can only
make the answer larger, never wrong. Where something names elements, they are asked about before that.
"""

from __future__ import annotations

from dataclasses import replace

from strategies.beyond_minimal import beyond
from strategies.bisect import First, Window, find_end, first_end, window_trial
from strategies.group_testing import by_distance
from strategies.neighborhood import around
from strategies.one_at_a_time import sweep
from strategies.procedure import Procedure, Task
from strategies.search import Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial

FEW = 6
"""So many elements that are named, and fail alone, are taken for the answer: one at a time has to prove it anyway."""


def reduce(space: Space, extra: int | None = None, first: First = First.END, named: tuple[int, ...] = ()) -> Step:
    """Return the first step of a search for a 1-minimal set; the whole is taken to fail.

    ``extra``: see `beyond`. ``first``: see `First`. ``named``: elements that are asked about before all others,
    where any set may be tried.
    """

    def inside(keep: Trial, alone: bool) -> Step:
        if alone and len(keep) <= FEW:
            return _proven(space, keep, (), extra)
        if alone or len(named) > 1:
            return shrink(space, keep, extra, first)
        return by_distance(
            space, named, keep.elements - {*named}, lambda found: _proven(space, Trial.of(found), found, extra)
        )

    def everywhere() -> Step:
        return shrink(space, space.whole, extra, first)

    return around(space, named, inside, everywhere) if named and space.closure is Closure.FREE else everywhere()


def linear(space: Space, extra: int | None = None) -> Step:
    """Return the first step of a search that removes one element at a time, the last first.

    The whole is taken to fail. ``extra``: see `beyond`.
    """
    return _proven(space, space.whole, (), extra)


MINIMAL = Procedure(
    "minimal",
    Task.SUBSET,
    lambda space, told: reduce(space, told.extra_checks, named=told.named),
    ("extra_checks", "look_inside"),
)
"""The default search where an order has no ends to choose from."""
REDUCE = Procedure(
    "reduce",
    Task.SUBSET,
    lambda space, told: reduce(space, told.extra_checks, told.first or First.END, told.named),
    ("extra_checks", "first", "look_inside"),
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
