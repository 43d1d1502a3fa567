"""Softmax and Gelu, written out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx import NodeProto

from runner.jobs.precision.blocks.graph_view import GraphView, MatchedNode

Found = tuple[str, frozenset[int], frozenset[int]]
"""What it is, the places of its nodes, and those of its scale and bias."""

_CLOSE = 1e-3
"""Constants are written with a few digits."""
_CUBIC = 0.044715


def sides(node: NodeProto) -> Iterator[tuple[str, str]]:
    """Yield both orders of what a node of two inputs reads."""
    if len(node.input) == 2:
        yield node.input[0], node.input[1]
        yield node.input[1], node.input[0]


def is_number(view: GraphView, name: str, value: float) -> bool:
    """Whether a tensor is this one number, as far as constants are written."""
    number = view.number(name)
    return number is not None and math.isclose(number, value, rel_tol=_CLOSE)


def softmax(view: GraphView, place: int) -> Found | None:
    """Return the softmax that ends in a division, or in a product with an inverse."""
    node = view.nodes[place]
    pairs = [(node.input[0], node.input[1], frozenset[int]())] if node.op_type == "Div" else []
    for one, other in sides(node) if node.op_type == "Mul" else ():
        inverse = view.maker(other, "Reciprocal")
        pairs += [(one, inverse.node.input[0], inverse.places)] if inverse else []
    for top, bottom, passed in pairs:
        exponentials = _exponentials(view, top)
        total = _total(view, bottom)
        if exponentials and total and view.origin(total[0]) == view.origin(top):
            return "Softmax", frozenset({place}) | passed | exponentials | total[1], frozenset()
    return None


def log_softmax(view: GraphView, place: int) -> Found | None:
    """Return the logarithm of a softmax that ends in a difference."""
    left, right = view.nodes[place].input[:2]
    whole = view.maker(right, "ReduceLogSumExp")
    if whole and view.origin(whole.node.input[0]) == view.origin(left):
        return "LogSoftmax", whole.places | {place} | _shifted(view, left), frozenset()
    logarithm = view.maker(right, "Log")
    if logarithm is None:
        return _log_of_largest(view, place)
    total = _total(view, logarithm.node.input[0])
    exponentials = view.maker(total[0], "Exp") if total else None
    if total is None or exponentials is None or view.origin(exponentials.node.input[0]) != view.origin(left):
        return None
    places = logarithm.places | total[1] | exponentials.places | _shifted(view, left)
    return "LogSoftmax", places | {place}, frozenset()


def _log_of_largest(view: GraphView, place: int) -> Found | None:
    """Return what takes away the largest value and the logarithm of the sum in one."""
    left, right = view.nodes[place].input[:2]
    both = view.maker(right, "Add")
    for one, other in sides(both.node) if both else ():
        largest, logarithm = view.maker(one, "ReduceMax"), view.maker(other, "Log")
        total = _total(view, logarithm.node.input[0]) if logarithm else None
        exponentials = view.maker(total[0], "Exp") if total else None
        difference = view.maker(exponentials.node.input[0], "Sub") if exponentials else None
        if not (both and largest and logarithm and total and exponentials and difference):
            continue
        shifted = _shifted(view, exponentials.node.input[0])
        if shifted and view.origin(difference.node.input[0]) == view.origin(left) and largest.place in shifted:
            places = both.places | largest.places | logarithm.places | total[1] | exponentials.places | shifted
            return "LogSoftmax", places | {place}, frozenset()
    return None


def _exponentials(view: GraphView, name: str) -> frozenset[int] | None:
    """Return the nodes that make exponentials, of which some may be masked; None: these are none."""
    masked = view.maker(name, "Mul", "Where")
    for inner in masked.node.input if masked else ():
        exponential = view.maker(inner, "Exp")
        if masked and exponential:
            return masked.places | exponential.places | _shifted(view, exponential.node.input[0])
    exponential = view.maker(name, "Exp")
    return exponential.places | _shifted(view, exponential.node.input[0]) if exponential else None


def _total(view: GraphView, name: str) -> tuple[str, frozenset[int]] | None:
    """Return what a sum is of, and its nodes; a small number may be added, or be its least."""
    guard = view.maker(name, "Add", "Max", "Clip")
    inner = guarded(view, guard) if guard else None
    total = view.maker(inner or name, "ReduceSum")
    if total is None:
        return None
    return total.node.input[0], total.places | (guard.places if guard and inner else frozenset())


def guarded(view: GraphView, made: MatchedNode) -> str | None:
    """Return what a small constant is added to, or what is limited by it; None: it is something else."""
    node = made.node
    if node.op_type == "Clip":
        limits = [name for name in node.input[1:] if name]
        return str(node.input[0]) if all(map(view.is_static, limits)) else None
    if node.op_type in ("Relu", "Abs"):
        return str(node.input[0])
    return next((one for one, other in sides(node) if view.number(other) is not None), None)


def _shifted(view: GraphView, name: str) -> frozenset[int]:
    """Return the nodes that take the largest value away, if any do."""
    difference = view.maker(name, "Sub")
    if difference is None:
        return frozenset()
    values, most = difference.node.input[:2]
    largest = view.maker(most, "ReduceMax")
    if largest is None or view.origin(largest.node.input[0]) != view.origin(values):
        return frozenset()
    return difference.places | largest.places


# ---- Gelu: x / 2 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))


def gelu(view: GraphView, place: int) -> Found | None:
    """Return the Gelu around an error function, or around the hyperbolic tangent that comes near it."""
    node = view.nodes[place]
    argument = _scaled(view, node.input[0]) if node.op_type == "Erf" else _cubic(view, node.input[0])
    if argument is None:
        return None
    source, places = argument
    for one in view.readers(node.output[0], "Add"):
        if any(is_number(view, other, 1.0) for other in one.node.input):
            found = _halved(view, one.node.output[0], source)
            if found:
                return "Gelu", places | {place} | one.places | found, frozenset()
    return None


def _scaled(view: GraphView, name: str) -> tuple[str, frozenset[int]] | None:
    made = view.maker(name, "Div", "Mul")
    if made is None:
        return None
    if made.node.op_type == "Div":
        ok = is_number(view, made.node.input[1], math.sqrt(2))
        return (view.origin(made.node.input[0]), made.places) if ok else None
    return next(
        ((view.origin(one), made.places) for one, other in sides(made.node) if is_number(view, other, 0.5**0.5)), None
    )


def _cubic(view: GraphView, name: str) -> tuple[str, frozenset[int]] | None:
    outer = view.maker(name, "Mul")
    for inner, factor in sides(outer.node) if outer else ():
        both = view.maker(inner, "Add") if is_number(view, factor, math.sqrt(2 / math.pi)) else None
        for plain, bent in sides(both.node) if both else ():
            scaled = view.maker(bent, "Mul")
            for cube, by in sides(scaled.node) if scaled else ():
                power = view.maker(cube, "Pow")
                if outer and both and scaled and power and is_number(view, by, _CUBIC):
                    source = view.origin(plain)
                    if view.origin(power.node.input[0]) == source and is_number(view, power.node.input[1], 3.0):
                        return source, outer.places | both.places | scaled.places | power.places
    return None


def _halved(view: GraphView, name: str, source: str) -> frozenset[int] | None:
    """Return the nodes that multiply by the source and by a half, in whatever order."""
    for one in view.readers(name, "Mul"):
        for _, factor in (pair for pair in sides(one.node) if view.origin(pair[0]) == view.origin(name)):
            half = view.maker(factor, "Mul")
            if half and any(
                view.origin(whole) == source and is_number(view, by, 0.5) for whole, by in sides(half.node)
            ):
                return one.places | half.places
            wanted = None if view.origin(factor) == source else source if is_number(view, factor, 0.5) else ""
            if wanted == "":
                continue
            for last in view.readers(one.node.output[0], "Mul"):
                for _, other in (
                    pair for pair in sides(last.node) if view.origin(pair[0]) == view.origin(one.node.output[0])
                ):
                    if view.origin(other) == wanted if wanted else is_number(view, other, 0.5):
                        return one.places | last.places
    return None
