"""Small networks of eight architectures in which faults are planted. Nothing of it uses Winnow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 17


@dataclass
class Network:
    """A model under construction."""

    seed: int
    nodes: list[NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)

    def weight(self, *shape: int, gain: float = 1.0) -> str:
        """Add a random weight that keeps values of about one size."""
        fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return self.constant(self.draw.normal(0, gain / np.sqrt(fan), shape).astype(np.float32), "w")

    def constant(self, value: object, prefix: str = "c") -> str:
        """Add a constant."""
        name = f"{prefix}{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: object) -> str:
        """Add a node with one output, and return that."""
        name, made = self.named(operator, out)
        self.nodes.append(helper.make_node(operator, list(inputs), [made], name=name, **attributes))
        return made

    def named(self, operator: str, out: str) -> tuple[str, str]:
        """Return the names of the next node and of what it makes."""
        out = out or f"{operator.lower()}_{len(self.nodes)}"
        return f"/{out}", out

    def input(self, name: str, *shape: int) -> str:
        """Add an input."""
        self.inputs[name] = shape
        return name

    def model(self) -> ModelProto:
        """Return what was built."""
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs]
        return self.between(inputs, outputs, "planted")

    def between(
        self, inputs: Sequence[object], outputs: Sequence[object], name: str, opset: int = OPSET, ir_version: int = 8
    ) -> ModelProto:
        """Return what was built between these inputs and outputs."""
        weights = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)

    # ---- layers

    def conv(self, x: str, into: int, of: int, size: int = 3, **attributes: object) -> str:
        """Add a convolution with a bias."""
        pads = [size // 2] * 4
        bias = self.constant(self.draw.normal(0, 0.1, into).astype(np.float32))
        return self.add("Conv", x, self.weight(into, of, size, size, gain=1.4), bias, pads=pads, **attributes)

    def leaky(self, x: str) -> str:
        """Add a LeakyRelu."""
        return self.add("LeakyRelu", x, alpha=0.1)

    def relu(self, x: str) -> str:
        """Add a Relu."""
        return self.add("Relu", x)

    def dense(self, x: str, of: int, into: int, gain: float = 1.0) -> str:
        """Add a dense layer."""
        made = self.add("MatMul", x, self.weight(of, into, gain=gain))
        return self.add("Add", made, self.constant(self.draw.normal(0, 0.1, into).astype(np.float32)))

    def norm(self, x: str, width: int) -> str:
        """Add a layer normalization."""
        one = self.draw.normal(1, 0.1, width).astype(np.float32)
        shift = self.draw.normal(0, 0.1, width).astype(np.float32)
        return self.add("LayerNormalization", x, self.constant(one), self.constant(shift), axis=-1)

    def gelu(self, x: str) -> str:
        """Add a GELU in small pieces."""
        half = self.add("Mul", x, self.constant(np.float32(0.5)))
        erf = self.add("Erf", self.add("Mul", x, self.constant(np.float32(2**-0.5))))
        return self.add("Mul", half, self.add("Add", erf, self.constant(np.float32(1))))

    def head(self, x: str, width: int, out: str, classes: int = 6) -> None:
        """End in an average over the positions of [1, channels, height, width]."""
        pooled = self.add("Flatten", self.add("GlobalAveragePool", x))
        self.add("Gemm", pooled, self.weight(width, classes), self.constant(np.full(classes, 0.5, np.float32)), out=out)
        self.outputs.append(out)

    def mean_head(self, x: str, width: int, out: str = "y") -> None:
        """End in an average over the tokens of [1, tokens, width]."""
        pooled = self.add("ReduceMean", x, axes=[1], keepdims=0)
        self.add("Gemm", pooled, self.weight(width, 6), self.constant(np.full(6, 0.5, np.float32)), out=out)
        self.outputs.append(out)


def residual(
    net: Network, size: int, blocks: int = 7, activation: Callable[[Network, str], str] = Network.leaky
) -> None:
    """Residual convolutional network."""
    x = activation(net, net.conv(net.input("x", 1, 3, 8, 8), 8, 3))
    for _ in range(blocks * size):
        inner = activation(net, net.conv(x, 8, 8))
        x = activation(net, net.add("Add", x, net.conv(inner, 8, 8)))
    net.head(x, 8, "y")


def unet(net: Network, size: int, depth: int = 3) -> None:
    """Encoder and decoder with skips."""
    x, skips, width = net.input("x", 1, 3, 16, 16), [], 3
    for level in range(depth):
        into = 6 + 2 * level
        x = net.leaky(net.conv(x, into, width))
        for _ in range(2 * size - 1):
            x = net.leaky(net.conv(x, into, into))
        skips.append((x, into))
        x = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
        width = into
    x = net.leaky(net.conv(x, width, width))
    for skip, into in reversed(skips):
        up = net.add("ConvTranspose", x, net.weight(width, into, 2, 2, gain=1.6), strides=[2, 2])
        x = net.leaky(net.conv(net.add("Concat", skip, up, axis=1), into, 2 * into))
        for _ in range(2 * size - 1):
            x = net.leaky(net.conv(x, into, into))
        width = into
    net.head(x, width, "y")


def transformer(net: Network, before: bool, layers: int = 4, tokens: int = 12, width: int = 16) -> None:
    """Encoder of a transformer; ``before``: it normalizes before each part (pre-LN), else after (post-LN)."""
    x = net.dense(net.input("x", 1, tokens, 8), 8, width)
    for _ in range(layers):
        for part in (attention, feed_forward):
            if before:
                x = net.add("Add", x, part(net, net.norm(x, width), width))
            else:
                x = net.norm(net.add("Add", x, part(net, x, width)), width)
    net.mean_head(x, width)


def attention(net: Network, x: str, width: int) -> str:
    """Add attention over [1, tokens, width] in one head."""
    q, k, v = (net.dense(x, width, width) for _ in range(3))
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 1]))
    weights = net.add("Softmax", net.add("Mul", scores, net.constant(np.float32(width**-0.5))), axis=-1)
    return net.dense(net.add("MatMul", weights, v), width, width)


def feed_forward(net: Network, x: str, width: int) -> str:
    """Add two dense layers with a GELU between them."""
    return net.dense(net.gelu(net.dense(x, width, 2 * width)), 2 * width, width)


def mixer(net: Network, size: int, layers: int = 4, tokens: int = 12, width: int = 16) -> None:
    """MLP mixer: dense layers over tokens, then over channels."""
    x = net.dense(net.input("x", 1, tokens, 8), 8, width)
    for _ in range(layers):
        turned = net.add("Transpose", net.norm(x, width), perm=[0, 2, 1])
        mixed = net.dense(net.gelu(net.dense(turned, tokens, 2 * tokens)), 2 * tokens, tokens)
        x = net.add("Add", x, net.add("Transpose", mixed, perm=[0, 2, 1]))
        x = net.add("Add", x, feed_forward(net, net.norm(x, width), width))
    net.mean_head(x, width)


def inception(net: Network, size: int) -> None:
    """Parallel branches that are concatenated."""
    x = net.leaky(net.conv(net.input("x", 1, 3, 8, 8), 12, 3))
    for _ in range(4 * size):
        one = net.leaky(net.conv(x, 4, 12, 1))
        three = net.leaky(net.conv(net.leaky(net.conv(x, 4, 12, 1)), 4, 4, 3))
        pool = net.add("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        x = net.add("Concat", one, three, net.leaky(net.conv(pool, 4, 12, 1)), axis=1)
    net.head(x, 12, "y")


def detector(net: Network, size: int) -> None:
    """A backbone with two heads and two outputs."""
    x = net.leaky(net.conv(net.input("x", 1, 3, 8, 8), 8, 3))
    for _ in range(4 * size):
        x = net.add("Add", x, net.leaky(net.conv(net.leaky(net.conv(x, 8, 8)), 8, 8)))
    for name in ("boxes", "scores"):
        at = x
        for _ in range(3):
            at = net.leaky(net.conv(at, 8, 8))
        net.head(at, 8, name)


def recurrent(net: Network, size: int, steps: int = 8, width: int = 16) -> None:
    """A gated recurrent chain, unrolled."""
    parts = [net.weight(8, width, gain=1.5) for _ in range(2)]
    loops = [net.weight(width, width, gain=0.7) for _ in range(2)]
    state = net.input("h", 1, width)
    states = []
    for step in range(steps):
        x = net.input(f"x{step}", 1, 8)
        gate, new = (
            net.add("Add", net.add("MatMul", x, part), net.add("MatMul", state, loop))
            for part, loop in zip(parts, loops, strict=True)
        )
        gate, new = net.add("Sigmoid", gate), net.add("Tanh", new)
        kept = net.add("Mul", gate, state)
        rest = net.add("Mul", net.add("Sub", net.constant(np.float32(1)), gate), new)
        state = net.add("Add", kept, rest)
        states.append(net.add("Unsqueeze", state, net.constant(np.array([1]))))
    net.mean_head(net.add("Concat", *states, axis=1), width)


ARCHITECTURES: dict[str, Callable[[Network, int], None]] = {
    "residual": residual,
    "unet": unet,
    "pre-LN": lambda net, size: transformer(net, True),
    "post-LN": lambda net, size: transformer(net, False),
    "mixer": mixer,
    "inception": inception,
    "detector": detector,
    "recurrent": recurrent,
}
