"""Roots of mean squares and of variances, as norms divide by them, written out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.jobs.precision.blocks.activations import guarded, is_number, sides
from runner.jobs.precision.blocks.graph_view import GraphView, MatchedNode

_DEEPEST = 4
"""A number that is added, a limit, a factor: more steps than that lie in no norm between a mean and its root."""


@dataclass(frozen=True)
class Mean:
    """A mean of ``source`` along ``axes``, or its sum (``is_mean`` says). ``places``: of its nodes."""

    source: str
    axes: tuple[int, ...] | None
    places: frozenset[int]
    is_mean: bool = True


@dataclass(frozen=True)
class Spread(Mean):
    """A mean of squares of ``source``, or its variance (``centered``)."""

    centered: bool = False
    affine: frozenset[int] = frozenset()


# ---- the root


def deviation(view: GraphView, name: str, depth: int) -> Spread | None:
    """Return what a root is of; a small number may be added to the root, or be its least."""
    if root := view.maker(name, "Sqrt"):
        return _with(_variance(view, root.node.input[0], 0), root.places)
    if (root := view.maker(name, "Pow")) and is_number(view, root.node.input[1], 0.5):
        return _with(_variance(view, root.node.input[0], 0), root.places)
    if root := view.maker(name, "ReduceL2"):
        source = view.origin(root.node.input[0])
        return Spread(source, view.axes(root.node), root.places, is_mean=False)
    guard = view.maker(name, "Add", "Max", "Clip") if depth < _DEEPEST else None
    inner = guarded(view, guard) if guard else None
    return _with(deviation(view, inner, depth + 1), guard.places) if guard and inner else None


def inverse(view: GraphView, name: str) -> Spread | None:
    """Return what an inverse root is of; a scale may be multiplied with it."""
    found = _bare_inverse(view, name)
    if found:
        return found
    scaled = view.maker(name, "Mul")
    for one, other in sides(scaled.node) if scaled else ():
        inner = _bare_inverse(view, one) if scaled and view.is_vector(other) else None
        if scaled and inner:
            return replace(inner, affine=scaled.places)
    return None


def _bare_inverse(view: GraphView, name: str) -> Spread | None:
    inverse = view.maker(name, "Reciprocal", "Div", "Pow")
    if inverse is None:
        return None
    node = inverse.node
    if node.op_type == "Reciprocal":
        return _with(deviation(view, node.input[0], 0), inverse.places)
    if node.op_type == "Div":
        one = is_number(view, node.input[0], 1.0)
        return _with(deviation(view, node.input[1], 0), inverse.places) if one else None
    if is_number(view, node.input[1], -0.5):
        return _with(_variance(view, node.input[0], 0), inverse.places)
    return None


def _with(spread: Spread | None, places: frozenset[int]) -> Spread | None:
    return replace(spread, places=spread.places | places) if spread else None


# ---- what the root is of


def _variance(view: GraphView, name: str, depth: int) -> Spread | None:
    """Return a mean of squares, or a variance, to which a small number may be added."""
    found = _moment(view, name, 0)
    if found:
        return _centered(view, found)
    if difference := view.maker(name, "Sub"):
        return _of_moments(view, difference)
    guard = view.maker(name, "Add", "Max", "Clip", "Relu", "Abs") if depth < _DEEPEST else None
    inner = guarded(view, guard) if guard else None
    return _with(_variance(view, inner, depth + 1), guard.places) if guard and inner else None


def _moment(view: GraphView, name: str, depth: int) -> Spread | None:
    """Return a mean or a sum of squares; one that is divided by a number is taken for a mean."""
    if reduced := view.maker(name, "ReduceMean", "ReduceSum"):
        square = _square(view, reduced.node.input[0])
        if square is None:
            return None
        is_mean = reduced.node.op_type == "ReduceMean"
        return Spread(square[0], view.axes(reduced.node), reduced.places | square[1], is_mean)
    if reduced := view.maker(name, "ReduceSumSquare"):
        source = view.origin(reduced.node.input[0])
        return Spread(source, view.axes(reduced.node), reduced.places, is_mean=False)
    scaled = _scaled(view, name) if depth < _DEEPEST else None
    inner = _moment(view, scaled[0], depth + 1) if scaled else None
    return replace(inner, places=inner.places | scaled[1], is_mean=True) if inner and scaled else None


def mean_of(view: GraphView, name: str) -> Mean | None:
    """Return a mean; a sum that is divided by how many there are is one."""
    if reduced := view.maker(name, "ReduceMean"):
        return Mean(view.origin(reduced.node.input[0]), view.axes(reduced.node), reduced.places)
    scaled = _scaled(view, name)
    reduced = view.maker(scaled[0], "ReduceSum") if scaled else None
    if not scaled or not reduced:
        return None
    return Mean(view.origin(reduced.node.input[0]), view.axes(reduced.node), reduced.places | scaled[1])


def _scaled(view: GraphView, name: str) -> tuple[str, frozenset[int]] | None:
    """Return what is multiplied with, or divided by, a single number that no value decides."""
    made = view.maker(name, "Div", "Mul")
    if made is None:
        return None
    for one, other in sides(made.node):
        if view.is_scalar(other) and not view.is_static(one):
            return one, made.places
        if made.node.op_type == "Div":
            break
    return None


def _square(view: GraphView, name: str) -> tuple[str, frozenset[int]] | None:
    made = view.maker(name, "Pow", "Mul")
    if made is None:
        return None
    first, second = made.node.input[:2]
    source = view.origin(first)
    same = is_number(view, second, 2.0) if made.node.op_type == "Pow" else view.origin(second) == source
    return (source, made.places) if same else None


def _centered(view: GraphView, spread: Spread) -> Spread:
    """Return a mean of squares as the variance that it is, if they are squares of differences from a mean."""
    difference = view.maker(spread.source, "Sub")
    mean = mean_of(view, difference.node.input[1]) if difference else None
    if not difference or not mean or not is_of(view, mean, difference.node.input[0], spread):
        return spread
    places = spread.places | difference.places | mean.places
    return replace(spread, source=mean.source, places=places, centered=True)


def _of_moments(view: GraphView, difference: MatchedNode) -> Spread | None:
    """Return a variance that is the mean of squares less the square of the mean."""
    square = _square(view, difference.node.input[1])
    mean, moment = mean_of(view, square[0]) if square else None, _moment(view, difference.node.input[0], 0)
    if not (square and mean and moment and moment.is_mean and is_of(view, mean, moment.source, moment)):
        return None
    places = difference.places | square[1] | mean.places | moment.places
    return replace(moment, source=mean.source, places=places, centered=True)


def is_of(view: GraphView, mean: Mean, value: str, spread: Spread) -> bool:
    """Whether a mean is that of a value, along the same axes."""
    if view.origin(value) != mean.source or mean.axes is None or spread.axes is None:
        return False
    rank = view.rank(mean.source) or view.rank(spread.source)
    return from_first(mean.axes, rank) == from_first(spread.axes, rank)


def from_first(axes: tuple[int, ...], rank: int | None) -> tuple[int, ...]:
    """Return axes counted from the first one, where the rank is known."""
    return tuple(sorted(axis + rank if axis < 0 and rank else axis for axis in axes))
