"""A model and its weights, as its nodes read them: integers are the floats that they stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto
from onnx.helper import np_dtype_to_tensor_dtype

from runner.model.graph.graph_index import Graph, Node
from runner.model.values.dtypes import is_integer
from runner.reference.changed_array import Array
from runner.reference.fingerprints import Weights
from runner.reference.quantized import Reading, meant, readings, stands_for
from runner.reference.tensor_pairs import operator

MOST_ELEMENTS = 1 << 24
"""Elements of a weight that is looked at."""
QUANTIZED_WEIGHTS: Mapping[str, tuple[str, int, int]] = {
    "QLinearMatMul": ("matrix", 3, -1),
    "MatMulInteger": ("matrix", 1, -1),
    "com.microsoft:QGemm": ("matrix", 3, 6),
    "com.microsoft:MatMulNBits": ("matrix", 1, 5),
    "com.microsoft:DynamicQuantizeMatMul": ("matrix", 1, 4),
    "QLinearConv": ("filters", 3, 8),
    "ConvInteger": ("filters", 1, -1),
}
"""Operators that read a weight as integers -> what it does, its input, and that of a bias (-1: none)."""
QUANTIZED_LSTM = "com.microsoft:DynamicQuantizeLSTM"


class Held(NamedTuple):
    """An initializer and its numbers; ``turned_by``: the Transpose that stands between it and its reader, or "".

    ``step``: of integers, which are here as the floats that they stand for; 0: it is of floats.
    """

    name: str
    stored: Array
    turned_by: str = ""
    step: Array | float = 0.0


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

    def numbers(self, name: str) -> Held | None:
        """Return what a weight holds, by the name of its initializer, nodes passed over that hand it on or turn it.

        None where the tensor is no weight of numbers, or is larger than MOST_ELEMENTS.
        """
        node = self.graph.producer(name)
        if node is not None:
            if node.op_type == "DequantizeLinear":
                return self.read(node, 0)
            if node.domain or node.op_type not in ("Identity", "Cast", "Transpose"):
                return None
            held = self.numbers(node.inputs[0])
            if held is None or node.op_type != "Transpose":
                return held
            return None if held.turned_by or held.stored.ndim != 2 else held._replace(turned_by=node.name)
        array = self._stored(name)
        return Held(name, array) if array is not None and array.dtype.kind not in "OSUb" else None

    def read(self, node: Node, slot: int) -> Held | None:
        """Return what a weight holds, as a node reads it: the floats that its integers stand for."""
        proto = self.proto(node)
        name = proto.input[slot] if 0 <= slot < len(proto.input) else ""
        maker = self.graph.producer(name)
        if operator(node) == QUANTIZED_LSTM and slot in (1, 2):
            return self._of_gates(proto, slot)
        if maker and (maker.op_type, node.op_type) == ("QuantizeLinear", "DequantizeLinear"):
            return self._quantized_here(maker, node)
        if not name or (operator(node) not in QUANTIZED_WEIGHTS and node.op_type != "DequantizeLinear"):
            return self.numbers(name) if name else None
        if name in self.graph.producers or not (
            node.op_type == "DequantizeLinear" or is_integer(self.graph.kinds.get(name, 0))
        ):
            return self.numbers(name)
        if node.op_type in ("MatMulInteger", "ConvInteger"):
            found = self._rescaled(node, name)
        else:
            found = stands_for(proto, name, self.graph.kinds, self._stored)
        return found and Held(name, found[0], "", found[1])

    def _of_gates(self, proto: NodeProto, slot: int) -> Held | None:
        """Return a weight of an LSTM: a scale and a zero point for each direction, or for each of its last axis."""
        held = [self._stored(proto.input[at]) for at in (slot, 6 + 2 * slot, 7 + 2 * slot)]
        known = [one for one in held if one is not None]
        if len(known) < 3:
            return None
        scale, zero = (one.astype(np.float64).reshape(len(one), 1, -1) for one in known[1:])
        step = np.broadcast_to(np.abs(scale), known[0].shape)
        return Held(proto.input[slot], (known[0].astype(np.float64) - zero) * scale, "", step)

    def _quantized_here(self, first: Node, last: Node) -> Held | None:
        """Return a weight that a pair quantizes, as its reader gets it."""
        held, name = self.numbers(first.inputs[0]), first.outputs[0]
        told = [readings(self.proto(one), self.graph.kinds, self._stored).get(name) for one in (first, last)]
        if held is None or not (told[0] and told[1]):
            return None
        kind = told[0][0].zero.dtype
        integers = told[0][0].integers(
            held.stored, np_dtype_to_tensor_dtype(kind) if kind.kind in "iu" else TensorProto.UINT8
        )
        floats, step = meant(integers, told[1][0])
        return held._replace(stored=floats, step=step)

    def _stored(self, name: str) -> Array | None:
        dims = getattr(self.graph.initializers.get(name), "dims", None)
        return self.weights.array(name) if dims is not None and math.prod(dims) <= MOST_ELEMENTS else None

    def _rescaled(self, node: Node, name: str) -> tuple[Array, Array] | None:
        """Return what the weight of an integer product stands for, whose scale is multiplied by after it."""
        integers, proto = self._stored(name), self.proto(node)
        zero = self._stored(proto.input[3]) if len(proto.input) > 3 and proto.input[3] else np.zeros(1)
        scales = self._scale_behind(node)
        if integers is None or zero is None or scales is None:
            return None
        axis = 0 if node.op_type == "ConvInteger" else -1
        return meant(integers, Reading(scales.stored.reshape(-1), zero.reshape(-1), axis))

    def _scale_behind(self, node: Node) -> Held | None:
        """Return the weight's scale: a float of the integer product is multiplied by it, and by that of the data."""
        for _ in range(2):  # the Cast, and the Mul by the product of both scales
            readers = self.graph.readers.get(node.outputs[0], ())
            if len(readers) != 1:
                return None
            before, node = node, self.graph.nodes[readers[0]]
        scales = [name for name in node.inputs if node.op_type == "Mul" and name not in before.outputs]
        made = self.graph.producer(scales[0]) if len(scales) == 1 else None
        held = [self.numbers(name) for name in (made.inputs if made and made.op_type == "Mul" else scales)]
        known = [one for one in held if one]
        return known[0] if len(known) == 1 else None
