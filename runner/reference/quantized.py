"""Integers that stand for floats: what operators with scales of their own (QLinearConv, QGemm) read and give.

Such an operator carries the scale and the zero point of every tensor beside it, and so do those that give and read the
tensor elsewhere. That tells what the integers mean, whatever they are called: what the original holds there, quantized
so, is a good value, and for what the two models have in common the operator is the original's. Weights that other
operators read as integers (DequantizeLinear, MatMulInteger, MatMulNBits) stand for floats in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import QUANTIZING
from runner.model.values.dtypes import FLOATS, is_integer, unpack
from runner.model.values.recorded import to_array
from runner.model.values.tensor_bytes import clipped, is_external

Array = np.ndarray[Any, Any]

_DOMAINS = ("", "com.microsoft")
_PREFIX, _GEMM, _DYNAMIC, _BLOCKS = "QLinear", "QGemm", "DynamicQuantizeMatMul", "MatMulNBits"
_PAIR = _QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_OF_FLOATS = 2.0**-3
"""The largest step of floats of 8 bits, as a part of the number."""
_Operand = tuple[str, str, str]
"""An operand, and the initializers that are its scale and zero point, "" where there are none."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What integers mean: ``(integer - zero) * scale``; ``axis``: along it where these are several.

    ``block``: so many integers along it have one; 0: these are one for each place. ``names``: the initializers that
    hold scale and zero point, "" where none does.
    """

    scale: Array
    zero: Array
    axis: int = 0
    block: int = 0
    names: tuple[str, str] = ("", "")

    def floats(self, integers: Array) -> Array:
        """Return what they stand for."""
        scale, zero = self.beside(integers)
        with np.errstate(over="ignore", invalid="ignore"):
            found: Array = (integers.astype(np.float64) - zero) * scale
        return found

    def integers(self, floats: Array, dtype: int) -> Array:
        """Return the nearest integers of a type."""
        scale, zero = self.beside(floats)
        with np.errstate(divide="ignore", invalid="ignore"):
            return clipped(np.rint(floats.astype(np.float64) / scale) + zero, dtype)

    def off(self, floats: Array, dtype: int) -> float:
        """Return by how much the nearest integers of a type miss what they stand for, at most."""
        return float(np.max(np.abs(self.floats(self.integers(floats, dtype)) - floats), initial=0.0))

    def cuts_off(self, before: Array, after: Array) -> bool:
        """Whether integers cut off of floats what a node did that made ``after`` of them; False: it did nothing."""
        done = before != after
        if self.zero.dtype.kind not in "iu" or self.scale.size > 1 or not done.any():
            return False
        ends, zero = np.iinfo(self.zero.dtype), self.zero.astype(np.float64)
        held = before.clip(*((end - zero) * self.scale for end in (ends.min, ends.max)))
        return bool((np.abs(held - before) >= np.abs(after - before) - self.scale / 2)[done].all())

    def same(self, other: Reading) -> bool:
        """Whether integers mean the same by it."""
        both = (self.scale, other.scale), (self.zero, other.zero)
        return all(np.array_equal(one.ravel(), two.ravel()) for one, two in both)

    def beside(self, array: Array) -> Iterator[Array]:
        """Yield the scale and the zero point of each number of an array, in a shape that goes with it."""
        for one in (self.scale, self.zero):
            if self.block and one.ndim == array.ndim:
                yield np.repeat(one, self.block, self.axis).take(range(array.shape[self.axis]), self.axis)
                continue
            shape = [1] * array.ndim
            if one.size > 1:
                shape[self.axis] = one.size
            yield one.astype(np.float64).reshape(shape)


@dataclass(frozen=True, eq=False)
class AsFloats:
    """A model as its original has it: its operators without scales.

    ``readings``: of its integers, by tensor; several where the nodes that read and give them disagree.
    """

    graph: Graph
    readings: Mapping[str, tuple[Reading, ...]]


def as_floats(graph: Graph, held: Callable[[str], Array | None]) -> AsFloats:
    """Return a model as its original has it; where no operator carries scales, only its inputs and outputs change.

    ``held``: returns an initializer.
    """
    known, ends = all_readings(graph, held), {*graph.inputs, *graph.outputs}
    if not any(map(_carries_scales, graph.protos)):
        known = {name: one for name, one in known.items() if name in ends}
    if not known:
        return AsFloats(graph, {})
    model = copy_of(graph.model)
    for proto, position in zip(graph.protos, graph.positions, strict=True):
        if _carries_scales(proto):
            made = model.graph.node[position]
            made.op_type, made.domain = proto.op_type.removeprefix(_PREFIX).replace(_GEMM, "Gemm"), ""
            made.input[:] = [name for name, *_ in operands(proto, graph.kinds) if name != proto.output[0]]
    for proto in model.graph.node:
        ends = {_QUANTIZE: proto.output[:1], _DEQUANTIZE: proto.input[:1]}.get(proto.op_type, [])
        if any(name in known and name not in graph.initializers for name in ends):
            proto.op_type, proto.input[:] = "Identity", proto.input[:1]
    return AsFloats(Graph.of(model), known)


def inputs_meant(graph: Graph) -> dict[str, Reading]:
    """Return what the integers stand for that a model is fed, where its nodes agree about that."""

    def held(name: str) -> Array | None:
        one = graph.initializers.get(name)
        return to_array(one) if isinstance(one, TensorProto) and not is_external(one) else None

    return {name: one[0] for name, one in all_readings(graph, held).items() if name in graph.inputs and len(one) == 1}


def all_readings(graph: Graph, held: Callable[[str], Array | None]) -> dict[str, tuple[Reading, ...]]:
    """Return what the nodes of a model say of its integers, by tensor: what most of them do; else all, each once."""
    told = dict[str, list[Reading]]()
    for proto in graph.protos:
        for name, some in readings(proto, graph.kinds, held).items():
            told.setdefault(name, []).extend(some)
    _moved(graph, told)
    return {name: _told(many) for name, many in told.items()}


def _carries_scales(proto: NodeProto) -> bool:
    return proto.domain in _DOMAINS and (proto.op_type.startswith(_PREFIX) or proto.op_type == _GEMM)


def operands(proto: NodeProto, kinds: Mapping[str, int]) -> Iterator[_Operand]:
    """Yield the operands of a node that carries scales, and what it gives, with the names of scale and zero point.

    These stand right behind an operand, and have its type; where they stand behind none, they are of what it gives.
    ``kinds``: the types of initializers.
    """
    names, at = [*proto.input, "", ""], 0
    if proto.op_type in _PAIR:
        yield proto.output[0] if proto.op_type == _QUANTIZE else names[0], names[1], names[2]
    while (_carries_scales(proto) or proto.op_type == _DYNAMIC) and at < len(proto.input):
        name, scale, zero = names[at : at + 3]
        if kinds.get(name) in FLOATS and is_integer(kinds.get(scale, 0)):
            yield proto.output[0], name, scale
            at += 2
        elif name and kinds.get(scale) in FLOATS and kinds.get(name, kinds.get(zero)) == kinds.get(zero, 0):
            yield name, scale, zero
            at += 3
        else:
            yield from [(name, "", "")] if name else []
            at += 1


def readings(
    proto: NodeProto, kinds: Mapping[str, int], held: Callable[[str], Array | None]
) -> dict[str, list[Reading]]:
    """Return what a node says of its tensors. A bias, of 32 bits, has the scales of the two factors before it.

    ``kinds``, ``held``: the types of initializers, and what they hold.
    """
    told: dict[str, list[Reading]] = {}
    turned = any(one.name == "transB" and one.i for one in proto.attribute)
    axis = next((one.i for one in proto.attribute if one.name == "axis"), 1) if proto.op_type in _PAIR else -1
    axis = 0 if turned or proto.op_type == "QLinearConv" else axis
    block = next((one.i for one in proto.attribute if one.name == "block_size"), 0)
    factors: list[Reading] = []
    for name, *beside in operands(proto, kinds):
        scale, zero = (held(one) if one else None for one in beside)
        if scale is not None and (zero is not None or not beside[1]):
            names = beside[0], beside[1]
            factors.append(Reading(scale, np.zeros(1) if zero is None else zero, axis, block, names))
            told.setdefault(name, []).append(factors[-1])
        elif len(factors) > 1 and proto.op_type in ("QLinearConv", _GEMM):
            product = factors[0].scale.reshape(-1) * factors[1].scale.reshape(-1)
            told.setdefault(name, []).append(Reading(product, np.zeros(1)))
    return told


def read_otherwise(graph: Graph, held: Callable[[str], Array | None], names: Collection[str]) -> Iterator[str]:
    """Say which integers mean something else to what reads them than to what makes them, one of which is named."""
    for node in graph.nodes:
        for name in node.inputs:
            maker = graph.producer(name)
            if maker is None or (node.name not in names and maker.name not in names):
                continue
            told = [readings(graph.protos[one.index], graph.kinds, held).get(name) for one in (node, maker)]
            mine, good = (some[0] if some else None for some in told)
            if mine and good and not mine.same(good):
                pairs = (("scale", mine.scale, good.scale), ("zero point", mine.zero, good.zero))
                what, one, other = next(pair for pair in pairs if not np.array_equal(pair[1].ravel(), pair[2].ravel()))
                own, its = (f"{each.item():.6g}" if each.size == 1 else "others" for each in (one, other))
                yield f"{node.name} reads {name} with the {what} {own}; {maker.name} makes it with {its}"


def _moved(graph: Graph, told: dict[str, list[Reading]]) -> None:
    """Hand on what is said of integers through nodes that only move them (MaxPool, Transpose): back, then on."""
    movers = [
        (proto.input[0], proto.output[0])
        for proto in graph.protos
        if proto.input and not QUANTIZING.search(proto.op_type)
    ]
    for before, after in reversed(movers):
        if after in told and before not in graph.initializers:
            told.setdefault(before, []).extend(told[after])
    for before, after in movers:
        if before in told and after in told:
            told[after] = told[before]


def _told(many: Sequence[Reading]) -> tuple[Reading, ...]:
    """Return what more than half say; else all that is said, once each."""
    found = tuple(one for at, one in enumerate(many) if not any(map(one.same, many[:at])))
    most = tuple(one for one in found if 2 * sum(map(one.same, many)) > len(many))
    return most or found


# Weights that are integers in the file.


def stands_for(
    proto: NodeProto, name: str, kinds: Mapping[str, int], held: Callable[[str], Array | None]
) -> tuple[Array, Array] | None:
    """Return the floats that a weight stands for as a node reads it, and the step of each; None: that is not known.

    ``kinds``, ``held``: the types of initializers, and what they hold. Of MatMulNBits: a row for each output.
    """
    integers = held(name)
    if integers is None:
        return None
    if proto.op_type == _BLOCKS:
        return _of_blocks(proto, integers, held)
    told = readings(proto, kinds, held).get(name)
    if not told:
        return None
    floats, step = meant(integers, told[0])
    return floats, step if is_integer(kinds[name]) else np.max(np.abs(floats), initial=0.0) * _OF_FLOATS


def meant(integers: Array, reading: Reading) -> tuple[Array, Array]:
    """Return the floats that integers stand for, and the step of each."""
    return reading.floats(integers), np.broadcast_to(np.abs(next(reading.beside(integers))), integers.shape)


def _of_blocks(proto: NodeProto, packed: Array, held: Callable[[str], Array | None]) -> tuple[Array, Array] | None:
    how = {one.name: one.i for one in proto.attribute}
    bits, block, rows = how.get("bits", 4), how.get("block_size", 0), how.get("N", 0)
    names = [*proto.input, "", "", ""]
    scale, zero = (held(one) if one else None for one in names[2:4])
    if 8 % bits or not block or scale is None or names[4] or (names[3] and zero is None):
        return None

    def unpacked(array: Array) -> Array:
        found: Array = unpack(array.tobytes(), bits, array.size * 8 // bits, signed=False)
        return found.reshape(rows, -1)

    scale = scale.reshape(rows, -1)
    if zero is None:
        zero = np.full(scale.shape, 1 << bits - 1)
    zero = unpacked(zero)[:, : scale.shape[1]] if zero.dtype == np.uint8 else zero.reshape(rows, -1)
    return meant(unpacked(packed)[:, : how.get("K")], Reading(scale, zero, 1, block))
