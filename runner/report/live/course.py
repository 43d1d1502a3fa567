"""What a run does besides its search, as far as that is known beforehand: by this its checks are predicted."""

from __future__ import annotations

from dataclasses import dataclass

WEAK = 5
"""Repeats of an answer of which few checks show that an element is needed."""


@dataclass(frozen=True)
class Course:
    """What a run does besides its search.

    ``elements``: how many are searched. ``workers``: checks at once. ``wanted``: the outcome that an answer has.
    ``doubts``: repeats of the whole before a search. ``first``: questions of a search that finds one element, 0: nobody
    knows before it begins. ``proves``: each removal is tried on the answer, ``several``: and so many of several at
    once. ``second``: an answer, and what proves it, is checked again; as it is handed over ``least`` to ``most`` times
    more, or a ``share`` of the search. ``alone``: checks, at most, of what a search has left out, and no more than it
    asked questions; ``held_out``: on samples that it has not seen; ``simpler``: to make an answer simpler, ``cause``:
    to show it to be the cause, ``good``: of what passes and is handed over as well, ``handed``: 0 where nothing is.
    ``step``: it is a step of a run, and nothing is known of those that follow it. ``writing``: seconds at its end.
    ``repeats``: the same check is made again and again, so many times, 0: nobody knows how many; None: something is
    searched.
    """

    elements: int = 0
    workers: int = 1
    wanted: str = "fail"
    doubts: int = 0
    first: int = 0
    proves: bool = False
    several: int = 0
    second: bool = True
    least: int = 2
    most: int = 7
    share: float = 0.25
    alone: float = 0
    held_out: float = 0
    simpler: float = 0
    cause: float = 0
    good: float = 0
    handed: float = 1
    step: bool = False
    writing: float = 0.7
    repeats: int | None = None

    def follows(self, searched: float) -> float:
        """Return how many checks follow a search of so many that finds one element."""
        tested = min(self.alone, searched) + self.held_out
        return self.handing_over(searched, 0, weak=False) + tested + self.simpler + self.cause + self.good

    def handing_over(self, searched: float, repeats: float, *, weak: bool) -> float:
        """Return how often an answer is checked as it is handed over, after so many repeats; ``weak``: see `WEAK`."""
        if not self.handed or not self.second:
            return self.handed
        least = WEAK if weak else self.least
        return 1 + min(self.most, max(least, int(self.share * searched / self.workers - repeats)))
