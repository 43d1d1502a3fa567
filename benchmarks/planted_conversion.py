"""A parent in fp32 made into its child, quantized (QDQ) or in fp16, with faults and noise planted in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.planted_models import CANCELED, RTOL, Planted, Spec, UnfitError, outputs
from benchmarks.planted_networks import ARCHITECTURES, Evaluator, Network, Values


class Conversion:
    """A child of a network, and what may be planted in it."""

    def __init__(self, spec: Spec, seed: int, evaluator: Evaluator) -> None:
        self.spec = spec
        self.evaluator = evaluator
        self.draw = np.random.default_rng([seed, 77])
        net = Network(seed)
        ARCHITECTURES[spec.network](net, 2 if spec.dtype == "fp16" else 1)
        self.parent = net.model()
        self.feeds = {name: self.draw.uniform(-1, 1, shape).astype(np.float32) for name, shape in net.inputs.items()}
        values = evaluator.run(self.parent, self.feeds)
        inner = {name for node in self.parent.graph.node for name in node.input}
        self.sites = [
            node.output[0]
            for node in self.parent.graph.node
            if node.output[0] in inner
            and values[node.output[0]].dtype == np.float32
            and values[node.output[0]].size > 8
            and node.op_type not in ("Transpose", "Flatten", "Unsqueeze")
        ]

        # what is quantized finely: too much of it in a small network is no longer fine
        self.share = (
            1.0 if spec.network in ("residual", "unet", "inception") else 0.2 if spec.network == "post-LN" else 0.3
        )
        self.fine = {name for name in self.sites if self.draw.random() < self.share}

    # Both take what is planted: site -> (kind, strength), so that a child is always made anew.

    def qdq(self, planted: Mapping[str, tuple[str, float]]) -> Planted:
        """Return the child with Q/DQ pairs at all sites and quantized weights."""
        child = ModelProto()
        child.CopyFrom(self.parent)
        values = self.evaluator.run(self.parent, self.feeds)
        good = dict(values)
        held = {one.name: one for one in child.graph.initializer}
        nodes: list[NodeProto] = []
        renamed: dict[str, str] = {}

        def constant(name: str, value: np.ndarray) -> str:
            child.graph.initializer.append(numpy_helper.from_array(value, name))
            return name

        for node in list(child.graph.node):
            weight = node.input[1] if node.op_type in ("Conv", "MatMul", "Gemm", "ConvTranspose") else ""
            if weight in held and (self.share == 1 or weight in planted or int(weight[1:]) % 3 == 0):
                if f"{weight}_dq" not in good:
                    array = numpy_helper.to_array(held[weight])
                    kind, strength = planted.get(weight, ("", 1.0))
                    scale = np.float32(np.abs(array).max() / 127)
                    whole = np.round(array / scale).astype(np.int8)
                    if kind == "weight":
                        whole = np.roll(whole, int(strength), axis=whole.ndim - 1)
                    factor = strength if kind == "weight scale" else 1.0
                    nodes.append(
                        helper.make_node(
                            "DequantizeLinear",
                            [
                                constant(f"{weight}_q", whole),
                                constant(f"{weight}_scale", np.float32(scale * factor)),
                                constant(f"{weight}_zero", np.int8(0)),
                            ],
                            [f"{weight}_dq"],
                            name=f"{weight}_DequantizeLinear",
                        )
                    )
                    good[f"{weight}_dq"] = array
                node.input[1] = f"{weight}_dq"
            node.input[:] = [renamed.get(name, name) for name in node.input]
            nodes.append(node)
            _spoil(node, planted)
            name = node.output[0]
            if name in self.fine or name in planted:
                kind, strength = planted.get(name, ("", 0.0))
                kind = kind if kind in ("coarse", "clipped", "zero point") else ""
                low, high = min(0.0, float(values[name].min())), max(0.0, float(values[name].max()))
                largest = float(np.abs(values[name]).max())
                scale = 2 * strength * RTOL * largest if kind == "coarse" else (high - low) / 255
                scale *= strength if kind == "clipped" else 1.0
                zero = round(-low / ((high - low) / 255)) if kind == "clipped" else round(-low / scale)
                other = np.clip(zero + strength * 255, 0, 255) if kind == "zero point" else zero
                parts = [constant(f"{name}_scale", np.float32(scale)), constant(f"{name}_zero", np.uint8(zero))]
                back = [parts[0], constant(f"{name}_zero_dq", np.uint8(other)) if kind == "zero point" else parts[1]]
                nodes += [
                    helper.make_node("QuantizeLinear", [name, *parts], [f"{name}_q"], name=f"{name}_QuantizeLinear"),
                    helper.make_node(
                        "DequantizeLinear", [f"{name}_q", *back], [f"{name}_dq"], name=f"{name}_DequantizeLinear"
                    ),
                ]
                renamed[name] = f"{name}_dq"
                good[f"{name}_dq"] = values[name]
        return self._planted(self.parent, child, nodes, good)

    def fp16(self, planted: Mapping[str, tuple[str, float]]) -> Planted:
        """Return the child in fp16, inputs and outputs in fp32; what cancels or overflows stands in the parent too."""
        values = self.evaluator.run(self.parent, self.feeds)
        nodes: list[NodeProto] = []
        renamed: dict[str, str] = {}
        parent = ModelProto()
        parent.CopyFrom(self.parent)

        def constant(name: str, value: float) -> str:
            parent.graph.initializer.append(numpy_helper.from_array(np.float32(value), name))
            return name

        for node in list(parent.graph.node):
            node.input[:] = [renamed.get(name, name) for name in node.input]
            nodes.append(node)
            name = node.output[0]
            kind, strength = planted.get(name, ("", 0.0))
            largest = float(np.abs(values[name]).max()) if kind else 0.0
            if kind == "cancel":
                by = 0.5 / (strength * RTOL * largest)
                steps = [("Mul", by), ("Add", CANCELED), ("Sub", CANCELED), ("Mul", 1 / by)]
            elif kind == "overflow":
                by = 65504 * strength / largest
                if by > 65504:
                    raise UnfitError("its factor would be out of fp16's range")
                steps = [("Mul", by), ("Min", 3e38), ("Max", -3e38), ("Mul", 1 / by)]
            else:
                continue
            for at, (operator, value) in enumerate(steps):
                made = f"{name}_{kind}{at}"
                read = renamed.get(name, name)
                nodes.append(helper.make_node(operator, [read, constant(f"{made}_c", value)], [made], name=f"/{made}"))
                renamed[name] = made
        del parent.graph.node[:]
        parent.graph.node.extend(_copied(nodes))
        good = self.evaluator.run(parent, self.feeds)

        child = ModelProto()
        child.CopyFrom(parent)
        for one in child.graph.initializer:
            array = numpy_helper.to_array(one)
            if array.dtype == np.float32:
                if planted.get(one.name, ("", 0.0))[0] == "weight":
                    array = np.roll(array, int(planted[one.name][1]), axis=-1)
                one.CopyFrom(numpy_helper.from_array(np.clip(array, -65504, 65504).astype(np.float16), one.name))
        inputs = {one.name: f"{one.name}_half" for one in child.graph.input}
        ends = {name: f"{name}_half" for name in outputs(child)}
        nodes = [
            helper.make_node("Cast", [name], [half], name=f"{name}_Cast", to=TensorProto.FLOAT16)
            for name, half in inputs.items()
        ]
        for node in child.graph.node:
            _spoil(node, planted)
            node.input[:] = [inputs.get(name, name) for name in node.input]
            node.output[:] = [ends.get(name, name) for name in node.output]
            nodes.append(node)
        nodes += [
            helper.make_node("Cast", [half], [name], name=f"{name}_Cast", to=TensorProto.FLOAT)
            for name, half in ends.items()
        ]
        narrow = {name: _half(value) for name, value in good.items() if name not in inputs and name not in ends}
        narrow |= {half: _half(good[name]) for name, half in (inputs | ends).items()}
        narrow |= {name: good[name] for name in (*inputs, *ends)}
        return self._planted(parent, child, nodes, narrow)

    def _planted(self, parent: ModelProto, child: ModelProto, nodes: list[NodeProto], good: Values) -> Planted:
        copies = _copied(nodes)
        del child.graph.node[:]
        child.graph.node.extend(copies)
        read = {name for node in copies for name in node.input}
        left = [one for one in child.graph.initializer if one.name in read]
        del child.graph.initializer[:]
        child.graph.initializer.extend(left)
        return Planted(self.spec, parent, child, self.feeds, good)

    def made(self, planted: Mapping[str, tuple[str, float]]) -> Planted:
        """Return the child of the kind that is wanted."""
        return self.qdq(planted) if self.spec.dtype == "qdq" else self.fp16(planted)


def _half(value: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return value.astype(np.float16) if value.dtype == np.float32 else value


def _copied(nodes: list[NodeProto]) -> list[NodeProto]:
    return [NodeProto.FromString(node.SerializeToString()) for node in nodes]


def _spoil(node: NodeProto, planted: Mapping[str, tuple[str, float]]) -> None:
    """Change an attribute of a node, if that is planted there: ``#`` and its output."""
    kind, strength = planted.get(f"#{node.output[0]}", ("", 0.0))
    if kind:
        left = [one for one in node.attribute if one.name != kind]
        del node.attribute[:]
        value = int(strength) if kind == "axis" else strength
        node.attribute.extend([*left, helper.make_attribute(kind, value)])


# ---- planting

ATTRIBUTES = {"alpha": "LeakyRelu", "epsilon": "LayerNormalization", "axis": "Softmax"}
STRENGTHS = {
    "clipped": (0.5, 0.3, 0.15, 0.05), "coarse": (6.0, 12.0, 20.0, 40.0), "zero point": (0.1, 0.25, 0.4),
    "weight scale": (1.5, 3.0, 8.0), "weight": (1, 3), "axis": (1,), "epsilon": (0.5, 4.0),
    "alpha": (0.5, 0.9, -0.8, 2.0, -2.0), "cancel": (8.0, 16.0, 24.0, 40.0), "overflow": (1.3, 2.0, 4.0, 8.0),
}  # fmt: skip
