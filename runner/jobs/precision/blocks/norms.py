"""Norms, written out: a value divided by a root of its mean square, or of the sum of its squares.

The value may be centered before (LayerNorm and its like) or not (RMSNorm); the variance is the mean of the squared
differences, or the mean of squares less the square of the mean.
"""

from __future__ import annotations

from runner.jobs.precision.blocks.graph_view import GraphView
from runner.jobs.precision.blocks.tree_patterns import (
    Match,
    Pattern,
    anything,
    either,
    guarded,
    marked,
    number,
    op,
    scaled,
    tensor,
    vector,
)

_RESHAPING = ("Reshape", "Transpose")


def _square(pattern: Pattern) -> Pattern:
    return either(op("Pow", pattern, number(2.0)), op("Mul", pattern, pattern))


def _moment(pattern: Pattern) -> Pattern:
    """Match a mean or a sum of squares; one that is divided by a number is taken for a mean."""
    mean = marked("is mean", op("ReduceMean", _square(pattern), over="axes"))
    total = either(op("ReduceSum", _square(pattern), over="axes"), op("ReduceSumSquare", pattern, over="axes"))
    return either(mean, total, marked("is mean", scaled(either(mean, total), 4)))


_X = tensor("x")
_MEAN = either(op("ReduceMean", _X, over="axes"), scaled(op("ReduceSum", _X, over="axes")))
_CENTERED = op("Sub", _X, _MEAN)
_OF_MOMENTS = op("Sub", _moment(_X), _square(_MEAN))


def _deviation(variance: Pattern, *length: Pattern) -> Pattern:
    return guarded(either(op("Sqrt", variance), op("Pow", variance, number(0.5)), *length))


def _inverse(variance: Pattern, *length: Pattern) -> Pattern:
    root = _deviation(variance, *length)
    return either(op("Reciprocal", root), op("Div", number(1.0), root), op("Pow", variance, number(-0.5)))


def _divided(value: Pattern, variance: Pattern, *length: Pattern) -> Pattern:
    return either(op("Div", value, _deviation(variance, *length)), op("Mul", value, _inverse(variance, *length)))


def _folded(variance: Pattern) -> Pattern:
    """Match x * inverse + (bias - mean * inverse), with a scale in the inverse."""
    bare = _inverse(variance)
    inverse = tensor("inverse", either(bare, op("Mul", bare, vector, affine=True)))
    product, offset = op("Mul", _X, inverse), op("Mul", _MEAN, inverse)
    return either(
        op("Add", product, either(op("Sub", offset, anything), op("Sub", anything, offset))),
        op("Sub", product, offset),
        op("Sub", offset, product),
    )


_VARIANCES = [guarded(variance, rectified=True) for variance in (_moment(_CENTERED), _OF_MOMENTS)]
_LENGTH = op("ReduceL2", _X, over="axes")
FOLDED = marked("centered", either(*map(_folded, _VARIANCES)))
NORM = either(
    marked("centered", either(*(_divided(_CENTERED, variance) for variance in _VARIANCES))),
    _divided(_X, guarded(_moment(_X), rectified=True), _LENGTH),
)


def scale_and_bias(view: GraphView, name: str) -> tuple[frozenset[int], tuple[str, ...]]:
    """Return the scale and the bias behind a norm, and what reshapes it before them."""
    passed: frozenset[int] = frozenset()
    found: frozenset[int] = frozenset()
    behind: tuple[str, ...] = ()
    for operators in (("Mul",), ("Add", "Sub")):
        while view.reader_count(name) == 1 and not found:
            turned = next(view.readers(name, *_RESHAPING), None)
            if turned is None:
                break
            passed |= turned.places
            behind += (turned.node.op_type,)
            name = turned.node.output[0]
        if view.reader_count(name) != 1:
            break
        made = next(view.readers(name, *operators), None)
        weight = next((one for one in made.node.input if view.origin(one) != name), "") if made else ""
        if made and view.may_be(weight, one_number=False):
            found |= made.places | passed
            passed, name = frozenset(), made.node.output[0]
    return found, behind


def kind_of(view: GraphView, norm: Match, behind: tuple[str, ...] = ()) -> str:
    """Return what a norm is called, by what it is taken over; ``behind``: what reshapes it before its scale."""
    bound = norm.bound
    if not bound.get("centered"):
        return "RMSNorm" if bound.get("is mean") else "L2Norm"
    rank = view.rank(bound["x"])
    axes = bound["axes"].from_first(rank)
    if not axes:
        return "LayerNorm"
    if view.maker(bound["x"], "Reshape") and "Reshape" in behind and rank and axes == tuple(range(2, rank)):
        return "GroupNorm"
    if 0 in axes:
        return "BatchNorm" if len(axes) != rank else "LayerNorm"
    # over the channel axis, usually the second or the last, it is a layer norm; over all spatial axes an instance norm
    if len(axes) > 1 and 1 not in axes and (axes == (-2, -1) or (rank and axes == tuple(range(2, rank)))):
        return "InstanceNorm"
    return "LayerNorm"
