"""Where to look first: at elements that something names, and around them, before the whole is halved.

What names them may be wrong. Then two questions are lost, and the whole is searched as if nobody had named anything.
"""

from __future__ import annotations

from collections.abc import Callable

from strategies.outcome import Answer
from strategies.search import Ask, Step
from strategies.search_space import Space
from strategies.trial import Trial

NEAREST = 12
"""Elements around those that are named: a pattern that a runtime fuses is seldom larger."""

Inside = Callable[[Trial, bool], Step]
"""Goes on from a set that has the property; whether it is only what was named."""


def around(space: Space, named: tuple[int, ...], inside: Inside, otherwise: Callable[[], Step]) -> Step:
    """Ask about what is ``named`` alone, then with what lies nearest to it; ``otherwise``: neither has the property."""

    def near() -> Step:
        nearest = space.by_distance(named, space.order)[:NEAREST]
        return _ask(space, Trial.of((*named, *nearest)), "with its neighbors", False, inside, otherwise)

    return _ask(space, Trial.of(named), "alone", True, inside, near)


def _ask(space: Space, trial: Trial, label: str, alone: bool, inside: Inside, otherwise: Callable[[], Step]) -> Step:
    if len(trial) == len(space.order):
        return otherwise()
    what = f"what is named, {label}"
    return Ask(
        trial,
        lambda answer: inside(trial, alone) if answer is Answer.YES else otherwise(),
        "first look",
        what,
        0.6,
        len(trial).bit_length() + 1,
    )
