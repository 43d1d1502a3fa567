"""python -m benchmarks.trt_failures PYTHON_WITH_TENSORRT [NAME ...]: planted build failures, and what is found of them.

Each is planted in the middle of a ResNet-50 of more than 150 nodes and reduced with ``checker=builds``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks import print_head, print_row, winnow

T = TensorProto
CULPRIT = "culprit"


@dataclass
class Network:
    """A ResNet-50 while it is being made; the planted nodes' names begin with ``culprit``."""

    opset: int
    culprit: str = CULPRIT
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[str], *, name: str = "", outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return its first output."""
        name = name or f"{op}_{len(self.nodes)}"
        made = [f"{name}_out{number or ''}" for number in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name=name, **attributes))
        return made[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add an initializer and return its name."""
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def conv(self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
        """Add a convolution with a batch normalization behind it."""
        source, target = channels
        scale = np.sqrt(2.0 / (source * kernel * kernel))
        weight = self.constant(self.random.normal(0, scale, (target, source, kernel, kernel)), np.float32)
        pads = [kernel // 2] * 4
        y = self.add("Conv", [x, weight], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)
        one, zero = np.ones(target), np.zeros(target)
        parameters = [self.constant(values, np.float32) for values in (one, zero, zero, one)]
        return self.add("BatchNormalization", [y, *parameters])

    def block(self, x: str, channels: tuple[int, int], stride: int) -> str:
        """Add a bottleneck block."""
        source, target = channels
        inner = target // 4
        y = self.add("Relu", [self.conv(x, (source, inner), 1)])
        y = self.add("Relu", [self.conv(y, (inner, inner), 3, stride)])
        y = self.conv(y, (inner, target), 1)
        short = x if source == target and stride == 1 else self.conv(x, channels, 1, stride)
        return self.add("Relu", [self.add("Add", [y, short])])

    def take(self, x: str, shape: Sequence[int], start: int = 0) -> str:
        """Return as many values of ``x`` as ``shape`` needs, in this shape, from the one at ``start`` on."""
        flat = self.add("Reshape", [x, self.constant([-1])])
        count = int(np.prod(shape))
        # the trunk has some thousand values where things are planted
        long = self.add("Tile", [flat, self.constant([-(-(start + count) // 1024)])])
        part = self.add("Slice", [long, self.constant([start]), self.constant([start + count]), self.constant([0])])
        return self.add("Reshape", [part, self.constant(list(shape))])

    def give(self, trunk: str, y: str) -> str:
        """Add the mean of ``y`` to the trunk, so that what comes after depends on it."""
        flat = self.add("Reshape", [self.add("Cast", [y], to=T.FLOAT), self.constant([-1])])
        return self.add("Add", [trunk, self.add("ReduceMean", [flat], keepdims=0)])


def resnet(opset: int, plant: Callable[[Network, str], str] | None, second: Any = None, size: int = 64) -> ModelProto:
    """Return a ResNet-50 (16 blocks, narrow) with ``plant`` in its middle, and ``second`` before or after it.

    ``second``: (block's number, what to plant there).
    """
    net = Network(opset)
    x = net.add("Relu", [net.conv("x", (3, 32), 7, 1)])
    x = net.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    source, number = 32, 0
    for target, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for index in range(count):
            x = net.block(x, (source, target), 2 if index == 0 and target > 64 else 1)
            source, number = target, number + 1
            if number == 8 and plant:
                x = plant(net, x)
            if second and number == second[0]:
                x = second[1](net, x)
    x = net.conv(net.add("GlobalAveragePool", [x]), (512, 10), 1)
    net.outputs.insert(0, (net.add("Flatten", [x]), T.FLOAT))
    outputs = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in net.outputs]
    inputs = [helper.make_tensor_value_info("x", T.FLOAT, [1, 3, size, size])]
    graph = helper.make_graph(net.nodes, "resnet50", inputs, outputs, net.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


# ---- what is planted


def attention(net: Network, x: str) -> str:
    """Attention without a dedicated kernel."""
    qkv = [net.take(x, [1, 8, 128, 64], start) for start in range(3)]  # the builder makes one of equal ones
    return net.give(x, net.add("Attention", qkv, name=net.culprit))


def self_attention(net: Network, x: str) -> str:
    """Attention of a tensor with itself, at which the builder crashes."""
    q = net.take(x, [1, 8, 128, 64])
    return net.give(x, net.add("Attention", [q, q, q], name=net.culprit))


def gru(net: Network, x: str, steps: int = 8) -> str:
    """A GRU whose unrolled build blows up."""
    w, r = (net.constant(net.random.normal(size=(1, 18, n)), np.float32) for n in (2, 6))
    return net.give(x, net.add("GRU", [net.take(x, [steps, 1, 2]), w, r], name=net.culprit, hidden_size=6))


def max_pool(net: Network, x: str) -> str:
    """A pooling that gets 29 instead of 28; its branch is an output of its own."""
    y = net.take(x, [1, 2, 56, 56])
    y = net.add("MaxPool", [y], name=net.culprit, kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)
    net.outputs.append((net.add("Sigmoid", [net.add("Relu", [y])]), T.FLOAT))
    return x


def top_k(net: Network, x: str) -> str:
    """A K beyond what TopK takes."""
    return net.give(x, net.add("TopK", [net.take(x, [1, 10000]), net.constant([5000])], name=net.culprit, outputs=2))


def non_max_suppression(net: Network, x: str) -> str:
    """A NonMaxSuppression with static inputs."""
    boxes, scores = net.take(x, [1, 100, 4]), net.take(x, [1, 5, 100])
    return net.give(x, net.add("NonMaxSuppression", [boxes, scores, net.constant(10)], name=net.culprit))


def branches(net: Network, x: str) -> str:
    """An If whose branches have other ranks."""
    y = net.take(x, [1, 4])
    mean = net.add("ReduceMean", [y], keepdims=0)
    condition = net.add("Greater", [mean, net.constant(0, np.float32)])
    axes = net.constant([0])
    bodies = {"then_branch": _body("Squeeze", [y, axes]), "else_branch": _body("Identity", [y])}
    return net.give(x, net.add("If", [condition], name=net.culprit, **bodies))


def mat_mul(net: Network, x: str) -> str:
    """A vector times a stack of matrices."""
    return net.give(x, net.add("MatMul", [net.take(x, [4]), net.take(x, [2, 4, 8])], name=net.culprit))


def gemm(net: Network, x: str) -> str:
    """A product in fp32, which Turing's backend does not have."""
    return net.give(x, net.add("MatMul", [net.take(x, [4, 8]), net.take(x, [8, 4])], name=net.culprit))


def mixed_types(net: Network, x: str) -> str:
    """A sum of two types, which ONNX forbids too."""
    half = net.add("Cast", [x], name=f"{net.culprit}_cast", to=T.FLOAT16)
    return net.add("Add", [half, x], name=net.culprit)


def _body(op: str, inputs: Sequence[str]) -> GraphProto:
    output = helper.make_tensor_value_info(f"{op}_body", T.FLOAT, None)
    return helper.make_graph([helper.make_node(op, inputs, [output.name], name=op)], op, [], [output])


@dataclass(frozen=True)
class Failure:
    """One row: what is planted, from which opset on, the options of the run, and how it fails."""

    plant: Callable[[Network, str], str]
    options: tuple[str, ...] = ()
    opset: int = 17
    said: str = ""


FAILURES: Mapping[str, Failure] = {
    "attention": Failure(attention, opset=23, said="not supported by a dedicated kernel"),
    "self_attention": Failure(self_attention, opset=23, said="death MEMORY"),
    "gru": Failure(gru, ("checker.timeout=10",), said="timeout"),
    "max_pool": Failure(max_pool, said="shape"),
    "top_k": Failure(top_k, said="K exceeds"),
    "non_max_suppression": Failure(non_max_suppression, said="no runners"),
    "branches": Failure(branches, said="equal ranks"),
    "mat_mul": Failure(mat_mul, said="changes volume"),
    "gemm_sm75": Failure(gemm, ("target.compute_capabilities=[SM75]",), said="GEMM is not supported"),
    "mixed_types": Failure(mixed_types, said="same input types"),
}


def main(python: str, *names: str) -> int:
    """Print a row for each failure; return how many were not cut down to their culprits."""
    wrong = 0
    print_head("planted", "nodes", "found", "search", "trust", "seconds", "minimal", "fails with", "right")
    for name in names or FAILURES:
        failure = FAILURES[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            model = resnet(failure.opset, failure.plant)
            onnx.save(model, str(folder / "net.onnx"))
            given = [f"model={folder / 'net.onnx'}", "checker=builds", "target=tensorrt", f"target.python={python}"]
            ended, result = winnow(folder / "run", *given, *failure.options)
        planted = {node.name for node in model.graph.node if node.name.startswith(CULPRIT)}
        found = result["culprits"] or [result["message"] or ended.stderr[-200:]]
        signature = result["signature"] or {}
        said = f"{signature.get('stage')}: {signature.get('kind')}"
        right = set(result["culprits"] or ()) <= planted and result["status"] == "found" and failure.said in said
        wrong += not right
        checks, seconds = result["checks"], result["seconds"]["total"]
        paid = checks["search"], checks["trust"], f"{seconds:.1f}"
        told = result.get("minimality"), said, "yes" if right else "WRONG"
        print_row(name, len(model.graph.node), ", ".join(found), *paid, *told)
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else print(__doc__) or 2)
