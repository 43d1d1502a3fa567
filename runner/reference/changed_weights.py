"""What a conversion made of the weights that nodes read, told from the values alone, each beside its partner.

A weight's partner is what does the same in the original: the matrix of a product, its bias, the filters of a
convolution, the gates of an LSTM. Where the weight stands among a node's inputs says little: a MatMul and the Add after
it may be one Gemm, or a Gemm these two, and a normalization may be folded into the convolution before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
from onnx import NodeProto
from onnx.helper import get_attribute_value

from runner.model.graph.graph_index import Graph, Node
from runner.reference.fingerprints import Weights
from runner.reference.tensor_pairs import operator
from runner.text import counted

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_Turn: TypeAlias = Callable[[Array], Array]

MOST_OTHERS, MOST_ELEMENTS = 64, 1 << 24
"""Weights that one may have been swapped with, and elements of one that is looked at."""
_MOST_STEPS = 4
"""Nodes that may lie between a product and the addition of its bias, casts and reshapes."""
_PASSING = frozenset({"Identity", "Cast", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_PRODUCTS = frozenset({"MatMul", "Gemm", "com.microsoft:FusedMatMul", "com.microsoft:FusedGemm"})
_CONVOLUTIONS = frozenset({"Conv", "com.microsoft:FusedConv"})
_NORMALIZED = "BatchNormalization"
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})


class _Held(NamedTuple):
    """An initializer and its numbers; ``turned_by``: the Transpose that stands between it and its reader, or ""."""

    name: str
    stored: Array
    turned_by: str


@dataclass(frozen=True, eq=False)
class WeightedGraph:
    """A model and its weights."""

    graph: Graph
    weights: Weights

    @cached_property
    def named(self) -> Mapping[str, Node]:
        """The nodes by their names."""
        return {node.name: node for node in self.graph.nodes}

    def proto(self, node: Node) -> NodeProto:
        """Return a node with its attributes, and inputs that are left out as empty names."""
        return self.graph.protos[node.index]

    def producer(self, name: str) -> Node | None:
        """Return the node that makes a tensor."""
        index = self.graph.producers.get(name)
        return None if index is None else self.graph.nodes[index]

    def numbers(self, name: str) -> _Held | None:
        """Return what a weight holds, by the name of its initializer, nodes passed over that hand it on or turn it.

        None where the tensor is no weight of numbers, or is larger than MOST_ELEMENTS.
        """
        node = self.producer(name)
        if node is not None:
            if node.domain or node.op_type not in ("Identity", "Cast", "Transpose"):
                return None
            held = self.numbers(node.inputs[0])
            if held is None or node.op_type != "Transpose":
                return held
            return None if held.turned_by or held.stored.ndim != 2 else held._replace(turned_by=node.name)
        dims = getattr(self.graph.initializers.get(name), "dims", None)
        array = self.weights.array(name) if dims is not None and math.prod(dims) <= MOST_ELEMENTS else None
        return _Held(name, array, "") if array is not None and array.dtype.kind not in "OSUb" else None


@dataclass(frozen=True, eq=False)
class Operand:
    """A weight as a node uses it.

    ``node``: whose. ``name``, ``stored``: as the model holds it. ``used``: float64, in the layout of a matrix behind
    the data, of a convolution's filters, or as it is stored. ``turns``: what makes ``used`` of ``stored``, one after
    another, each its own inverse. ``factor``: what the node multiplies it by. ``reading``: what the node's attributes,
    or another node, make of it.
    """

    node: Node
    name: str
    stored: Array
    used: Array
    turns: tuple[_Turn, ...] = ()
    factor: float = 1.0
    reading: str = ""

    def laid(self, one: Array) -> Array:
        """Return an array of the layout that is used in the one that is stored."""
        for turn in reversed(self.turns):
            one = turn(one)
        return one


def changed_weights(
    mine: WeightedGraph, theirs: WeightedGraph, origins: Mapping[str, str], names: Collection[str]
) -> tuple[str, ...]:
    """Return what a conversion made of the weights that these nodes read, a sentence each, as far as that is known.

    ``mine``: the converted model, of which ``names`` are nodes; ``theirs``: its original. ``origins``: the original's
    node by the one of ``mine`` that makes the same tensor.
    """
    said = []
    named = {node.name for node in mine.graph.nodes if node.name in names or _hands_weight_to(mine, node, names)}
    for node in mine.graph.nodes:
        pair = _same_tensor(mine, theirs, origins, node) if node.name in named else None
        if pair is None:
            continue
        last, origin = pair
        folded = last.op_type != _NORMALIZED
        good = operands(theirs, origin, folded=folded)
        own = operands(mine, last, folded=False)
        for role, one in own.items():
            if one.node == node and role in good:
                said += _told(one, good[role], theirs)
        lost = good.keys() - own.keys() == {"bias"} and last == node and operator(node) in _PRODUCTS | _CONVOLUTIONS
        if lost and good["bias"].used.any() and not _is_added_to(mine, node):
            said.append(f"{node.name} adds no bias; the original adds {good['bias'].name}")
    return tuple(dict.fromkeys(said))


def _hands_weight_to(side: WeightedGraph, node: Node, names: Collection[str]) -> bool:
    """Whether one of these nodes casts or turns a weight of a node, and is named in its place."""
    makers = (maker for name in node.inputs if (maker := side.producer(name)) and side.numbers(name))
    return any(maker.name in names for maker in makers)


def _same_tensor(
    mine: WeightedGraph, theirs: WeightedGraph, origins: Mapping[str, str], node: Node
) -> tuple[Node, Node] | None:
    """Return the node itself, or the addition after it, with the original's node that makes the same tensor."""
    last = node
    for _ in range(_MOST_STEPS):
        if origin := theirs.named.get(origins.get(last.name, "")):
            return last, origin
        readers = mine.graph.readers.get(last.outputs[0], ()) if last.outputs else ()
        if len(readers) != 1 or operator(node) not in _PRODUCTS | _CONVOLUTIONS:
            return None
        last = mine.graph.nodes[readers[0]]
        if last.op_type not in {*_PASSING, "Add"} and _scale(mine, last) is None:
            return None
    return None


def _is_added_to(side: WeightedGraph, node: Node) -> bool:
    readers = side.graph.readers.get(node.outputs[0], ())
    return any(side.graph.nodes[index].op_type in {*_PASSING, "Add"} for index in readers)


def operands(side: WeightedGraph, node: Node, *, folded: bool) -> dict[str, Operand]:
    """Return the weights that make a node's first output, by what they do.

    Those of the node; where it adds a bias, also those of the product or convolution before it. ``folded``: also those
    before a BatchNormalization, as they are where that is folded in.
    """
    if operator(node) == _NORMALIZED and folded:
        return _folded(side, node)
    found = dict(_own(side, node))
    if operator(node) == "Add" and "bias" in found:
        (data,) = [name for name in side.proto(node).input if side.numbers(name) is None] or [""]
        before, scale = _before(side, data)
        if before and operator(before) in _PRODUCTS | _CONVOLUTIONS | {"ConvTranspose"}:
            more = dict(_own(side, before))
            if "bias" in more:  # what both add is neither weight
                del found["bias"], more["bias"]
            found |= {
                role: replace(one, used=one.used * scale, factor=one.factor * scale) for role, one in more.items()
            }
    return found


def _before(side: WeightedGraph, name: str) -> tuple[Node | None, float]:
    """Return the node that makes a tensor, and what later ones scale that by; those that cast or reshape are none."""
    node, scale = side.producer(name), 1.0
    for _ in range(_MOST_STEPS):
        if node is None or not node.inputs:
            break
        factor = 1.0 if node.op_type in _PASSING else _scale(side, node)
        if factor is None:
            break
        scale *= factor
        data = [each for each in side.proto(node).input if side.numbers(each) is None]
        node = side.producer(data[0]) if data else None
    return node, scale


def _scale(side: WeightedGraph, node: Node) -> float | None:
    """Return the one number that a node multiplies its data by; None: it does something else."""
    held = [side.numbers(name) for name in side.proto(node).input] if operator(node) in ("Mul", "Div") else []
    constants = [(slot, float(one.stored.reshape(()))) for slot, one in enumerate(held) if one and one.stored.size == 1]
    if len(held) != 2 or len(constants) != 1 or held.count(None) != 1:
        return None
    slot, number = constants[0]
    if operator(node) == "Mul":
        return number
    return 1 / number if slot == 1 and number else None


def _own(side: WeightedGraph, node: Node) -> Iterator[tuple[str, Operand]]:
    """Yield the weights that a node reads itself."""
    proto, kind = side.proto(node), operator(node)

    def one(slot: int, turn: _Turn | None = None, factor: float = 1.0, *said: str) -> Operand | None:
        name = proto.input[slot] if slot < len(proto.input) else ""
        held = side.numbers(name) if name else None
        if held is None:
            return None
        through = f"behind {held.turned_by}" if held.turned_by else ""
        turns = (*([_last_two] if through else []), *([turn] if turn else []))
        used = held.stored.astype(np.float64)
        for each in turns:
            used = each(used)
        reading = ", ".join(word for word in (*said, through) if word)
        return Operand(node, held.name, held.stored, used * factor, turns, factor, reading)

    if proto.op_type.startswith(("QLinear", "QGemm")):
        return  # integers, of which the scale that stands beside them says what they mean
    found: dict[str, Operand | None] = {}
    if kind in _PRODUCTS:
        alpha, beta = (float(_attribute(proto, name, 1.0)) for name in ("alpha", "beta"))
        for role, slot, flag in (("left matrix", 0, "transA"), ("matrix", 1, "transB")):
            turned = bool(_attribute(proto, flag, 0))
            words = (f"{flag}=1" if turned else "", f"alpha={alpha:g}" if alpha != 1 else "")
            found[role] = one(slot, _last_two if turned else None, alpha, *words)
        found["bias"] = one(2, None, beta, f"beta={beta:g}" if beta != 1 else "")
    elif kind in _CONVOLUTIONS or kind == "ConvTranspose":
        backward, grouped = kind == "ConvTranspose", _attribute(proto, "group", 1) != 1
        role = "filters of groups, transposed" if backward and grouped else "filters"
        turn = _backward if backward and not grouped else None
        found = {role: one(1, turn, 1.0, "as a transposed convolution" if turn else ""), "bias": one(2)}
    elif kind in _COMMUTATIVE:
        constants = [slot for slot, name in enumerate(proto.input) if side.numbers(name)]
        found["bias" if kind == "Add" else kind] = one(constants[0]) if len(constants) == 1 else None
    else:
        found = {f"{kind} {slot}": one(slot) for slot in range(len(proto.input))}
    yield from ((role, held) for role, held in found.items() if held is not None)


def _folded(side: WeightedGraph, node: Node) -> dict[str, Operand]:
    """Return the weights of a product or convolution with the BatchNormalization after it folded in."""
    proto = side.proto(node)
    held = [kept.stored.astype(np.float64) for name in proto.input[1:5] if (kept := side.numbers(name))]
    before, factor = _before(side, proto.input[0])
    found = operands(side, before, folded=False) if before and factor == 1 else {}
    role = next((role for role in ("matrix", "filters") if role in found), None)
    if role is None or len(held) != 4:
        return {}
    gain, shift, mean, variance = held
    scale = gain / np.sqrt(variance + _attribute(proto, "epsilon", 1e-5))
    one, bias = found[role], found.get("bias")
    wide = scale if role == "matrix" else scale.reshape(-1, *[1] * (one.used.ndim - 1))
    if one.used.shape[-1 if role == "matrix" else 0] != scale.size or (bias and bias.used.size != scale.size):
        return {}
    added = ((bias.used.reshape(-1) if bias else 0.0) - mean) * scale + shift
    name, reading = bias.name if bias else proto.input[2], f"scaled by {node.name}"
    return {
        role: replace(one, used=one.used * wide, reading=reading),
        "bias": Operand(node, name, bias.stored if bias else added, added, reading=reading),
    }


def _last_two(one: Array) -> Array:
    return np.swapaxes(one, -1, -2) if one.ndim > 1 else one


def _backward(one: Array) -> Array:
    """Return the filters of a convolution that a transposed one with these is, with one step: and the other way."""
    return np.flip(np.swapaxes(one, 0, 1), tuple(range(2, one.ndim))) if one.ndim > 1 else one


def _attribute(proto: NodeProto, name: str, default: Any) -> Any:
    found = next((one for one in proto.attribute if one.name == name), None)
    return default if found is None else get_attribute_value(found)


def _told(mine: Operand, good: Operand, theirs: WeightedGraph) -> list[str]:
    """Say what became of a weight: the sentence, or nothing."""
    if not mine.factor or not mine.stored.size:
        return []
    wanted = _shaped(mine.laid(good.used) / mine.factor, mine.stored)
    raw, held = _shaped(good.stored.astype(np.float64), mine.stored), mine.stored.astype(np.float64)
    shape = list(mine.stored.shape)
    every = theirs.graph.initializers.items()
    alike = (name for name, one in every if name != good.name and sorted(getattr(one, "dims", ())) == sorted(shape))
    others = {name: mine.laid(one.stored) for name in islice(alike, MOST_OTHERS) if (one := theirs.numbers(name))}
    if mine.stored.dtype in _LOW.values():  # the type is what was asked for: only what else was done is told
        wanted, raw, *some = (
            one.astype(mine.stored.dtype).astype(np.float64) for one in (wanted, raw, *others.values())
        )
        others = dict(zip(others, some, strict=True))
    as_there = raw.shape == held.shape and _alike(held, raw)
    if mine.reading != good.reading and as_there and not (wanted.shape == held.shape and _alike(held, wanted)):
        ways = [f"with {one.reading}" if "=" in one.reading else one.reading or "as it is" for one in (mine, good)]
        how = ways[0] if ways[1] == "as it is" else f"{ways[0]}, not {ways[1]}"
        return [f"{mine.name} is stored like {good.name} of the original, but {mine.node.name} reads it {how}"]
    told = change_of(held, wanted, others)
    if told and told.said == f"the values of {mine.name}":
        return [f"{mine.node.name} reads {mine.name}; the original reads {good.name} there"]
    more = f", {good.reading}" if good.reading.startswith("scaled by") else ""
    return [f"{mine.name} is {told.said}, compared with {good.name} of the original{more}"] if told else []


def _shaped(one: Array, like: Array) -> Array:
    """Return an array in the shape of another that has the same axes, but for those of size 1."""
    return one.reshape(like.shape) if _long_axes(one) == _long_axes(like) else one


def _long_axes(one: Array) -> list[int]:
    return [size for size in one.shape if size != 1]


# What makes one array of another.
#
# A weight that a conversion got wrong is most often the right numbers in a wrong place, sign, size or type. Each kind
# is one question about the two arrays; the first that explains all elements is the answer, from the most to the least
# specific. Nothing here runs, reads or writes anything.

_NEAR = 1e-5
"""Part of the largest value by which equal numbers may differ: float32 that was computed in another order."""
_LOW: Mapping[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
_MOST_AXES, _GATES, _DIRECTIONS = 6, (4, 3), 2
_LEVELS = (256, 16)
"""Of an integer type of 8 bits, and of 4."""
_LEAST_CUT = 0.01
"""Part of the elements that stand at an end where values were cut off."""


@dataclass(frozen=True)
class Change:
    """What happened to a weight.

    ``kind``: transposed, permuted, gates, scaled, negated, swapped, rounded, cut off, zero. ``axis``: along which axis,
    or None. ``said``: in words, behind "it is".
    """

    kind: str
    said: str
    axis: int | None = None


def change_of(mine: Array, good: Array, others: Mapping[str, Array] | None = None) -> Change | None:
    """Return what makes ``mine`` of ``good``; None: nothing does, or the two are alike.

    ``mine``, ``good``: of any shape, dtype float or integer. ``others``: further weights of the original by name, of
    which ``mine`` may be one.
    """
    mine, good = (np.asarray(one).astype(np.float64) for one in (mine, good))
    if not mine.size or not np.isfinite(good).all() or (mine.shape == good.shape and _alike(mine, good)):
        return None
    for ask in (_zero, _transposed):
        if found := ask(mine, good):
            return found
    for name, other in (others or {}).items():
        if other.shape == mine.shape and other.size > 1 and _alike(mine, other.astype(np.float64)):
            return Change("swapped", f"the values of {name}")
    if mine.shape != good.shape:
        return None
    asked: tuple[Callable[[Array, Array], Change | None], ...] = (_scaled, _permuted, _rounded, _cut_off, _scaled_along)
    return next((found for ask in asked if (found := ask(mine, good))), None)


def _alike(mine: Array, good: Array, near: float = _NEAR) -> bool:
    largest = np.max(np.abs(good), initial=0.0)
    return bool(np.isfinite(mine).all() and np.max(np.abs(mine - good), initial=0.0) <= near * largest)


def _zero(mine: Array, good: Array) -> Change | None:
    return Change("zero", "zero throughout") if not mine.any() and good.any() else None


def _transposed(mine: Array, good: Array) -> Change | None:
    """Whether the axes stand in another order, or the values were read in the order of one."""
    if 2 <= good.ndim <= _MOST_AXES and mine.ndim == good.ndim:
        for order in itertools.permutations(range(good.ndim)):
            turned = good.transpose(order)
            if list(order) != sorted(order) and turned.shape == mine.shape and _alike(mine, turned):
                named = "transposed" if good.ndim == 2 else f"transposed, its axes in the order {list(order)}"
                return Change("transposed", named)
            laid = turned.ravel()
            if list(order) != sorted(order) and laid.size == mine.size and _alike(mine.ravel(), laid):
                return Change("transposed", "transposed in memory: the values in the order of another layout")
    return None


def _scaled(mine: Array, good: Array) -> Change | None:
    factor = _factor(mine, good)
    if factor is None:
        return None
    if abs(factor + 1) <= _NEAR:
        return Change("negated", "negated")
    of_one = f"{mine.item():.6g}, not {good.item():.6g}" if good.size == 1 else ""
    return Change("scaled", of_one or f"scaled by {factor:.4g}")


def _factor(mine: Array, good: Array) -> float | None:
    """Return the number that makes one of the other; None: none does."""
    square = float((good * good).sum())
    factor = float((mine * good).sum()) / square if square else 0.0
    return factor if factor and _alike(mine, factor * good) else None


def _scaled_along(mine: Array, good: Array) -> Change | None:
    """Whether each slice along an axis has a factor of its own; some may be 1."""
    for axis in range(good.ndim if good.ndim > 1 else 0):
        rows, right = (np.moveaxis(one, axis, 0).reshape(good.shape[axis], -1) for one in (mine, good))
        if rows.shape[1] < 2 or rows.shape[0] < 2:
            continue
        factors = [_factor(*pair) if pair[1].any() else 1.0 for pair in zip(rows, right, strict=True)]
        wrong = [one for one in factors if one is not None and abs(one - 1) > _NEAR]
        if None not in factors and wrong:
            if all(abs(one + 1) <= _NEAR for one in wrong):
                return Change("negated", f"negated in {counted(len(wrong), 'place')} along axis {axis}", axis)
            many = f"by {min(wrong):.4g} to {max(wrong):.4g}" if len(wrong) > 1 else f"by {wrong[0]:.4g} in 1 place"
            return Change("scaled", f"scaled {many} along axis {axis}", axis)
    return None


def _permuted(mine: Array, good: Array) -> Change | None:
    for axis in range(good.ndim):
        rows, right = (np.moveaxis(one, axis, 0).reshape(good.shape[axis], -1) for one in (mine, good))
        order = _order(rows, right)
        if order is None or len(order) < 2:
            continue
        for gates in _GATES if axis == 1 and good.shape[0] <= _DIRECTIONS else ():
            if moved := _of_blocks(order, gates):
                return Change("gates", f"in another order of its {gates} gates, {moved}, along axis {axis}", axis)
        if order == [*range(len(order))][::-1]:
            return Change("permuted", f"reversed along axis {axis}", axis)
        return Change("permuted", f"permuted along axis {axis}", axis)
    return None


def _order(rows: Array, right: Array) -> list[int] | None:
    """Return which good row each is; None: they are not the same rows."""
    largest, free, found = np.max(np.abs(right), initial=0.0), np.ones(len(right), bool), []
    for row in rows:
        off = np.max(np.abs(right - row), axis=1)
        off[~free] = np.inf
        at = int(np.argmin(off))
        if not off[at] <= _NEAR * largest:
            return None
        free[at] = False
        found.append(at)
    return found


def _of_blocks(order: list[int], gates: int) -> list[int] | None:
    """Return the order of so many blocks of equal length, each whole; None: the rows moved otherwise."""
    length, rest = divmod(len(order), gates)
    if rest or length < 2:
        return None
    starts = order[::length]
    if any(
        order[at] != starts[at // length] + at % length or order[at - at % length] % length for at in range(len(order))
    ):
        return None
    return [one // length for one in starts]


def _rounded(mine: Array, good: Array) -> Change | None:
    """Whether the values are the good ones in a type of fewer bits, or in the steps of an integer type."""
    for name, dtype in _LOW.items():
        with np.errstate(all="ignore"):
            rounded = good.astype(np.float32).astype(dtype).astype(np.float64)
        if np.isfinite(rounded).all() and np.array_equal(mine.astype(np.float32), rounded.astype(np.float32)):
            return Change("rounded", f"rounded to {name}")
    values = np.unique(mine)
    steps = np.diff(values)
    step = float(steps.min()) if steps.size else 0.0
    for levels in _LEVELS[::-1]:
        if 2 <= values.size <= levels < mine.size and step > 0:
            whole = mine / step
            if np.abs(whole - np.rint(whole)).max() <= 1e-3 and np.abs(mine - good).max() <= 0.51 * step:
                return Change("rounded", f"rounded to int{8 if levels == 256 else 4} in steps of {step:.3g}")
    return None


def _cut_off(mine: Array, good: Array) -> Change | None:
    low, high = float(mine.min()), float(mine.max())
    at_ends = (good > high * (1 + _NEAR) if high > 0 else good > high + _NEAR) | (good < low - _NEAR * abs(low))
    if not at_ends.any() or at_ends.mean() < min(_LEAST_CUT, 1 / mine.size):
        return None
    if _alike(mine, np.clip(good, low, high)):
        largest = float(np.max(np.abs(good)))
        return Change("cut off", f"cut off at {low:.4g} and {high:.4g}, where its values reach {largest:.4g}")
    return None
