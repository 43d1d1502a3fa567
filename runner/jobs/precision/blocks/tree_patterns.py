"""Patterns of nodes, matched from a tensor upwards: operators, what they read, and tensors that have to be the same.

A pattern yields its matches, the one with most nodes first. What a sum or a product reads may stand either way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.jobs.precision.blocks.graph_view import GraphView

_CLOSE = 1e-3
"""Constants are written with a few digits."""
_COMMUTATIVE = ("Add", "Mul", "Max")
_DEEPEST = 4
"""A number that is added, a limit, a factor: more steps than that lie in no norm between a mean and its root."""


@dataclass(frozen=True)
class Match:
    """``places``: of the nodes; ``affine``: of those that are scale or bias. ``bound``: what was given a name."""

    places: frozenset[int] = frozenset()
    affine: frozenset[int] = frozenset()
    bound: Mapping[str, Any] = field(default_factory=dict)

    def binding(self, key: str, value: Any) -> Match:
        """Return the match with a name for a value."""
        return replace(self, bound={**self.bound, key: value})


Pattern = Callable[[GraphView, str, Match], Iterator[Match]]
"""Yields what a match becomes once the pattern is found to make a tensor."""


def op(operators: str, *inputs: Pattern, rest: Pattern | None = None, over: str = "", affine: bool = False) -> Pattern:
    """Match a node of one of the operators (separated by blanks) that reads these inputs first.

    ``rest``: of all others that it reads. ``over``: the name of the axes along which it reduces. ``affine``: it is a
    scale or a bias.
    """

    def match(view: GraphView, name: str, before: Match) -> Iterator[Match]:
        made = view.maker(name, *operators.split())
        if made is None or len(made.node.input) < len(inputs):
            return
        node, read = made.node, list(made.node.input)
        start = replace(
            before,
            places=before.places if affine else before.places | made.places,
            affine=before.affine | made.places if affine else before.affine,
        )
        if over:
            axes = Axes(view.axes(node), view.rank(read[0]))
            if not axes.same_as(start.bound.get(over)):
                return
            start = start.binding(over, axes)
        turned = node.op_type in _COMMUTATIVE and len(inputs) == len(read) == 2
        for order in (read, read[::-1]) if turned else (read,):
            others = [(rest, one) for one in order[len(inputs) :] if rest and one]
            found = [start]
            for pattern, one in (*zip(inputs, order, strict=False), *others):
                found = [more for so_far in found for more in pattern(view, one, so_far)]
            yield from found

    return match


@dataclass(frozen=True)
class Axes:
    """The axes along which a node reduces, None: not known, and how many there are."""

    axes: tuple[int, ...] | None
    rank: int | None

    def from_first(self, rank: int | None = None) -> tuple[int, ...]:
        """Return them counted from the first one, where the rank is known."""
        count = rank or self.rank
        return tuple(sorted(axis + count if axis < 0 and count else axis for axis in self.axes or ()))

    def same_as(self, other: Axes | None) -> bool:
        """Whether they are those of another reduction, if there is one."""
        if other is None:
            return True
        rank = self.rank or other.rank
        known = self.axes is not None and other.axes is not None
        return known and self.from_first(rank) == other.from_first(rank)


def some_input(operators: str, pattern: Pattern) -> Pattern:
    """Match a node of one of the operators, any input of which matches."""

    def match(view: GraphView, name: str, before: Match) -> Iterator[Match]:
        if made := view.maker(name, *operators.split()):
            for one in made.node.input:
                yield from pattern(view, one, replace(before, places=before.places | made.places))

    return match


def either(*patterns: Pattern) -> Pattern:
    """Match any of the patterns, the first ones first."""
    return lambda view, name, before: (found for pattern in patterns for found in pattern(view, name, before))


def tensor(key: str, pattern: Pattern | None = None) -> Pattern:
    """Match a tensor, whose values are the same wherever the key is used."""

    def match(view: GraphView, name: str, before: Match) -> Iterator[Match]:
        origin = view.origin(name)
        if before.bound.get(key, origin) == origin:
            bound = before.binding(key, origin)
            yield from pattern(view, name, bound) if pattern else [bound]

    return match


def marked(key: str, pattern: Pattern) -> Pattern:
    """Match a pattern, and note that it did."""
    return lambda view, name, before: (found.binding(key, True) for found in pattern(view, name, before))


def where(holds: Callable[[GraphView, str], bool]) -> Pattern:
    """Match a tensor of which something holds."""
    return lambda view, name, before: iter([before] if holds(view, name) else [])


def number(value: float) -> Pattern:
    """Match a constant that is this one number, as far as constants are written."""

    def is_it(view: GraphView, name: str) -> bool:
        found = view.number(name)
        return found is not None and math.isclose(found, value, rel_tol=_CLOSE)

    return where(is_it)


anything = where(lambda view, name: True)
constant = where(lambda view, name: view.number(name) is not None)
scalar = where(lambda view, name: view.may_be(name, one_number=True))
vector = where(lambda view, name: view.may_be(name, one_number=False))
_limit = where(GraphView.is_static)


def guarded(pattern: Pattern, steps: int = _DEEPEST, *, rectified: bool = False) -> Pattern:
    """Match a pattern to which small numbers may be added, or that they limit; ``rectified``: or without its sign."""
    if not steps:
        return pattern
    inner = guarded(pattern, steps - 1, rectified=rectified)
    without_sign = [op("Relu Abs", inner)] if rectified else []
    return either(pattern, op("Add Max", inner, constant), op("Clip", inner, rest=_limit), *without_sign)


def scaled(pattern: Pattern, steps: int = 1) -> Pattern:
    """Match a pattern that is multiplied with, or divided by, single numbers that no value decides."""
    inner = either(pattern, scaled(pattern, steps - 1)) if steps > 1 else pattern
    return op("Div Mul", inner, scalar)
