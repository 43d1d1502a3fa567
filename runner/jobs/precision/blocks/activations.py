"""Softmax and Gelu, written out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx import NodeProto

from runner.jobs.precision.blocks.sight import Made, Sight

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


def is_number(sight: Sight, name: str, value: float) -> bool:
    """Whether a tensor is this one number, as far as constants are written."""
    number = sight.number(name)
    return number is not None and math.isclose(number, value, rel_tol=_CLOSE)


def softmax(sight: Sight, place: int) -> Found | None:
    """Return the softmax that ends in a division, or in a product with an inverse."""
    node = sight.nodes[place]
    pairs = [(node.input[0], node.input[1], frozenset[int]())] if node.op_type == "Div" else []
    for one, other in sides(node) if node.op_type == "Mul" else ():
        inverse = sight.made(other, "Reciprocal")
        pairs += [(one, inverse.node.input[0], inverse.places)] if inverse else []
    for top, bottom, passed in pairs:
        exponentials = _exponentials(sight, top)
        total = _total(sight, bottom)
        if exponentials and total and sight.origin(total[0]) == sight.origin(top):
            return "Softmax", frozenset({place}) | passed | exponentials | total[1], frozenset()
    return None


def log_softmax(sight: Sight, place: int) -> Found | None:
    """Return the logarithm of a softmax that ends in a difference."""
    left, right = sight.nodes[place].input[:2]
    whole = sight.made(right, "ReduceLogSumExp")
    if whole and sight.origin(whole.node.input[0]) == sight.origin(left):
        return "LogSoftmax", whole.places | {place} | _shifted(sight, left), frozenset()
    logarithm = sight.made(right, "Log")
    if logarithm is None:
        return _log_of_largest(sight, place)
    total = _total(sight, logarithm.node.input[0])
    exponentials = sight.made(total[0], "Exp") if total else None
    if total is None or exponentials is None or sight.origin(exponentials.node.input[0]) != sight.origin(left):
        return None
    places = logarithm.places | total[1] | exponentials.places | _shifted(sight, left)
    return "LogSoftmax", places | {place}, frozenset()


def _log_of_largest(sight: Sight, place: int) -> Found | None:
    """Return what takes away the largest value and the logarithm of the sum in one."""
    left, right = sight.nodes[place].input[:2]
    both = sight.made(right, "Add")
    for one, other in sides(both.node) if both else ():
        largest, logarithm = sight.made(one, "ReduceMax"), sight.made(other, "Log")
        total = _total(sight, logarithm.node.input[0]) if logarithm else None
        exponentials = sight.made(total[0], "Exp") if total else None
        difference = sight.made(exponentials.node.input[0], "Sub") if exponentials else None
        if not (both and largest and logarithm and total and exponentials and difference):
            continue
        shifted = _shifted(sight, exponentials.node.input[0])
        if shifted and sight.origin(difference.node.input[0]) == sight.origin(left) and largest.place in shifted:
            places = both.places | largest.places | logarithm.places | total[1] | exponentials.places | shifted
            return "LogSoftmax", places | {place}, frozenset()
    return None


def _exponentials(sight: Sight, name: str) -> frozenset[int] | None:
    """Return the nodes that make exponentials, of which some may be masked; None: these are none."""
    masked = sight.made(name, "Mul", "Where")
    for inner in masked.node.input if masked else ():
        exponential = sight.made(inner, "Exp")
        if masked and exponential:
            return masked.places | exponential.places | _shifted(sight, exponential.node.input[0])
    exponential = sight.made(name, "Exp")
    return exponential.places | _shifted(sight, exponential.node.input[0]) if exponential else None


def _total(sight: Sight, name: str) -> tuple[str, frozenset[int]] | None:
    """Return what a sum is of, and its nodes; a small number may be added, or be its least."""
    guard = sight.made(name, "Add", "Max", "Clip")
    inner = guarded(sight, guard) if guard else None
    total = sight.made(inner or name, "ReduceSum")
    if total is None:
        return None
    return total.node.input[0], total.places | (guard.places if guard and inner else frozenset())


def guarded(sight: Sight, made: Made) -> str | None:
    """Return what a small constant is added to, or what is limited by it; None: it is something else."""
    node = made.node
    if node.op_type == "Clip":
        limits = [name for name in node.input[1:] if name]
        return str(node.input[0]) if all(map(sight.is_static, limits)) else None
    if node.op_type in ("Relu", "Abs"):
        return str(node.input[0])
    return next((one for one, other in sides(node) if sight.number(other) is not None), None)


def _shifted(sight: Sight, name: str) -> frozenset[int]:
    """Return the nodes that take the largest value away, if any do."""
    difference = sight.made(name, "Sub")
    if difference is None:
        return frozenset()
    values, most = difference.node.input[:2]
    largest = sight.made(most, "ReduceMax")
    if largest is None or sight.origin(largest.node.input[0]) != sight.origin(values):
        return frozenset()
    return difference.places | largest.places


# ---- Gelu: x / 2 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))


def gelu(sight: Sight, place: int) -> Found | None:
    """Return the Gelu around an error function, or around the hyperbolic tangent that comes near it."""
    node = sight.nodes[place]
    argument = _scaled(sight, node.input[0]) if node.op_type == "Erf" else _cubic(sight, node.input[0])
    if argument is None:
        return None
    source, places = argument
    for one in sight.read(node.output[0], "Add"):
        if any(is_number(sight, other, 1.0) for other in one.node.input):
            found = _halved(sight, one.node.output[0], source)
            if found:
                return "Gelu", places | {place} | one.places | found, frozenset()
    return None


def _scaled(sight: Sight, name: str) -> tuple[str, frozenset[int]] | None:
    made = sight.made(name, "Div", "Mul")
    if made is None:
        return None
    if made.node.op_type == "Div":
        ok = is_number(sight, made.node.input[1], math.sqrt(2))
        return (sight.origin(made.node.input[0]), made.places) if ok else None
    return next(
        ((sight.origin(one), made.places) for one, other in sides(made.node) if is_number(sight, other, 0.5**0.5)), None
    )


def _cubic(sight: Sight, name: str) -> tuple[str, frozenset[int]] | None:
    outer = sight.made(name, "Mul")
    for inner, factor in sides(outer.node) if outer else ():
        both = sight.made(inner, "Add") if is_number(sight, factor, math.sqrt(2 / math.pi)) else None
        for plain, bent in sides(both.node) if both else ():
            scaled = sight.made(bent, "Mul")
            for cube, by in sides(scaled.node) if scaled else ():
                power = sight.made(cube, "Pow")
                if outer and both and scaled and power and is_number(sight, by, _CUBIC):
                    source = sight.origin(plain)
                    if sight.origin(power.node.input[0]) == source and is_number(sight, power.node.input[1], 3.0):
                        return source, outer.places | both.places | scaled.places | power.places
    return None


def _halved(sight: Sight, name: str, source: str) -> frozenset[int] | None:
    """Return the nodes that multiply by the source and by a half, in whatever order."""
    for one in sight.read(name, "Mul"):
        for _, factor in (pair for pair in sides(one.node) if sight.origin(pair[0]) == sight.origin(name)):
            half = sight.made(factor, "Mul")
            if half and any(
                sight.origin(whole) == source and is_number(sight, by, 0.5) for whole, by in sides(half.node)
            ):
                return one.places | half.places
            wanted = None if sight.origin(factor) == source else source if is_number(sight, factor, 0.5) else ""
            if wanted == "":
                continue
            for last in sight.read(one.node.output[0], "Mul"):
                for _, other in (
                    pair for pair in sides(last.node) if sight.origin(pair[0]) == sight.origin(one.node.output[0])
                ):
                    if sight.origin(other) == wanted if wanted else is_number(sight, other, 0.5):
                        return one.places | last.places
    return None
