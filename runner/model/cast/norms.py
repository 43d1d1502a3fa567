"""Norms, written out: a value divided by a root of its mean square, or of the sum of its squares.

The value may be centred before (LayerNorm and its like) or not (RMSNorm); the variance is the mean of the squared
differences, or the mean of squares less the square of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.model.cast.activations import Found, guarded, is_number, sides
from runner.model.cast.sight import Made, Sight

_DEEPEST = 4
"""A number that is added, a limit, a factor: more steps than that lie in no norm between a mean and its root."""
_RESHAPING = ("Reshape", "Transpose")


@dataclass(frozen=True)
class _Mean:
    """A mean of ``source`` along ``axes``, or its sum (``is_mean`` says). ``places``: of its nodes."""

    source: str
    axes: tuple[int, ...] | None
    places: frozenset[int]
    is_mean: bool = True


@dataclass(frozen=True)
class _Spread(_Mean):
    """A mean of squares of ``source``, or its variance (``centred``)."""

    centred: bool = False
    affine: frozenset[int] = frozenset()


def norm(sight: Sight, place: int) -> Found | None:
    """Return the norm that is applied by a division, or by a product with an inverse."""
    node = sight.nodes[place]
    applied = [(node.input[0], _deviation(sight, node.input[1], 0))] if node.op_type == "Div" else []
    if node.op_type == "Mul":
        applied = [(one, _inverse(sight, other)) for one, other in sides(node)]
    for value, spread in applied:
        if spread is None:
            continue
        folded = _folded(sight, place, value, spread)
        if folded:
            return folded
        if spread.affine:
            continue  # an inverse with a scale in it is part of the folded form only
        core = spread.places | {place}
        if spread.centred:
            difference = _difference(sight, value, spread)
            if difference is None:
                continue
            core |= difference
        elif sight.origin(value) != spread.source:
            continue
        affine, behind = _affine(sight, node.output[0])
        return _kind(sight, spread, behind), core, affine
    return None


# ---- the root


def _deviation(sight: Sight, name: str, depth: int) -> _Spread | None:
    """Return what a root is of; a small number may be added to the root, or be its least."""
    if root := sight.made(name, "Sqrt"):
        return _with(_variance(sight, root.node.input[0], 0), root.places)
    if (root := sight.made(name, "Pow")) and is_number(sight, root.node.input[1], 0.5):
        return _with(_variance(sight, root.node.input[0], 0), root.places)
    if root := sight.made(name, "ReduceL2"):
        source = sight.origin(root.node.input[0])
        return _Spread(source, sight.axes(root.node), root.places, is_mean=False)
    guard = sight.made(name, "Add", "Max", "Clip") if depth < _DEEPEST else None
    inner = guarded(sight, guard) if guard else None
    return _with(_deviation(sight, inner, depth + 1), guard.places) if guard and inner else None


def _inverse(sight: Sight, name: str) -> _Spread | None:
    """Return what an inverse root is of; a scale may be multiplied with it."""
    found = _bare_inverse(sight, name)
    if found:
        return found
    scaled = sight.made(name, "Mul")
    for one, other in sides(scaled.node) if scaled else ():
        inner = _bare_inverse(sight, one) if scaled and sight.is_vector(other) else None
        if scaled and inner:
            return replace(inner, affine=scaled.places)
    return None


def _bare_inverse(sight: Sight, name: str) -> _Spread | None:
    inverse = sight.made(name, "Reciprocal", "Div", "Pow")
    if inverse is None:
        return None
    node = inverse.node
    if node.op_type == "Reciprocal":
        return _with(_deviation(sight, node.input[0], 0), inverse.places)
    if node.op_type == "Div":
        one = is_number(sight, node.input[0], 1.0)
        return _with(_deviation(sight, node.input[1], 0), inverse.places) if one else None
    if is_number(sight, node.input[1], -0.5):
        return _with(_variance(sight, node.input[0], 0), inverse.places)
    return None


def _with(spread: _Spread | None, places: frozenset[int]) -> _Spread | None:
    return replace(spread, places=spread.places | places) if spread else None


# ---- what the root is of


def _variance(sight: Sight, name: str, depth: int) -> _Spread | None:
    """Return a mean of squares, or a variance, to which a small number may be added."""
    found = _moment(sight, name, 0)
    if found:
        return _centred(sight, found)
    if difference := sight.made(name, "Sub"):
        return _of_moments(sight, difference)
    guard = sight.made(name, "Add", "Max", "Clip", "Relu", "Abs") if depth < _DEEPEST else None
    inner = guarded(sight, guard) if guard else None
    return _with(_variance(sight, inner, depth + 1), guard.places) if guard and inner else None


def _moment(sight: Sight, name: str, depth: int) -> _Spread | None:
    """Return a mean or a sum of squares; one that is divided by a number is taken for a mean."""
    if reduced := sight.made(name, "ReduceMean", "ReduceSum"):
        square = _square(sight, reduced.node.input[0])
        if square is None:
            return None
        is_mean = reduced.node.op_type == "ReduceMean"
        return _Spread(square[0], sight.axes(reduced.node), reduced.places | square[1], is_mean)
    if reduced := sight.made(name, "ReduceSumSquare"):
        source = sight.origin(reduced.node.input[0])
        return _Spread(source, sight.axes(reduced.node), reduced.places, is_mean=False)
    scaled = _scaled(sight, name) if depth < _DEEPEST else None
    inner = _moment(sight, scaled[0], depth + 1) if scaled else None
    return replace(inner, places=inner.places | scaled[1], is_mean=True) if inner and scaled else None


def _mean(sight: Sight, name: str) -> _Mean | None:
    """Return a mean; a sum that is divided by how many there are is one."""
    if reduced := sight.made(name, "ReduceMean"):
        return _Mean(sight.origin(reduced.node.input[0]), sight.axes(reduced.node), reduced.places)
    scaled = _scaled(sight, name)
    reduced = sight.made(scaled[0], "ReduceSum") if scaled else None
    if not scaled or not reduced:
        return None
    return _Mean(sight.origin(reduced.node.input[0]), sight.axes(reduced.node), reduced.places | scaled[1])


def _scaled(sight: Sight, name: str) -> tuple[str, frozenset[int]] | None:
    """Return what is multiplied with, or divided by, a single number that no value decides."""
    made = sight.made(name, "Div", "Mul")
    if made is None:
        return None
    for one, other in sides(made.node):
        if sight.is_scalar(other) and not sight.is_static(one):
            return one, made.places
        if made.node.op_type == "Div":
            break
    return None


def _square(sight: Sight, name: str) -> tuple[str, frozenset[int]] | None:
    made = sight.made(name, "Pow", "Mul")
    if made is None:
        return None
    first, second = made.node.input[:2]
    source = sight.origin(first)
    same = is_number(sight, second, 2.0) if made.node.op_type == "Pow" else sight.origin(second) == source
    return (source, made.places) if same else None


def _centred(sight: Sight, spread: _Spread) -> _Spread:
    """Return a mean of squares as the variance that it is, if they are squares of differences from a mean."""
    difference = sight.made(spread.source, "Sub")
    mean = _mean(sight, difference.node.input[1]) if difference else None
    if not difference or not mean or not _is_of(sight, mean, difference.node.input[0], spread):
        return spread
    places = spread.places | difference.places | mean.places
    return replace(spread, source=mean.source, places=places, centred=True)


def _of_moments(sight: Sight, difference: Made) -> _Spread | None:
    """Return a variance that is the mean of squares less the square of the mean."""
    square = _square(sight, difference.node.input[1])
    mean, moment = _mean(sight, square[0]) if square else None, _moment(sight, difference.node.input[0], 0)
    if not (square and mean and moment and moment.is_mean and _is_of(sight, mean, moment.source, moment)):
        return None
    places = difference.places | square[1] | mean.places | moment.places
    return replace(moment, source=mean.source, places=places, centred=True)


def _is_of(sight: Sight, mean: _Mean, value: str, spread: _Spread) -> bool:
    """Whether a mean is that of a value, along the same axes."""
    if sight.origin(value) != mean.source or mean.axes is None or spread.axes is None:
        return False
    rank = sight.rank(mean.source) or sight.rank(spread.source)
    return _from_first(mean.axes, rank) == _from_first(spread.axes, rank)


def _from_first(axes: tuple[int, ...], rank: int | None) -> tuple[int, ...]:
    """Return axes counted from the first one, where the rank is known."""
    return tuple(sorted(axis + rank if axis < 0 and rank else axis for axis in axes))


# ---- what is divided, and what comes behind


def _difference(sight: Sight, value: str, spread: _Spread) -> frozenset[int] | None:
    """Return the nodes that take the mean away from what is divided; None: it is not centred."""
    difference = sight.made(value, "Sub")
    mean = _mean(sight, difference.node.input[1]) if difference else None
    if not difference or not mean or not _is_of(sight, mean, difference.node.input[0], spread):
        return None
    return difference.places | mean.places if mean.source == spread.source else None


def _folded(sight: Sight, place: int, value: str, spread: _Spread) -> Found | None:
    """Return x * inverse + (bias - mean * inverse), with a scale in the inverse."""
    node = sight.nodes[place]
    if not spread.centred or node.op_type != "Mul" or sight.origin(value) != spread.source:
        return None
    factor = next((other for one, other in sides(node) if one == value), "")
    for product in sight.read(factor, "Mul"):
        mean = next((found for name in product.node.input if (found := _mean(sight, name))), None)
        if product.place == place or not mean or not _is_of(sight, mean, spread.source, spread):
            continue
        core = spread.places | {place} | product.places | mean.places
        for offset in sight.read(product.node.output[0], "Sub"):
            ends = {sight.origin(name) for name in offset.node.input}
            if node.output[0] in ends:
                return _kind(sight, spread, ()), core | offset.places, spread.affine
            for total in sight.read(offset.node.output[0], "Add"):
                if node.output[0] in {sight.origin(name) for name in total.node.input}:
                    return _kind(sight, spread, ()), core | offset.places | total.places, spread.affine
    return None


def _affine(sight: Sight, name: str) -> tuple[frozenset[int], tuple[str, ...]]:
    """Return the scale and the bias behind a norm, and what reshapes it before them."""
    passed: frozenset[int] = frozenset()
    found: frozenset[int] = frozenset()
    behind: tuple[str, ...] = ()
    for operators in (("Mul",), ("Add", "Sub")):
        while sight.readers(name) == 1 and not found:
            turned = next(sight.read(name, *_RESHAPING), None)
            if turned is None:
                break
            passed |= turned.places
            behind += (turned.node.op_type,)
            name = turned.node.output[0]
        if sight.readers(name) != 1:
            break
        made = next(sight.read(name, *operators), None)
        weight = next((one for one in made.node.input if sight.origin(one) != name), "") if made else ""
        if made and sight.is_vector(weight):
            found |= made.places | passed
            passed, name = frozenset(), made.node.output[0]
    return found, behind


def _kind(sight: Sight, spread: _Spread, behind: tuple[str, ...]) -> str:
    """Return what a norm is called, by what it is taken over."""
    if not spread.centred:
        return "RMSNorm" if spread.is_mean else "L2Norm"
    rank = sight.rank(spread.source)
    axes = _from_first(spread.axes or (), rank)
    if not axes:
        return "LayerNorm"
    if sight.made(spread.source, "Reshape") and "Reshape" in behind and rank and axes == tuple(range(2, rank)):
        return "GroupNorm"
    if 0 in axes:
        return "BatchNorm" if len(axes) != rank else "LayerNorm"
    # along an axis of channels, as a rule the second or the last, it is a layer norm; along all others, an instance's
    if len(axes) > 1 and 1 not in axes and (axes == (-2, -1) or (rank and axes == tuple(range(2, rank)))):
        return "InstanceNorm"
    return "LayerNorm"
