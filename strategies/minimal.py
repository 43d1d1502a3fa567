"""Minimal sets that need not be contiguous or connected: the default search.

Bisection finds one end of the window, an element that the failure needs; group testing finds the others, those far away
first, so that a cluster of culprits is soon alone. A sweep proves the result 1-minimal. Unanswered questions can only
make the answer larger, never wrong. Where something names elements, they are asked about before that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from strategies.beyond_minimal import beyond
from strategies.bisect import First, Window, find_end, first_end, window_trial
from strategies.group_testing import by_distance
from strategies.one_at_a_time import sweep
from strategies.outcome import Answer
from strategies.procedure import Procedure, Task
from strategies.search import Ask, Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial

FEW = 6
"""So many elements that are named, and fail alone, are taken for the answer: one at a time has to prove it anyway."""
NEAREST = 12
"""Elements around those that are named: a pattern that a runtime fuses is seldom larger."""


def reduce(space: Space, extra: int | None = None, first: First = First.END, named: tuple[int, ...] = ()) -> Step:
    """Return the first step of a search for a 1-minimal set; the whole is taken to fail.

    ``extra``: see `beyond`. ``first``: see `First`. ``named``: elements that are asked about before all others, alone
    and then with what lies nearest to them, where any set may be tried. Where they have nothing to do with it, two
    questions are lost, and the whole is searched as if nobody had named anything.
    """

    def everywhere() -> Step:
        return shrink(space, space.whole, extra, first)

    def alone(keep: Trial) -> Step:
        return _proven(space, keep, (), extra) if len(keep) <= FEW else shrink(space, keep, extra, first)

    def near(keep: Trial) -> Step:
        if len(named) > 1:
            return shrink(space, keep, extra, first)
        others = keep.elements.difference(named)
        return by_distance(space, named, others, lambda found: _proven(space, Trial.of(found), found, extra))

    def wider() -> Step:
        nearest = space.by_distance(named, space.order)[:NEAREST]
        return _look(space, Trial.of((*named, *nearest)), "with its neighbors", near, everywhere)

    if not named or space.closure is not Closure.FREE:
        return everywhere()
    return _look(space, Trial.of(named), "alone", alone, wider)


def _look(space: Space, trial: Trial, how: str, fails: Callable[[Trial], Step], otherwise: Callable[[], Step]) -> Step:
    """Ask about what is named; ``otherwise``: it has not the property, or it is everything."""
    if len(trial) == len(space.order):
        return otherwise()

    def then(answer: Answer) -> Step:
        return fails(trial) if answer is Answer.YES else otherwise()

    return Ask(trial, then, "first look", f"what is named, {how}", 0.6, len(trial).bit_length() + 1)


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
