"""Which few elements have to be raised to high precision so that the check passes. YES means that it does.

With suspects (elements whose values leave the range of the low type) the first question is all of them, and each is
then left out once: k + 1 questions where ranges tell the truth. Without, or where they do not suffice, ever more
elements are raised in the order of the error that they introduce (galloping, after Bentley and Yao 1976), until the
check passes; the shortest such prefix is found by bisection, and a minimal set in it by group testing. Where error adds
up over many elements no small set exists: halving then takes too many questions, and the smallest set that passed on
the way is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from strategies.bisect import bisect
from strategies.group_testing import by_rank
from strategies.minimal import claim, shrink, sweep
from strategies.search import (
    Answer,
    Ask,
    Claim,
    Closure,
    Done,
    Look,
    Prior,
    Procedure,
    Space,
    Step,
    Task,
    Trial,
    limited,
)

WIDE = 32
"""More elements than this are left out a kind at a time first."""
FASTER = 4
"""By how much galloping grows: where rankings are bad, every step of it is lost."""


def precision(space: Space, prior: Prior) -> Step:
    """Return the first step of a search for a 1-minimal raised set; all raised is taken to pass, none to fail."""
    ranking = tuple(element for element in dict.fromkeys((*prior.ranking, *space.order)) if element in space.position)
    if not prior.suspects:
        return _gallop(space, (), ranking, 1, partial(_minimal, kinds=prior.kinds))
    suspects = Trial.of(prior.suspects)
    rest = tuple(element for element in ranking if element not in suspects.elements)

    def then(answer: Answer) -> Step:
        if answer is Answer.YES:
            by_rank = tuple(element for element in ranking if element in suspects.elements)
            return _leave_out(space, suspects, tuple(reversed(by_rank)), 0)
        return _gallop(space, prior.suspects, rest, 1, partial(_minimal, kinds=prior.kinds))

    return Ask(suspects, then, "ranges", f"{len(suspects)} beyond the range", 0.8, left=len(suspects) + 1)


def grow(space: Space, base: Trial, prior: Prior) -> Step:
    """Return the first step of a search for the least that has to be raised beside ``base``, if anything.

    ``base`` is not made smaller again: it stood other questions. Of none it is a search of its own.
    """
    if not base:
        return precision(space, prior)
    rest = tuple(dict.fromkeys((*prior.suspects, *prior.ranking, *space.order)))
    rest = tuple(element for element in rest if element in space.position and element not in base.elements)

    def end(found: tuple[int, ...]) -> Step:
        return Done(Trial.of(found), Claim.GROWN)

    def minimal(space: Space, base: tuple[int, ...], ranking: tuple[int, ...], count: int) -> Step:
        keep, needed = Trial.of((*base, *ranking[:count])), (*base, ranking[count - 1])

        def fine(left: tuple[int, ...]) -> Step:
            return by_rank(space, needed, left, end, none=True)

        step = _coarse(space, needed, ranking[: count - 1], prior.kinds, fine)
        return limited(step, _most(space), lambda _, done: done or _look(keep))

    def then(answer: Answer) -> Step:
        return Done(base, Claim.GROWN) if answer is Answer.YES else _gallop(space, tuple(base), rest, 1, minimal)

    return Ask(base, then, "growing", f"{len(base)} raised before", left=2 * len(rest).bit_length())


def prefix(space: Space, *, reverse: bool) -> Step:
    """Return the first step of a bisection: the shortest prefix (or suffix) of the order that passes."""
    closure = Closure.DESCENDANTS if reverse else Closure.ANCESTORS
    return bisect(Space(space.order, (), closure))


def scan(space: Space, *, reverse: bool) -> Step:
    """Return the first step of a linear scan: one more element of the order at a time, until it passes."""
    order = tuple(reversed(space.order)) if reverse else space.order

    def at(count: int) -> Step:
        trial = Trial.of(order[:count])
        if count == len(order):
            return Done(trial, Claim.WINDOW)

        def then(answer: Answer) -> Step:
            return Done(trial, Claim.WINDOW) if answer is Answer.YES else at(count + 1)

        side = "last" if reverse else "first"
        return Ask(trial, then, "one more", f"the {side} {count}", left=len(order) - count)

    return at(1)


PRECISION = Procedure(
    "precision", Task.RAISE, lambda space, told: precision(space, told.prior or Prior()), ("prior", "goal")
)
PREFIX = Procedure(
    "precision_bisect", Task.RAISE, lambda space, told: prefix(space, reverse=told.reverse), ("direction",)
)
SCAN = Procedure("precision_linear", Task.RAISE, lambda space, told: scan(space, reverse=told.reverse), ("direction",))


def _leave_out(space: Space, keep: Trial, order: tuple[int, ...], at: int) -> Step:
    """Leave out one suspect at a time; the first that can go says that ranges exaggerate, and halving takes over."""
    if at == len(order) or len(keep) == 1:
        return Done(keep, Claim.ONE_MINIMAL)
    element = order[at]

    def then(answer: Answer) -> Step:
        if answer is Answer.YES:
            return shrink(space, Trial(keep.elements - {element}), 0)
        if answer is Answer.UNKNOWN:
            return shrink(space, keep, 0)
        return _leave_out(space, keep, order, at + 1)

    smaller = Trial(keep.elements - {element})
    return Ask(smaller, then, "one at a time", f"without {element}", 0.2, left=len(order) - at)


Boundary = Callable[[Space, tuple[int, ...], tuple[int, ...], int], Step]
"""Goes on from the shortest prefix of a ranking that passes beside a base: its length."""


def _gallop(space: Space, base: tuple[int, ...], ranking: tuple[int, ...], count: int, then: Boundary) -> Step:
    """Raise ``base`` and the first ``count`` of the ranking, then ever more, until it passes."""
    if count >= len(ranking):
        return _boundary(space, base, ranking, (count // FASTER, len(ranking)), then)

    def answered(answer: Answer) -> Step:
        if answer is Answer.YES:
            return _boundary(space, base, ranking, (count // FASTER, count), then)
        return _gallop(space, base, ranking, count * FASTER, then)

    trial = Trial.of((*base, *ranking[:count]))
    return Ask(trial, answered, "most error first", f"the first {count}", left=2 * len(ranking).bit_length())


def _boundary(
    space: Space, base: tuple[int, ...], ranking: tuple[int, ...], between: tuple[int, int], then: Boundary
) -> Step:
    """Find the shortest prefix that passes; ``between``: lengths of which the first does not and the second does."""
    no, yes = between
    if yes - no <= 1:
        return then(space, base, ranking, yes)
    middle = (no + yes) // 2

    def answered(answer: Answer) -> Step:
        return _boundary(space, base, ranking, (no, middle) if answer is Answer.YES else (middle, yes), then)

    trial = Trial.of((*base, *ranking[:middle]))
    return Ask(trial, answered, "most error first", f"the first {middle}", left=(yes - no).bit_length())


def _minimal(
    space: Space, base: tuple[int, ...], ranking: tuple[int, ...], count: int, kinds: tuple[tuple[int, ...], ...]
) -> Step:
    """Find a minimal set in a prefix whose last element is needed; give up where error adds up."""
    keep = Trial.of((*base, *ranking[:count]))
    needed = (ranking[count - 1],) if count else ()
    rest = tuple(element for element in (*base, *ranking[:count]) if element not in needed)
    step = _coarse(space, needed, rest, kinds, partial(_alone, space, needed))
    return limited(step, _most(space), lambda _, done: done or _look(keep))


def _coarse(
    space: Space,
    needed: tuple[int, ...],
    rest: tuple[int, ...],
    kinds: tuple[tuple[int, ...], ...],
    then: Callable[[tuple[int, ...]], Step],
) -> Step:
    """Leave out what is not needed of many elements a kind at a time; what is left of ``rest`` goes to ``then``."""
    kind_of = {element: kind for kind, members in enumerate(kinds) for element in members}
    groups: dict[object, list[int]] = {}
    for element in rest:
        groups.setdefault(kind_of.get(element, (element,)), []).append(element)
    if len(rest) <= WIDE or 2 * len(groups) > len(rest):
        return then(rest)
    members = list(groups.values())

    def of(found: Trial) -> Trial:
        return space.close((*needed, *(element for group in found for element in members[group])))

    def left(found: Trial) -> Step:
        kept = {element for group in found for element in members[group]}
        return then(tuple(element for element in rest if element in kept))

    coarse = Space(tuple(range(len(members))))
    step = by_rank(coarse, (), coarse.order, lambda found: Done(Trial.of(found), Claim.UNPROVEN), none=bool(needed))
    return _translated(step, of, left)


def _translated(step: Step, of: Callable[[Trial], Trial], then: Callable[[Trial], Step]) -> Step:
    """Put the questions of a step in other words; its end goes to ``then``."""
    if isinstance(step, Done):
        return then(step.trial or Trial.of([]))
    assert isinstance(step, Ask)
    answered = step.then
    return replace(step, trial=of(step.trial), then=lambda answer: _translated(answered(answer), of, then))


def _most(space: Space) -> int:
    """Return what halving takes for a few dozen elements among all of them."""
    return 22 * math.ceil(math.log2(len(space.order) + 1)) + 32


def _look(prefix: Trial) -> Step:
    return Look(lambda asked: _smallest(asked, prefix))


def _smallest(asked: tuple[tuple[Trial, Answer], ...], prefix: Trial) -> Done:
    """Return the smallest set that passed; ``prefix``: the shortest prefix of the ranking that does."""
    passed = [trial for trial, answer in asked if answer is Answer.YES and len(trial) < len(prefix)]
    if not passed:
        note = "error adds up: no small set was found; what introduces most of it is raised"
        return Done(prefix, Claim.RANKED, note=note)
    best = min(passed, key=len)
    note = "error adds up: no small set was found; this is the smallest of those that passed"
    return Done(best, Claim.SMALLEST_SEEN, note=note)


def _alone(space: Space, needed: tuple[int, ...], rest: tuple[int, ...]) -> Step:
    """Try what is needed alone, then halve the rest, the likeliest of which come first."""

    def proof(found: tuple[int, ...]) -> Step:
        return sweep(space, Trial.of(found), claim, last=found)

    return by_rank(space, needed, rest, proof, none=bool(needed))


def cheapest(space: Space, cost: dict[int, float]) -> Space:
    """Return the space in which searches try to leave out what costs most first."""
    order = tuple(sorted(space.order, key=lambda element: (cost.get(element, 0.0), space.position[element])))
    return replace(space, order=order)
