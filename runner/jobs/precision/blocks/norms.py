"""Norms, written out: a value divided by a root of its mean square, or of the sum of its squares.

The value may be centered before (LayerNorm and its like) or not (RMSNorm); the variance is the mean of the squared
differences, or the mean of squares less the square of the mean.
"""

from __future__ import annotations

from runner.jobs.precision.blocks.activations import Found, sides
from runner.jobs.precision.blocks.graph_view import GraphView
from runner.jobs.precision.blocks.variances import (
    Spread,
    deviation,
    from_first,
    inverse,
    is_of,
    mean_of,
)

_RESHAPING = ("Reshape", "Transpose")


def norm(view: GraphView, place: int) -> Found | None:
    """Return the norm that is applied by a division, or by a product with an inverse."""
    node = view.nodes[place]
    applied = [(node.input[0], deviation(view, node.input[1], 0))] if node.op_type == "Div" else []
    if node.op_type == "Mul":
        applied = [(one, inverse(view, other)) for one, other in sides(node)]
    for value, spread in applied:
        if spread is None:
            continue
        folded = _folded(view, place, value, spread)
        if folded:
            return folded
        if spread.affine:
            continue  # an inverse with a scale in it is part of the folded form only
        core = spread.places | {place}
        if spread.centered:
            difference = _difference(view, value, spread)
            if difference is None:
                continue
            core |= difference
        elif view.origin(value) != spread.source:
            continue
        affine, behind = _affine(view, node.output[0])
        return _kind(view, spread, behind), core, affine
    return None


# ---- what is divided, and what comes behind


def _difference(view: GraphView, value: str, spread: Spread) -> frozenset[int] | None:
    """Return the nodes that take the mean away from what is divided; None: it is not centered."""
    difference = view.maker(value, "Sub")
    mean = mean_of(view, difference.node.input[1]) if difference else None
    if not difference or not mean or not is_of(view, mean, difference.node.input[0], spread):
        return None
    return difference.places | mean.places if mean.source == spread.source else None


def _folded(view: GraphView, place: int, value: str, spread: Spread) -> Found | None:
    """Return x * inverse + (bias - mean * inverse), with a scale in the inverse."""
    node = view.nodes[place]
    if not spread.centered or node.op_type != "Mul" or view.origin(value) != spread.source:
        return None
    factor = next((other for one, other in sides(node) if one == value), "")
    for product in view.readers(factor, "Mul"):
        mean = next((found for name in product.node.input if (found := mean_of(view, name))), None)
        if product.place == place or not mean or not is_of(view, mean, spread.source, spread):
            continue
        core = spread.places | {place} | product.places | mean.places
        for offset in view.readers(product.node.output[0], "Sub"):
            ends = {view.origin(name) for name in offset.node.input}
            if node.output[0] in ends:
                return _kind(view, spread, ()), core | offset.places, spread.affine
            for total in view.readers(offset.node.output[0], "Add"):
                if node.output[0] in {view.origin(name) for name in total.node.input}:
                    return _kind(view, spread, ()), core | offset.places | total.places, spread.affine
    return None


def _affine(view: GraphView, name: str) -> tuple[frozenset[int], tuple[str, ...]]:
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
        if made and view.is_vector(weight):
            found |= made.places | passed
            passed, name = frozenset(), made.node.output[0]
    return found, behind


def _kind(view: GraphView, spread: Spread, behind: tuple[str, ...]) -> str:
    """Return what a norm is called, by what it is taken over."""
    if not spread.centered:
        return "RMSNorm" if spread.is_mean else "L2Norm"
    rank = view.rank(spread.source)
    axes = from_first(spread.axes or (), rank)
    if not axes:
        return "LayerNorm"
    if view.maker(spread.source, "Reshape") and "Reshape" in behind and rank and axes == tuple(range(2, rank)):
        return "GroupNorm"
    if 0 in axes:
        return "BatchNorm" if len(axes) != rank else "LayerNorm"
    # over the channel axis, usually the second or the last, it is a layer norm; over all spatial axes an instance norm
    if len(axes) > 1 and 1 not in axes and (axes == (-2, -1) or (rank and axes == tuple(range(2, rank)))):
        return "InstanceNorm"
    return "LayerNorm"
