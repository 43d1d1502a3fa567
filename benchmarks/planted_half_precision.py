"""Networks in fp16 that fail in one place by what fp16 does there; each with its original in fp32, and its inputs.

The nodes of the planted place begin with ``planted/``; the rest is a residual network that fp16 computes well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from benchmarks.precision_networks import Net

PLANTED = "planted/"
WIDTH = 32


@dataclass(frozen=True)
class HalfPrecisionFailure:
    """``parent``: in fp32, right. ``child``: the same in fp16. ``feeds``: of the parent."""

    parent: ModelProto
    child: ModelProto
    feeds: Mapping[str, np.ndarray]


def _residual_overflow(net: Net, x: str) -> str:
    """A product of about 1e5 that is scaled back right behind it."""
    large = net.add("MatMul", x, net.draw(WIDTH, WIDTH, scale=1.5e4))
    return net.add("Mul", large, net.const(1e-4))


def _attention_logits(net: Net, x: str) -> str:
    """Products of queries and keys beyond 65504, before the scale makes logits of them."""
    query, key = (net.add("MatMul", x, net.draw(WIDTH, WIDTH, scale=40.0)) for _ in range(2))
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 2, 1]))
    weights = net.add("Softmax", net.add("Mul", scores, net.const(1e-4)), axis=-1)
    return net.add("MatMul", weights, x)


def _norm_epsilon(net: Net, x: str) -> str:
    """A norm of rows of which one is constant: its variance is 0, and so is an epsilon of 1e-12 in fp16."""
    masked = net.add("Mul", x, "mask")
    centered = net.add("Sub", masked, net.mean(masked))
    variance = net.mean(net.add("Mul", centered, centered))
    divisor = net.add("Sqrt", net.add("Add", variance, net.const(1e-12)))
    return net.add("Div", centered, divisor)


def _accumulated_sum(net: Net, x: str) -> str:
    """A sum of 4096 values of about 50, and the mean by dividing it."""
    many = net.add(
        "Expand", net.add("Unsqueeze", x, net.const([3], np.int64)), net.const([1, 8, WIDTH, 4096], np.int64)
    )
    total = net.add("ReduceSum", net.add("Add", many, net.const(50.0)), net.const([3], np.int64), keepdims=0)
    return net.add("Sub", net.add("Div", total, net.const(4096.0)), net.const(50.0))


KINDS: Mapping[str, Callable[[Net, str], str]] = {
    "residual_overflow": _residual_overflow,
    "attention_logits": _attention_logits,
    "norm_epsilon": _norm_epsilon,
    "accumulated_sum": _accumulated_sum,
}


def half_precision_failure(kind: str, seed: int = 5, depth: int = 6) -> HalfPrecisionFailure:
    """Return a network with the planted place in its middle."""
    net, x = Net(seed), "x"
    for number in range(depth):
        net.scope(f"block{number}")
        x = net.add("Add", x, net.add("Tanh", net.linear(x, WIDTH, WIDTH, 0.3)))
        if number == depth // 2:
            net.scope(PLANTED.rstrip("/"))
            planted = KINDS[kind](net, x)
            net.scope("behind")
            x = net.add("Add", x, planted)
    inputs = [("x", TensorProto.FLOAT, [1, 8, WIDTH])]
    draw = np.random.default_rng(seed)
    feeds = {"x": draw.normal(0, 1, (1, 8, WIDTH)).astype(np.float32)}
    if kind == "norm_epsilon":
        inputs.append(("mask", TensorProto.FLOAT, [1, 8, 1]))
        feeds["mask"] = (np.arange(8) < 7).astype(np.float32).reshape(1, 8, 1)
    parent = net.model(inputs, x, [1, 8, WIDTH])
    return HalfPrecisionFailure(parent, in_half(parent), feeds)


def in_half(parent: ModelProto) -> ModelProto:
    """Return the model with every float in fp16, inputs and outputs as well."""
    child = ModelProto()
    child.CopyFrom(parent)
    for weight in child.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            array = np.clip(numpy_helper.to_array(weight), -65504, 65504).astype(np.float16)
            weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    for value in (*child.graph.input, *child.graph.output, *child.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return child
