"""Networks that grow: with the number of nodes, with the size of their weights, and a stack of decoder layers.

Files are written piece by piece: a model of many gigabytes never lies in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from benchmarks import varint

_WIDTH = 16
_LAYERS = 50
_MOST_INSIDE = 1.95e9
"""Bytes of weights above which they lie in a file of their own: a protobuf ends at 2 GiB."""


@dataclass(frozen=True)
class Weight:
    """A float32 initializer of random numbers."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return 4 * math.prod(self.shape)


def by_nodes(count: int, path: Path) -> None:
    """Write a residual network of so many small nodes."""
    weights = [Weight(f"w{number}", (_WIDTH, _WIDTH)) for number in range(8)]
    nodes: list[NodeProto] = []
    block, last = "x", "x"
    for at in range(count):
        kind = at % 4
        inputs = {0: [last, f"w{at // 4 % 8}"], 3: [last, block]}.get(kind, [last])
        nodes.append(helper.make_node(("MatMul", "Sin", "Tanh", "Add")[kind], inputs, [f"v{at}"], f"n{at}"))
        last = f"v{at}"
        block = last if kind == 3 else block
    write(nodes, weights, (1, _WIDTH), path)


def by_weights(megabytes: float, path: Path) -> None:
    """Write a stack of layers, the weights of which make so many megabytes."""
    width = round(math.sqrt(megabytes * 1e6 / 4 / _LAYERS))
    weights = [Weight(f"w{number}", (width, width)) for number in range(_LAYERS)]
    nodes, last = [], "x"
    for at in range(2 * _LAYERS):
        inputs = [last] if at % 2 else [last, f"w{at // 2}"]
        nodes.append(helper.make_node("Tanh" if at % 2 else "MatMul", inputs, [f"v{at}"], f"n{at}"))
        last = f"v{at}"
    write(nodes, weights, (1, width), path)


def decoder_stack(layers: int, hidden: int, path: Path) -> None:
    """Write a stack of decoder layers: normalization, attention with one head, a gated network. 29 nodes a layer."""
    inner = 4 * hidden
    weights = [Weight("eps", (1,)), Weight("two", (1,))]
    nodes: list[NodeProto] = []

    def node(kind: str, *inputs: str, **attributes: int | Sequence[int]) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"v{len(nodes)}"], f"n{len(nodes)}", **attributes))
        return str(nodes[-1].output[0])

    def linear(value: str, rows: int, columns: int) -> str:
        weights.append(Weight(f"w{len(weights)}", (rows, columns)))
        return node("MatMul", value, weights[-1].name)

    def normalized(value: str) -> str:
        mean = node("ReduceMean", node("Mul", value, value), keepdims=1)
        root = node("Sqrt", node("Abs", node("Add", mean, "eps")))
        return node("Div", value, root)

    last = "x"
    for _ in range(layers):
        value = normalized(last)
        query, key, content = (linear(value, hidden, hidden) for _ in range(3))
        scores = node("Mul", node("MatMul", query, node("Transpose", key, perm=[0, 2, 1])), "two")
        attention = node("MatMul", node("Softmax", scores, axis=-1), content)
        last = node("Add", last, linear(attention, hidden, hidden))
        value = normalized(last)
        gate = linear(value, hidden, inner)
        gated = node("Mul", node("Mul", gate, node("Sigmoid", gate)), linear(value, hidden, inner))
        last = node("Add", last, linear(gated, inner, hidden))
    write(nodes, weights, (1, 16, hidden), path)


def write(nodes: Sequence[NodeProto], weights: Sequence[Weight], shape: Sequence[int], path: Path) -> None:
    """Write a model that reads ``x`` and hands out what the last node makes, of the same shape."""
    graph = GraphProto(name="generated", node=nodes)
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    graph.output.append(helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, shape))
    model = ModelProto(ir_version=8, producer_name="winnow.benchmarks", opset_import=[helper.make_opsetid("", 17)])
    path.parent.mkdir(parents=True, exist_ok=True)
    if sum(weight.size for weight in weights) > _MOST_INSIDE:
        graph.initializer.extend(_outside(weights, path.with_name("weights.bin")))
        weights = ()
    # an initializer is field 5 of the graph, which is field 7 of the model; both in any order
    rest = graph.SerializeToString()
    first = [_field(5, weight.size + len(_head(weight))) + _head(weight) for weight in weights]
    size = len(rest) + sum(map(len, first)) + sum(weight.size for weight in weights)
    with path.open("wb") as file:
        file.write(model.SerializeToString() + _field(7, size) + rest)
        for head, (_, content) in zip(first, _contents(weights), strict=True):
            file.write(head)
            file.write(content)


def _outside(weights: Sequence[Weight], path: Path) -> Iterator[TensorProto]:
    with path.open("wb") as file:
        for weight, content in _contents(weights):
            tensor = TensorProto(name=weight.name, dims=weight.shape, data_type=TensorProto.FLOAT)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", path.name), ("offset", file.tell()), ("length", weight.size)):
                tensor.external_data.add(key=key, value=str(value))
            file.write(content)
            yield tensor


def _contents(weights: Sequence[Weight]) -> Iterator[tuple[Weight, bytes]]:
    """Return each weight with its numbers, which differ from one to the next."""
    block = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
    for number, weight in enumerate(weights):
        scale = np.float32(1 / math.sqrt(weight.shape[0]))
        yield weight, np.resize(np.roll(block, number) * scale, weight.shape).tobytes()


def _head(weight: Weight) -> bytes:
    """Return a tensor up to its bytes (field 9)."""
    tensor = TensorProto(name=weight.name, dims=weight.shape, data_type=TensorProto.FLOAT)
    return bytes(tensor.SerializeToString()) + _field(9, weight.size)


def _field(number: int, length: int) -> bytes:
    """Return the beginning of a field of so many bytes, as protobuf writes it."""
    return bytes([number << 3 | 2]) + varint(length)


def culprit(path: Path, share: float) -> tuple[str, int]:
    """Return what one node makes, and how many nodes there are (Constants are none).

    It stands at this share of all nodes that depend on the inputs.
    """
    graph = onnx.load(path, load_external_data=False).graph
    known = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    dependent = []
    for node in (node for node in nodes if known.intersection(node.input)):
        known.update(node.output)
        dependent.append(node)
    return str(dependent[int(share * len(dependent))].output[0]), len(nodes)
