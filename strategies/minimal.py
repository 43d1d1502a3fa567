"""Minimal sets: the default search, one element at a time, and beyond 1-minimality.

Minimal sets that need not be contiguous or connected: the default search.

Bisection finds one end of the window, an element that the failure needs; group testing finds the others, those far away
first, so that a cluster of culprits is soon alone. A sweep proves the result 1-minimal. Unanswered questions can only
make the answer larger, never wrong. Where something names elements, they are asked about before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from strategies.bisect import Window, find_end, first_end, window_trial
from strategies.group_testing import by_distance
from strategies.search import (
    Answer,
    Ask,
    Claim,
    Closure,
    Done,
    First,
    Look,
    Procedure,
    Space,
    Step,
    Task,
    Trial,
)

# One element at a time: the proof of 1-minimality.
#
# After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): a set is 1-minimal if no
# single element can be taken away. Whenever one can, the elements that had to stay before are tried again, so that
# every refusal in the end was given for the final set itself: no monotonicity is assumed.

Then = Callable[[Trial, int], Step]
"""What follows a sweep: gets the 1-minimal trial and the number of its removals that nobody could judge."""


def claim(trial: Trial, unanswered: int) -> Done:
    """End with what a sweep has shown."""
    return Done(trial, Claim.UNPROVEN if unanswered else Claim.ONE_MINIMAL, unanswered)


def sweep(
    space: Space, keep: Trial, then: Then, last: tuple[int, ...] = (), settled: frozenset[int] = frozenset()
) -> Step:
    """Remove what can be removed from ``keep``, one element at a time.

    Elements of ``last`` are tried after all others; those of ``settled`` are known to be needed as long as ``keep`` is
    what it is.
    """
    return _next(space, keep, last, (), settled, then)


def _next(
    space: Space,
    keep: Trial,
    last: tuple[int, ...],
    stale: tuple[int, ...],
    settled: frozenset[int],
    then: Then,
    unknown: frozenset[int] = frozenset(),
) -> Step:
    """Ask about the next element of ``keep``.

    ``settled``: had to stay, asked of this very ``keep``. ``stale``: had to stay when ``keep`` was larger.
    ``unknown``: the part of
    ``settled`` that got no answer.
    """
    removable = [element for element in space.removable(keep) if element not in settled]
    if not removable or len(keep) == 1:
        return then(keep, len(unknown))
    waiting = set(stale)
    rank = {element: 1 + place for place, element in enumerate(last)}
    element = min(removable, key=lambda e: (e in waiting, rank.get(e, 0), -space.position[e]))
    smaller = Trial(keep.elements - {element})

    def answered(answer: Answer) -> Step:
        if answer is Answer.YES:
            again = tuple(e for e in (*stale, *settled) if e != element)
            return _next(space, smaller, last, again, frozenset(), then)
        unsure = unknown | {element} if answer is Answer.UNKNOWN else unknown
        return _next(space, keep, last, stale, settled | {element}, then, unsure)

    likely = 0.2 if element in waiting else 0.5
    return Ask(smaller, answered, "one at a time", f"without {element}", likely, left=len(removable))


# Beyond 1-minimality: smaller answers where failures are not monotone.
#
# Where a set that fails never has a superset that passes, a 1-minimal set is minimal, and every question here would be
# wasted. Real runtimes fuse across the cut, so a set can pass and a part of it fail; then removing two elements at
# once can succeed where removing either did not. Whether the answers so far were monotone is known at no cost: where
# they were, few such questions are asked, unless the user wants more.

FEW, AUTO = 8, 24
"""Questions where the user named no number: after monotone answers, and after others."""
REFINING = "several at once"
"""The phase of these questions."""
LARGEST = 8
"""Elements that are removed at once, at most."""
LOOKED_AT = 20_000
"""Sets that are looked at for some that may be removed."""


def beyond(space: Space, found: Trial, unanswered: int, extra: int | None) -> Step:
    """Go on from a 1-minimal set; ``extra``: how many questions may be spent, None: see `FEW`."""
    if extra == 0 or len(found) < 3:
        return claim(found, unanswered)
    if extra is not None:
        return _remove(space, found, unanswered, extra)

    def look(asked: tuple[tuple[Trial, Answer], ...]) -> Step:
        few = not unanswered and monotone(asked)
        return _remove(space, found, unanswered, FEW if few else AUTO)

    return Look(look)


def monotone(asked: Iterable[tuple[Trial, Answer]]) -> bool:
    """Whether no set that has the property was met inside one that has not."""
    line = list(asked)
    having = [trial.bits for trial, answer in line if answer is Answer.YES]
    lacking = (trial.bits for trial, answer in line if answer is Answer.NO and trial)
    return not any(inner & outer == inner != outer for outer in lacking for inner in having)


def _remove(space: Space, keep: Trial, unanswered: int, left: int, tried: int = 0) -> Step:
    """Try to remove several elements at once, so often at most; from a smaller set, begin again."""

    def ask(removals: Sequence[frozenset[int]], left: int, tried: int) -> Step:
        if not removals:
            sets = f"{tried} set{'s' * (tried != 1)} of several at once"
            return replace(claim(keep, unanswered), note=f"also tried, after one at a time: {sets}" if tried else "")
        smaller = Trial(keep.elements - removals[0])

        def then(answer: Answer) -> Step:
            if answer is Answer.YES:
                return sweep(space, smaller, lambda trial, open_: _remove(space, trial, open_, left - 1, tried + 1))
            return ask(removals[1:], left - 1, tried + 1)

        return Ask(smaller, then, REFINING, f"without {len(removals[0])} at once", 0.1, left=len(removals))

    return ask(_removals(space, keep, left), left, tried)


def _removals(space: Space, keep: Trial, most: int) -> list[frozenset[int]]:
    """Return up to ``most`` sets of elements whose removal leaves an allowed, non-empty trial."""
    inside = keep.elements
    elements = sorted(inside, key=space.position.__getitem__)
    rests = ((out, inside - out) for out in islice(_near_sets(space, elements), LOOKED_AT))
    allowed = (out for out, rest in rests if rest and space.close(rest).elements == rest)
    return list(dict.fromkeys(islice(allowed, most)))


def _near_sets(space: Space, elements: Sequence[int]) -> Iterator[frozenset[int]]:
    """Pairs, those that are linked first and the nearest first, then larger neighborhoods.

    One after the other as they are asked for: thousands of elements have millions of pairs.
    """
    place = {element: at for at, element in enumerate(elements)}
    linked = {
        (place[parent], place[element])
        for element in elements
        for parent in (space.parents[element] if space.parents else ())
        if place.get(parent, place[element]) < place[element]
    }
    for low, high in sorted(linked, key=lambda pair: (pair[1] - pair[0], -pair[1])):
        yield frozenset([elements[low], elements[high]])
    for gap in range(1, len(elements)):
        for high in reversed(range(gap, len(elements))):
            if (high - gap, high) not in linked:
                yield frozenset([elements[high - gap], elements[high]])
    for size in range(3, min(LARGEST, len(elements) - 1) + 1):
        for element in reversed(elements):
            near = space.by_distance([element], elements)[: size - 1]
            yield frozenset([element, *near])


FEW_NAMED = 6
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
        return _proven(space, keep, (), extra) if len(keep) <= FEW_NAMED else shrink(space, keep, extra, first)

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

    return Ask(trial, then, "first look", f"the suspects, {how}", 0.6, len(trial).bit_length() + 1)


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
