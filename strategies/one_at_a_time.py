"""One element at a time: the proof of 1-minimality.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): a set is 1-minimal if no single
element can be taken away. Whenever one can, the elements that had to stay before are tried again, so that every
refusal in the end was given for the final set itself: no monotonicity is assumed.
"""

from __future__ import annotations

from collections.abc import Callable

from strategies.outcome import Answer
from strategies.search import Ask, Claim, Done, Step
from strategies.search_space import Space
from strategies.trial import Trial

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
