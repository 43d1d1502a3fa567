"""Networks that fail in fp16 in natural ways, each with its inputs; ``python -m benchmarks.precision_natural`` asks.

Nothing is planted: a norm whose epsilon fp16 does not have, attention whose products are scaled after they overflowed,
a variance as the difference of two large numbers, rotary angles of position 5000; and residual networks in which error
adds up over all layers. Weights come from a seed, and inputs from the generator that is given to ``draw``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from onnx import ModelProto, TensorProto, helper, numpy_helper

Feeds = Mapping[str, Any]
TOKENS = 12


@dataclass(frozen=True)
class Case:
    """A model and where its inputs come from. ``held``: not looked at while anything is tuned."""

    name: str
    model: ModelProto
    draw: Callable[[Generator], Feeds]
    held: bool = False

    def samples(self, seed: int, count: int) -> list[Feeds]:
        """Return inputs of the one distribution; other seeds give others."""
        return [self.draw(np.random.default_rng([seed, number])) for number in range(count)]


class Net:
    """A graph that grows one node at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._scope = ""

    def scope(self, name: str) -> None:
        """Name what follows after a block."""
        self._scope = f"{name}/"

    def add(self, op: str, *reads: str, **attributes: Any) -> str:
        """Add a node; return its output."""
        name = f"{self._scope}{op}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(reads), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        """Add an initializer; return its name."""
        name = f"{self._scope}c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def draw(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> str:
        """Add random weights."""
        return self.const(self.rng.normal(mean, scale, shape))

    def linear(self, x: str, width: int, out: int, gain: float = 1.0, mean: float = 0.0) -> str:
        """A projection with a bias."""
        made = self.add("MatMul", x, self.draw(width, out, scale=gain / width**0.5))
        return self.add("Add", made, self.draw(out, scale=0.1, mean=mean))

    def mean(self, x: str) -> str:
        """The mean over the last axis."""
        return self.add("ReduceMean", x, self.const([-1], np.int64), keepdims=1)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """A reshape."""
        return self.add("Reshape", x, self.const(shape, np.int64))

    def model(self, inputs: Sequence[tuple[str, int, Sequence[int]]], output: str, shape: Sequence[int]) -> ModelProto:
        """Return the model; its output is called ``y``."""
        self._scope = ""
        self._nodes.append(helper.make_node("Identity", [output], ["y"], "out"))
        graph = helper.make_graph(
            self._nodes,
            "net",
            [helper.make_tensor_value_info(*one) for one in inputs],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            self._weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(made, full_check=True)
        return made


def _layer_norm(net: Net, x: str, width: int, epsilon: float) -> str:
    centered = net.add("Sub", x, net.mean(x))
    variance = net.mean(net.add("Mul", centered, centered))
    divisor = net.add("Sqrt", net.add("Add", variance, net.const(epsilon)))
    scaled = net.add("Mul", net.add("Div", centered, divisor), net.draw(width, scale=0.1, mean=1.0))
    return net.add("Add", scaled, net.draw(width, scale=0.1))


def _mlp(net: Net, x: str, width: int) -> str:
    hidden = net.add("Relu", net.linear(x, width, 2 * width))
    return net.linear(hidden, 2 * width, width, gain=0.7)


def _heads(net: Net, x: str, width: int, heads: int, gain: float = 1.0) -> str:
    made = net.reshape(net.linear(x, width, width, gain), [1, TOKENS, heads, width // heads])
    return net.add("Transpose", made, perm=[0, 2, 1, 3])


def _attended(net: Net, logits: str, values: str, width: int) -> str:
    """What attention makes of its logits and values."""
    mixed = net.add("MatMul", net.add("Softmax", logits, axis=-1), values)
    merged = net.reshape(net.add("Transpose", mixed, perm=[0, 2, 1, 3]), [1, TOKENS, width])
    return net.linear(merged, width, width)


def constant_rows(seed: int, width: int = 32, depth: int = 4) -> Case:
    """Padded tokens are rows of zeros: their variance is 0, and an epsilon of 1e-12 is 0 in fp16."""
    net = Net(seed)
    x = net.linear("x", width, width)
    for number in range(depth):
        net.scope(f"block{number}")
        padded = net.add("Mul", x, "mask")
        x = net.add("Add", padded, _mlp(net, _layer_norm(net, padded, width, 1e-12), width))
    model = net.model(
        [("x", TensorProto.FLOAT, [1, TOKENS, width]), ("mask", TensorProto.FLOAT, [1, TOKENS, 1])],
        x,
        [1, TOKENS, width],
    )

    def draw(rng: Generator) -> Feeds:
        mask = (np.arange(TOKENS) < rng.integers(TOKENS // 2, TOKENS)).astype(np.float32).reshape(1, TOKENS, 1)
        return {"x": rng.normal(0, 1, (1, TOKENS, width)).astype(np.float32), "mask": mask}

    return Case("eps 1e-12, constant rows", model, draw)


def large_scores(seed: int, width: int = 64, depth: int = 3, heads: int = 4) -> Case:
    """Queries and keys of a few hundred: their products are beyond 65504 before the scale makes logits of them."""
    net, x, gain = Net(seed), "x", 120.0
    for number in range(depth):
        net.scope(f"block{number}")
        normed = _layer_norm(net, x, width, 1e-5)
        query = _heads(net, normed, width, heads, gain)
        key = net.add("Transpose", _heads(net, normed, width, heads, gain), perm=[0, 1, 3, 2])
        # logits of about 3: the temperature was learnt to go with the gain
        scale = 3.0 / (gain**2 * (width // heads) ** 0.5)
        logits = net.add("Mul", net.add("MatMul", query, key), net.const(scale))
        x = net.add("Add", x, _attended(net, logits, _heads(net, normed, width, heads), width))
        x = net.add("Add", x, _mlp(net, _layer_norm(net, x, width, 1e-5), width))
    model = net.model([("x", TensorProto.FLOAT, [1, TOKENS, width])], x, [1, TOKENS, width])
    return Case("Q.K overflows", model, lambda rng: {"x": rng.normal(0, 1, (1, TOKENS, width)).astype(np.float32)})


def cancelled_variance(seed: int, width: int = 32, depth: int = 5, mean: float = 14.0) -> Case:
    """A variance as E[x^2] - E[x]^2 where the mean is some 14 times the deviation."""
    net = Net(seed)
    x = net.linear("x", width, width)
    for number in range(depth):
        net.scope(f"block{number}")
        hidden = net.linear(x, width, width, mean=mean)
        average = net.mean(hidden)
        squares = net.mean(net.add("Mul", hidden, hidden))
        variance = net.add("Sub", squares, net.add("Mul", average, average))
        divisor = net.add("Sqrt", net.add("Add", variance, net.const(1e-3)))
        normed = net.add("Div", net.add("Sub", hidden, average), divisor)
        normed = net.add("Relu", net.add("Mul", normed, net.draw(width, scale=0.1, mean=1.0)))
        x = net.add("Add", x, net.linear(normed, width, width))
    model = net.model([("x", TensorProto.FLOAT, [8, width])], x, [8, width])
    return Case("E[x2] - E[x]2", model, lambda rng: {"x": rng.normal(0, 1, (8, width)).astype(np.float32)})


def _turned(net: Net, x: str, cosine: str, sine: str, size: int) -> str:
    axis = net.const([3], np.int64)
    bounds = [net.const([value], np.int64) for value in (0, size // 2, size)]
    first = net.add("Slice", x, bounds[0], bounds[1], axis)
    second = net.add("Slice", x, bounds[1], bounds[2], axis)
    half = net.add("Concat", net.add("Neg", second), first, axis=3)
    return net.add("Add", net.add("Mul", x, cosine), net.add("Mul", half, sine))


def rotary(seed: int, width: int = 32, depth: int = 2, heads: int = 2) -> Case:
    """Angles at positions of about 5000, made in the model: fp16 has only each fourth number there."""
    net, x, size = Net(seed), "x", width // heads
    for number in range(depth):
        net.scope(f"block{number}")
        where = net.reshape(net.add("Cast", "position", to=TensorProto.FLOAT), [1, 1, TOKENS, 1])
        frequency = 100.0 ** (-np.arange(size // 2) / (size // 2))
        angles = net.add("Mul", where, net.const(frequency.reshape(1, 1, 1, -1)))
        both = net.add("Concat", angles, angles, axis=3)
        cosine, sine = net.add("Cos", both), net.add("Sin", both)
        normed = _layer_norm(net, x, width, 1e-5)
        query = _turned(net, _heads(net, normed, width, heads), cosine, sine, size)
        key = _turned(net, _heads(net, normed, width, heads), cosine, sine, size)
        scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2]))
        logits = net.add("Mul", scores, net.const(size**-0.5))
        x = net.add("Add", x, _attended(net, logits, _heads(net, normed, width, heads), width))
    model = net.model(
        [("x", TensorProto.FLOAT, [1, TOKENS, width]), ("position", TensorProto.INT64, [TOKENS])],
        x,
        [1, TOKENS, width],
    )

    def draw(rng: Generator) -> Feeds:
        position = rng.integers(4000, 6000) + np.arange(TOKENS)
        return {"x": rng.normal(0, 1, (1, TOKENS, width)).astype(np.float32), "position": position.astype(np.int64)}

    return Case("rotary angles at 5000", model, draw)


def adding(seed: int, width: int = 32, depth: int = 40, gain: float = 2.25) -> Case:
    """A residual network whose layers each double what error there is: many have to be raised, and none stands out."""
    net, x = Net(seed), "x"
    for number in range(depth):
        net.scope(f"layer{number}")
        x = net.add("Add", x, net.add("Tanh", net.linear(x, width, width, gain)))
    model = net.model([("x", TensorProto.FLOAT, [4, width])], x, [4, width])
    return Case(f"adds up {seed}", model, lambda rng: {"x": rng.normal(0, 1, (4, width)).astype(np.float32)})


def natural(seed: int = 0) -> list[Case]:
    """Return the four kinds, and the half that is held back: other seeds, widths and depths. ``seed``: all others."""
    shown = [constant_rows(seed + 11), large_scores(seed + 12), cancelled_variance(seed + 13), rotary(seed + 14)]
    held = [
        constant_rows(seed + 901, width=48, depth=6),
        large_scores(seed + 902, width=48, depth=2, heads=3),
        cancelled_variance(seed + 903, width=64, depth=8, mean=20.0),
        rotary(seed + 904, width=48, depth=3, heads=3),
    ]
    return [*shown, *(replace(one, held=True) for one in held)]
