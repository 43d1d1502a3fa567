"""Small networks of eight architectures, and children of them, quantized (QDQ) or in fp16, in which faults are planted.

Each is evaluated node by node here: nothing of it uses Winnow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Values = dict[str, np.ndarray]
OPSET = 17


class Evaluator:
    """Runs a model with plain ONNX Runtime, each node as a model of its own: nothing is fused, each result rounded."""

    def __init__(self) -> None:
        self._sessions: dict[object, onnxruntime.InferenceSession] = {}

    def run(self, model: ModelProto, feeds: Mapping[str, np.ndarray], good: Mapping[str, np.ndarray] = {}) -> Values:
        """Return what every tensor holds; those in ``good`` hold that, whatever their node makes."""
        values = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer} | dict(feeds)
        for node in model.graph.node:
            made = self.node(node, values)
            values |= {name: good.get(name, value) for name, value in made.items()}
        return values

    def node(self, node: NodeProto, values: Mapping[str, np.ndarray]) -> Values:
        """Return what a node makes."""
        read = [name for name in node.input if name]
        bare = NodeProto()
        bare.CopyFrom(node)
        bare.name = ""
        bare.input[:] = [f"i{read.index(name)}" if name else "" for name in node.input]
        bare.output[:] = [f"o{at}" for at in range(len(node.output))]
        types = tuple(helper.np_dtype_to_tensor_dtype(values[name].dtype) for name in read)
        # an initializer is what some operators insist on; for others any input will do
        key = (bare.SerializeToString(deterministic=True), types)
        if key not in self._sessions:
            inputs = [helper.make_tensor_value_info(f"i{at}", one, None) for at, one in enumerate(types)]
            outputs = [helper.make_empty_tensor_value_info(name) for name in bare.output]
            graph = helper.make_graph([bare], "node", inputs, outputs)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = 1
            options.log_severity_level = 4
            self._sessions[key] = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        found = self._sessions[key].run(None, {f"i{at}": values[name] for at, name in enumerate(read)})
        return dict(zip(node.output, found, strict=True))


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
        name = out or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"/{name}", **attributes))
        return name

    def input(self, name: str, *shape: int) -> str:
        """Add an input."""
        self.inputs[name] = shape
        return name

    def model(self) -> ModelProto:
        """Return what was built."""
        graph = helper.make_graph(
            self.nodes,
            "planted",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    # ---- layers

    def conv(self, x: str, into: int, of: int, size: int = 3, **attributes: object) -> str:
        """Add a convolution with a bias."""
        pads = [size // 2] * 4
        bias = self.constant(self.draw.normal(0, 0.1, into).astype(np.float32))
        return self.add("Conv", x, self.weight(into, of, size, size, gain=1.4), bias, pads=pads, **attributes)

    def leaky(self, x: str) -> str:
        """Add a LeakyRelu."""
        return self.add("LeakyRelu", x, alpha=0.1)

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


def residual(net: Network, size: int) -> None:
    """Residual convolutional network."""
    x = net.leaky(net.conv(net.input("x", 1, 3, 8, 8), 8, 3))
    for _ in range(7 * size):
        inner = net.leaky(net.conv(x, 8, 8))
        x = net.leaky(net.add("Add", x, net.conv(inner, 8, 8)))
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


RTOL, ATOL = 0.02, 1e-5
LOCAL = (1.03, 1.6)
"""The error of noise on its own tensor, in tolerances."""
HEALTHY, LOUD = 0.5, 5.0
"""The error at the outputs, in tolerances: without the fault at most, and with it at least."""
CANCELED = 1536.0
"""What is added and subtracted again: fp16 rounds to whole numbers there."""
SEEDS = 150


@dataclass(frozen=True)
class Spec:
    """What is planted. ``held``: not to be looked at while anything is mended."""

    network: str
    dtype: str
    where: str
    fault: str
    held: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.network} {self.dtype} {self.where} {self.fault}"


# where: before, after, beside, both; "only ..": all paths go through the noise; many: wherever the same operator stands
SPECS = tuple(
    Spec(*row.split("|"), held=at % 2 == 1)  # type: ignore[misc]
    for at, row in enumerate(
        (
            "residual|qdq|after|clipped",
            "residual|qdq|both|coarse",
            "residual|fp16|before|cancel",
            "unet|qdq|beside|weight scale",
            "unet|qdq|only after|zero point",
            "unet|fp16|both|alpha",
            "pre-LN|qdq|before|axis",
            "pre-LN|qdq|many after|coarse",
            "pre-LN|fp16|both|every epsilon",
            "post-LN|qdq|only before|zero point",
            "post-LN|fp16|only after|cancel",
            "post-LN|qdq|both|every axis",
            "mixer|qdq|beside|zero point",
            "mixer|fp16|after|overflow",
            "mixer|qdq|many both|epsilon",
            "inception|qdq|beside|coarse",
            "inception|fp16|both|alpha",
            "inception|qdq|only after|weight scale",
            "detector|qdq|beside|clipped",
            "detector|fp16|before|weight",
            "detector|qdq|both|two: clipped, alpha",
            "recurrent|qdq|many after|zero point",
            "recurrent|fp16|before|cancel",
            "recurrent|qdq|before|clipped",
            "pre-LN|qdq|after|every weight scale",
            "inception|fp16|only before|cancel",
            "unet|qdq|many both|coarse",
            "detector|fp16|beside|two: cancel, weight",
        )
    )
)


class UnfitError(Exception):
    """No model with the properties that are wanted comes of this seed."""


@dataclass
class Planted:
    """A parent and its child.

    ``faults``: one set of node names a fault (of a fault that stands everywhere: one an instance); an answer is right
    if it holds a node of one of them and none can be spared. ``noise``: likewise. ``good``: what the child's tensors
    should hold; one that is left out has no good value. ``error``, ``healthy``: at the outputs, in tolerances, with the
    fault and without.
    """

    spec: Spec
    parent: ModelProto
    child: ModelProto
    feeds: Values
    good: Values
    faults: list[frozenset[str]] = field(default_factory=list)
    noise: list[frozenset[str]] = field(default_factory=list)
    error: float = 0.0
    healthy: float = 0.0
    local: list[float] = field(default_factory=list)
    seed: int = 0

    @property
    def joint(self) -> bool:
        """Whether two faults of different kinds are planted."""
        return self.spec.fault.startswith("two")


def in_tolerances(mine: np.ndarray, good: np.ndarray) -> float:
    """Return the largest error of a tensor in tolerances, as ``checker.metric=scale`` has it."""
    a, b = mine.astype(np.float64), good.astype(np.float64)
    if a.shape != b.shape or not np.isfinite(a).all():
        return np.inf
    return float(np.abs(a - b).max(initial=0) / (ATOL + RTOL * np.abs(b).max(initial=0)))


def worst(values: Mapping[str, np.ndarray], good: Mapping[str, np.ndarray], names: Collection[str]) -> float:
    """Return the largest error of some tensors."""
    return max((in_tolerances(values[name], good[name]) for name in names), default=0.0)


# ---- what a set of nodes does alone, by ONNX Runtime


def alone(planted: Planted, nodes: Collection[str], evaluator: Evaluator, *, made_too: bool = False) -> float | None:
    """Return the error of some nodes of the child on good values; None: it has none to read, or to compare with.

    ``made_too``: what no tensor of the parent tells (a quantized tensor) holds what its node makes of good values.
    """
    graph = planted.child.graph
    kept = [node for node in graph.node if node.name in nodes]
    made = {name for node in kept for name in node.output}
    values = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    told = {name: value for name, value in planted.good.items() if np.isfinite(value).all()}  # what fits into fp16
    good = evaluator.run(planted.child, planted.feeds, planted.good) if made_too else told
    for node in kept:
        for name in node.input:
            if name and name not in made and name not in values:
                if name not in good:
                    return None
                values[name] = good[name]
    for node in kept:
        values |= evaluator.node(node, values)
    others = {name for node in graph.node if node.name not in nodes for name in node.input}
    shown = [name for name in made if name in told and name in others | set(outputs(planted.child))]
    return worst(values, planted.good, shown) if shown else None


def minimal(planted: Planted, nodes: Collection[str], evaluator: Evaluator, *, made_too: bool = False) -> bool:
    """Whether some nodes fail alone, and fail no more whichever of them is left out."""

    def fails(some: Collection[str]) -> bool:
        error = alone(planted, some, evaluator, made_too=made_too)
        return error is not None and error > 1

    return fails(nodes) and not any(fails(set(nodes) - {one}) for one in nodes if len(nodes) > 1)


def outputs(model: ModelProto) -> list[str]:
    """Return the names of the graph outputs."""
    return [one.name for one in model.graph.output]


# ---- conversion


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
