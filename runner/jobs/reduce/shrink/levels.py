"""Levels: how far each part of an answer is simplified, as a space of trials, and the search for the lowest ones.

A part stands on one of its levels: 0 is the simplest, the top one is the part as it is. A part's level is how many of
its elements a trial keeps, each of which depends on the one below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from runner.session.trust.check_counts import SHRINKING
from strategies.outcome import Answer
from strategies.search import Ask, Claim, Done, Look, Search, Step, limited
from strategies.search_space import Closure, Space
from strategies.trial import Trial

NODES = 0
"""The element that stands for the nodes themselves; it always stays."""


@dataclass(frozen=True)
class Levels:
    """``tops``: the highest level of each part, at least 1. ``what``: the parts are, in the plural."""

    tops: tuple[int, ...]
    what: str = "parts"

    @cached_property
    def space(self) -> Space:
        """The nodes, and for each part as many elements as its top level."""
        parents: list[tuple[int, ...]] = [()]
        for elements in self._elements:
            parents += [(NODES,), *((element,) for element in elements[:-1])]
        return Space(tuple(range(len(parents))), tuple(parents), Closure.ANCESTORS)

    def trial(self, levels: Sequence[int]) -> Trial:
        """Return the trial in which the parts stand on these levels."""
        kept = (element for own, level in zip(self._elements, levels, strict=True) for element in own[:level])
        return Trial.of([NODES, *kept])

    def of(self, trial: Trial) -> tuple[int, ...]:
        """Return the level of each part in a trial."""
        return tuple(sum(element in trial for element in own) for own in self._elements)

    def search(self, known: dict[Trial, Answer], most: int) -> Search:
        """Return the search for low levels: of all parts at once, else of halves; ``most``: questions it asks."""

        def best(asked: tuple[tuple[Trial, Answer], ...]) -> Step:
            yes = [trial for trial, answer in asked if answer is Answer.YES]
            return Done(yes[-1] if yes else self.space.whole, Claim.BUDGET)

        # where all parts have two levels, level 1 is the answer itself
        first = limited(self._together(int(max(self.tops, default=0) > 1)), most, lambda _, done: done or Look(best))
        return Search(self.space, first, known)

    @cached_property
    def _elements(self) -> tuple[range, ...]:
        starts = [NODES + 1]
        for top in self.tops:
            starts.append(starts[-1] + top)
        return tuple(range(start, start + top) for start, top in zip(starts, self.tops, strict=False))

    def _together(self, level: int) -> Step:
        """Ask about all parts on level 1, which the failure is likelier to survive, then on level 0."""

        def then(answer: Answer) -> Step:
            if answer is Answer.YES and levels != self.tops:
                return self._done(levels)
            return self._together(0) if level else self._groups(self.tops, _halves(range(len(self.tops))))

        levels = tuple(min(level, top) for top in self.tops)
        return Ask(self.trial(levels), then, SHRINKING, f"{self.what}: all on level {level}", left=1 + level)

    def _groups(self, levels: tuple[int, ...], waiting: tuple[Sequence[int], ...]) -> Step:
        """Lower one group after the other; what cannot be lowered is halved."""
        if not waiting:
            return self._done(levels)
        group, *rest = waiting
        lowered = tuple(min(1, self.tops[part] - 1) if part in group else level for part, level in enumerate(levels))

        def then(answer: Answer) -> Step:
            if answer is Answer.YES:
                return self._groups(lowered, tuple(rest))
            if len(group) > 1:
                return self._groups(levels, (*_halves(group), *rest))
            return self._narrow(levels, group[0], lowered[group[0]], tuple(rest))

        label = f"{self.what}: {len(group)} of {len(levels)} on level 1 at most"
        return Ask(self.trial(lowered), then, SHRINKING, label, left=len(waiting))

    def _narrow(self, levels: tuple[int, ...], part: int, no: int, waiting: tuple[Sequence[int], ...]) -> Step:
        """Find the lowest level of one part above ``no``, which is too low."""
        middle = (no + levels[part]) // 2
        if middle == no:
            return self._groups(levels, waiting)
        lowered = (*levels[:part], middle, *levels[part + 1 :])

        def then(answer: Answer) -> Step:
            if answer is Answer.YES:
                return self._narrow(lowered, part, no, waiting)
            return self._narrow(levels, part, middle, waiting)

        return Ask(self.trial(lowered), then, SHRINKING, f"{self.what}: one on level {middle}", left=len(waiting) + 1)

    def _done(self, levels: tuple[int, ...]) -> Done:
        return Done(self.trial(levels), Claim.SMALLEST_SEEN)


def _halves(group: Sequence[int]) -> tuple[Sequence[int], ...]:
    middle = (len(group) + 1) // 2
    return tuple(half for half in (group[:middle], group[middle:]) if half)
