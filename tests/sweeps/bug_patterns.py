"""Six defects of ONNX Runtime, each as a pattern that is planted somewhere in a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper


@dataclass
class Graph:
    """A graph in the making. ``n``: the square root of how many features a sample has."""

    n: int
    random: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Append a node, and return its output's name."""
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def weight(self, array: Any) -> str:
        """Add an initializer, and return its name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def normal(self, *shape: int) -> str:
        """Add small random weights."""
        return self.weight((self.random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    def shaped(self, name: str, *shape: int) -> str:
        """Reshape a tensor."""
        return self.add("Reshape", [name, self.weight(np.array(shape, np.int64))])

    def flat(self, name: str) -> str:
        """Reshape a tensor to what stands between blocks."""
        return self.shaped(name, 1, self.n * self.n)


def identity_transpose(graph: Graph, x: str) -> str:
    """GemmTransposeFusion: a Transpose that moves nothing becomes transA (microsoft/onnxruntime#32228)."""
    n = graph.n
    moved = graph.add("Transpose", [graph.shaped(x, n, n)], perm=[0, 1])
    return graph.flat(graph.add("Gemm", [moved, graph.normal(n, n), graph.normal(n)]))


def padded_pool(graph: Graph, x: str) -> str:
    """Pad_Fusion: the average of a border is divided by the wrong count (microsoft/onnxruntime#22177)."""
    n = graph.n
    pads = graph.weight(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    padded = graph.add("Pad", [graph.shaped(x, 1, 1, n, n), pads, graph.weight(np.float32(0))])
    return graph.flat(graph.add("AveragePool", [padded], kernel_shape=[3, 3]))


def wide_gamma(graph: Graph, x: str) -> str:
    """SkipLayerNormFusion: a gamma of three dimensions is refused by its own kernel (microsoft/onnxruntime#27455)."""
    n = graph.n
    shaped = graph.shaped(x, 1, n, n)
    total = graph.add("Add", [shaped, graph.add("Tanh", [shaped])])
    gamma, beta = (graph.weight(np.ones((1, 1, n), np.float32) * value) for value in (1, 0))
    return graph.flat(graph.add("LayerNormalization", [total, gamma, beta], axis=-1))


def double_clip(graph: Graph, x: str) -> str:
    """FuseReluClip: it does not know double (microsoft/onnxruntime#11836)."""
    wide = graph.add("Relu", [graph.add("Cast", [x], to=TensorProto.DOUBLE)])
    limits = [graph.weight(np.float64(value)) for value in (0.0, 6.0)]
    return graph.add("Cast", [graph.add("Clip", [wide, *limits])], to=TensorProto.FLOAT)


def cast_and_scale(graph: Graph, x: str) -> str:
    """CastElimination with DivMulFusion: an edge is lost (microsoft/onnxruntime#32416)."""
    n = graph.n
    shaped = graph.shaped(x, n, n)
    norm = graph.add("ReduceMax", [graph.add("Abs", [shaped])], axes=[0, 1], keepdims=1)
    largest = graph.add("Add", [norm, graph.weight(np.full((1, 1), 1, np.float32))])
    wide = graph.add("Cast", [shaped], to=TensorProto.FLOAT)
    scale = graph.add("Div", [graph.weight(np.float32(1)), largest])
    return graph.flat(graph.add("Mul", [wide, scale]))


def rms_norm(graph: Graph, x: str) -> str:
    """SimplifiedLayerNormFusion: it does not look at keepdims=0 (microsoft/onnxruntime#30513)."""
    n = graph.n
    shaped = graph.shaped(x, 1, n, n)
    squared = graph.add("Pow", [shaped, graph.weight(np.float32(2))])
    mean = graph.add("ReduceMean", [squared], axes=[-1], keepdims=0)
    root = graph.add("Sqrt", [graph.add("Add", [mean, graph.weight(np.float32(1e-6))])])
    gamma = graph.weight((1 + graph.random.random(n)).astype(np.float32))
    return graph.flat(graph.add("Mul", [graph.add("Div", [shaped, root]), gamma]))


#: the patterns by the defect's name
BUGS: Mapping[str, Callable[[Graph, str], str]] = MappingProxyType(
    {one.__name__: one for one in (identity_transpose, padded_pool, wide_gamma, double_clip, cast_and_scale, rms_norm)}
)
