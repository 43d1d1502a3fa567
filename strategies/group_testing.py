"""Group testing: which elements does a YES need, if it needs several at once?

What ranks last is left out together, as much of it as is likely enough to hold no culprit; a NO is narrowed down to the
last rank that is needed, and the search goes on below it. After Hwang, "A method for detecting all defective members in
a population by group testing" (1972). How large a group is follows from how many culprits to expect and where: from
hypotheses, which answers make more or less likely. About log2 C(n, k) + k / 2 questions for k culprits among n.

What is kept has always been answered YES as a whole: expectations that are wrong cost questions, and nothing else.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from strategies.search import Answer, Ask, Space, Step

SHARES = (0.5, 0.45, 0.55, 0.25, 0.75, 0.1, 0.9)
"""How likely the next YES should be, by the number of questions before it that nobody could answer."""

Found = Callable[[tuple[int, ...]], Step]
"""What follows: gets all elements that are needed, and those that could not be told apart from them."""


class Hypothesis(NamedTuple):
    """How many more culprits are expected; each element is one or is not, independently of the others.

    ``prior``: how likely this is before the first answer, in any unit. ``anywhere``: so many among all elements.
    ``near``: so many, fewer the higher the rank, half of them at ranks below ``reach``.
    """

    prior: float
    anywhere: float = 0.01
    near: float = 0.0
    reach: float = 1.0


SCATTERED = (
    Hypothesis(0.5),  # no more: what is known is tried alone first
    *(Hypothesis(0.052, 1), Hypothesis(0.036, 2), Hypothesis(0.026, 4), Hypothesis(0.0065, 16)),
    *(Hypothesis(0.0026, 64), Hypothesis(0.001, 256), Hypothesis(0.0005, 1024)),
)
"""Ranks say nothing. These figures and those below were fitted to random cases; `benchmarks.searches` counts others."""
CLUSTERED = (*SCATTERED, Hypothesis(0.175, near=1.5, reach=0.7), Hypothesis(0.04, near=7, reach=4.2))
"""Ranks are distances from known culprits: a neighbor is one too, or a pattern of several, as runtimes fuse them."""
RANKED = (*SCATTERED, Hypothesis(0.02, near=8, reach=8), Hypothesis(0.005, near=64, reach=16))
"""Ranks are a measured order: most culprits are among the first."""
LEAST = 1e-9
"""No hypothesis is ever taken to be less likely than this, beside the likeliest."""


@dataclass(frozen=True)
class Belief:
    """How likely each hypothesis is, of ``count`` elements; in any unit."""

    count: int
    hypotheses: tuple[Hypothesis, ...]
    weights: tuple[float, ...]

    @staticmethod
    def first(count: int, hypotheses: tuple[Hypothesis, ...]) -> Belief:
        """Return what is believed before the first answer."""
        return Belief(count, hypotheses, tuple(one.prior for one in hypotheses))

    def clean(self, first: int, end: int) -> float:
        """Return how likely ranks from ``first`` to ``end`` (exclusive) hold no culprit, in the unit of the weights."""
        return math.fsum(map(operator.mul, self.weights, self._chances(first, end)))

    def learn(self, first: int, end: int, *, clean: bool) -> Belief:
        """Return what is believed once it is known whether there is a culprit at these ranks."""
        chances = (chance if clean else 1 - chance for chance in self._chances(first, end))
        weights = list(map(operator.mul, self.weights, chances))
        most = max(weights)
        return replace(self, weights=tuple(max(weight / most, LEAST) for weight in weights))

    def _chances(self, first: int, end: int) -> list[float]:
        """Return, by hypothesis, the probability that these ranks hold no culprit."""
        share = (end - first) / self.count
        return [
            math.exp(-anywhere * share - near * (reach / (reach + first) - reach / (reach + end)))
            for _, anywhere, near, reach in self.hypotheses
        ]


@dataclass(frozen=True)
class _Boundary:
    """How many ranks have to be kept: more than ``no`` (-1: perhaps none), at most ``yes``."""

    belief: Belief
    no: int
    yes: int
    unknown: frozenset[int] = frozenset()
    answered: bool = False

    def probe(self) -> int | None:
        """Return how many to keep in the next question; None: it is known, or nobody can tell."""
        tried = len(self.unknown)
        if tried == min(len(SHARES), self.yes - self.no - 1):
            return None
        best = self._at(SHARES[tried])
        near = range(max(self.no + 1, best - tried), min(self.yes, best + tried + 1))
        return min((keep for keep in near if keep not in self.unknown), key=lambda keep: abs(keep - best))

    def likely(self, keep: int) -> float:
        """Return the probability that so many are enough."""
        least, most = self._limits
        return (self.belief.clean(keep, self.yes) - least) / (most - least)

    @cached_property
    def _limits(self) -> tuple[float, float]:
        least = self.belief.clean(self.no, self.yes) if self.no >= 0 else 0.0
        return least, self.belief.clean(self.yes, self.yes)

    def after(self, keep: int, answer: Answer) -> _Boundary:
        """Return what is known after an answer."""
        if answer is Answer.UNKNOWN:
            unknown = self.unknown | {keep}
            if self.answered and len(unknown) == len(SHARES):  # so that what lies beyond is narrowed down at least
                return replace(self, no=max(unknown), unknown=frozenset())
            return replace(self, unknown=unknown)
        if answer is Answer.NO:
            unknown = frozenset(other for other in self.unknown if other > keep)
            return replace(self, no=keep, unknown=unknown, answered=True)
        unknown = frozenset(other for other in self.unknown if other < keep)
        learned = self.belief.learn(keep, self.yes, clean=True)
        return replace(self, yes=keep, belief=learned, unknown=unknown, answered=True)

    def _at(self, share: float) -> int:
        """Return how many to keep so that a YES is as likely as that."""
        low, high = self.no + 1, self.yes - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.likely(middle) >= share else (middle, high)
        return low if low == high or self.likely(low) + self.likely(high) >= 2 * share else high


def by_distance(space: Space, needed: tuple[int, ...], rest: Collection[int], then: Found) -> Step:
    """Find what a YES needs of ``rest`` beside ``needed``, the farthest first; all together have a YES."""
    belief = Belief.first(len(rest), CLUSTERED)
    return _next(space, belief, needed, tuple(rest), space.by_distance, then)


def by_rank(space: Space, needed: tuple[int, ...], ranking: tuple[int, ...], then: Found, *, none: bool) -> Step:
    """Find the same along a ranking, the likeliest first. ``none``: perhaps nothing of it is needed."""
    belief = Belief.first(len(ranking), RANKED)
    return _next(space, belief, needed, ranking, lambda _, rest: tuple(rest), then, none=none)


def _next(
    space: Space,
    belief: Belief,
    needed: tuple[int, ...],
    rest: tuple[int, ...],
    rank: Callable[[Collection[int], Collection[int]], tuple[int, ...]],
    then: Found,
    *,
    none: bool = True,
) -> Step:
    """Find the last rank that is needed, and go on below it."""
    if not rest:
        return then(needed)
    ranks = rank(needed, rest)

    def found(at: _Boundary) -> Step:
        if not at.yes:
            return then(needed)
        first = max(at.no, 0)
        learned = at.belief.learn(first, at.yes, clean=False)
        return _next(space, learned, (*needed, *ranks[first : at.yes]), ranks[:first], rank, then)

    return _narrow(space, needed, ranks, _Boundary(belief, -1 if none else 0, len(ranks)), found)


def _narrow(
    space: Space, needed: tuple[int, ...], ranks: tuple[int, ...], at: _Boundary, found: Callable[[_Boundary], Step]
) -> Step:
    """Ask until the boundary is known, or nobody can tell where between two ranks it is."""
    keep = at.probe()
    if keep is None:
        return found(at)
    return Ask(
        space.close((*needed, *ranks[:keep])),
        lambda answer: _narrow(space, needed, ranks, at.after(keep, answer), found),
        "group testing",
        f"{len(needed)} needed, with {keep} of {len(ranks)} suspects",
        at.likely(keep),
        (at.yes - at.no).bit_length() + len(needed) + 1,
    )
