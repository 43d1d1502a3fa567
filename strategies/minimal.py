"""Minimal sets that need not be contiguous or connected.

The core is QuickXplain (Junker, "QuickXplain: preferred explanations and relaxations for over-constrained problems",
AAAI 2004): about k log2(n/k) + 2k questions for k culprits among n. Two things come before it, because culprits of real
failures lie together: elements that bisection has shown to be needed are tried alone, and then with ever more of their
neighborhood, so that what lies far away is dropped in one question. A sweep proves the result 1-minimal. Unknown
answers count as "no": they can only make the answer larger, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from strategies.beyond_minimal import beyond
from strategies.bisect import First, Window, find_window, window_trial
from strategies.one_at_a_time import sweep
from strategies.outcome import Answer
from strategies.procedure import Procedure, Task
from strategies.search import Ask, Step
from strategies.search_space import Space
from strategies.trial import Trial

SMALL = 8
"""Up to this many open elements, trying one at a time is cheaper than halving."""
GROWTH = (4, 8, 16, 64, 256)
"""Sizes of the neighborhood that are tried around the elements known to be needed."""

Found = Callable[[tuple[int, ...]], Step]


def minimal(space: Space, extra: int | None = None) -> Step:
    """Return the first step of a search for a 1-minimal set; the whole is taken to fail.

    ``extra``: see `beyond`.
    """
    return shrink(space, space.whole, (), extra)


def reduce(space: Space, extra: int | None = None, first: First = First.END) -> Step:
    """Return the first step of the default search: bisect (see `First`), then a minimal set of what is left."""

    def then(window: Window) -> Step:
        keep = window_trial(space, window)
        ends = {space.order[window.start], space.order[window.end]} & keep.elements
        return shrink(space, keep, tuple(sorted(ends, key=space.position.__getitem__)), extra)

    return find_window(space, then, first)


MINIMAL = Procedure("minimal", Task.SUBSET, lambda space, told: minimal(space, told.extra_checks), ("extra_checks",))
REDUCE = Procedure(
    "reduce",
    Task.SUBSET,
    lambda space, told: reduce(space, told.extra_checks, told.first or First.END),
    ("extra_checks", "first"),
)


def shrink(space: Space, keep: Trial, needed: tuple[int, ...], extra: int | None = None) -> Step:
    """Find a 1-minimal subset of ``keep``, which fails; ``needed`` are elements that are believed to be in it."""

    def end(found: Trial, unanswered: int) -> Step:
        return beyond(space, found, unanswered, extra)

    def proof(found: tuple[int, ...]) -> Step:
        return sweep(space, space.close((*needed, *found)), end, last=needed)

    rest = tuple(e for e in keep if e not in needed)
    if len(rest) <= SMALL:
        return sweep(space, keep, end, last=needed)
    if not needed:
        return explain(space, (), False, tuple(sorted(rest, key=space.position.__getitem__)), proof)
    return _grow(space, keep, needed, space.by_distance(needed, rest), (0, *GROWTH), proof)


def _grow(
    space: Space, keep: Trial, needed: tuple[int, ...], near: tuple[int, ...], sizes: tuple[int, ...], proof: Found
) -> Step:
    """Try ``needed`` with its ``sizes[0]`` nearest elements, then with more, until it fails."""
    if not sizes or sizes[0] >= len(near):
        return explain(space, needed, False, near, proof)
    size = sizes[0]
    trial = space.close((*needed, *near[:size]))

    def then(answer: Answer) -> Step:
        if answer is not Answer.YES:
            return _grow(space, keep, needed, near, sizes[1:], proof)
        if size <= SMALL:
            return proof(near[:size])
        return explain(space, needed, False, near[:size], proof)

    label = f"{size} nearest" if size else "the ends alone"
    return Ask(trial, then, "neighborhood", label, left=size + len(needed) + 4)


def explain(space: Space, base: tuple[int, ...], grown: bool, open_: tuple[int, ...], then: Found) -> Step:
    """QuickXplain: which of ``open_`` are needed for a YES beside ``base``?

    ``grown``: base has grown since it was last asked. What is found goes to ``then``.
    """
    if grown:

        def asked(answer: Answer) -> Step:
            return then(()) if answer is Answer.YES else explain(space, base, False, open_, then)

        return Ask(space.close(base), asked, "halving", f"{len(open_)} left out", 0.4, left=_estimate(open_))
    if len(open_) == 1:
        return then(open_)
    middle = (len(open_) + 1) // 2
    near, far = open_[:middle], open_[middle:]

    def far_found(needed_far: tuple[int, ...]) -> Step:
        def near_found(needed_near: tuple[int, ...]) -> Step:
            return then((*needed_near, *needed_far))

        return explain(space, (*base, *needed_far), bool(needed_far), near, near_found)

    return explain(space, (*base, *near), True, far, far_found)


def _estimate(open_: tuple[int, ...]) -> int:
    return 2 * max(len(open_).bit_length(), 1) + 1
