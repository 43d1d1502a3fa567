"""python -m benchmarks.planted_noise [--out DIR] [--only NAME ...] [--half seen|held]: is rounding taken for the cause?

Each model is a parent in fp32 and a child, quantized (QDQ) or in fp16, with a planted fault whose error at the outputs
is five times the tolerance or more, and noise: nodes that are just over the tolerance on their own inner tensor, and
far below it at the outputs. Noise stands before the fault, after it, beside it, or on both sides. What is planted is
verified here with ONNX Runtime node by node; a model that does not have these properties is not used.

For each model Winnow runs with ``checker=compare``, and with a command that prints its error, with and without
``checker.measure``; each time with both orders of bisection (``strategy.first``).
"""

from __future__ import annotations

import argparse
import json
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.planted_networks import ARCHITECTURES, Evaluator, Network, Values

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


def places(conversion: Conversion, kind: str) -> list[str]:
    """Where a fault of a kind may be planted."""
    nodes = conversion.parent.graph.node
    if kind in ATTRIBUTES:
        return [f"#{node.output[0]}" for node in nodes if node.op_type == ATTRIBUTES[kind]]
    if kind in ("weight", "weight scale"):
        held = {one.name for one in conversion.parent.graph.initializer}
        kinds = ("Conv", "MatMul", "ConvTranspose")
        return [node.input[1] for node in nodes if node.op_type in kinds and node.input[1] in held]
    return conversion.sites


def culprits(spec: Spec, child: ModelProto, place: str, kind: str) -> frozenset[str]:
    """Return the nodes of what is planted."""
    if place.startswith("#"):
        return frozenset(
            {
                next(
                    node.name
                    for node in child.graph.node
                    if place[1:] in [o.removesuffix("_half") for o in node.output]
                )
            }
        )
    if kind in ("weight", "weight scale"):
        if spec.dtype == "qdq":
            return frozenset({f"{place}_DequantizeLinear"})
        return frozenset({next(node.name for node in child.graph.node if place in node.input)})
    if spec.dtype == "qdq":
        return frozenset({f"{place}_QuantizeLinear", f"{place}_DequantizeLinear"})
    steps = {"cancel": (1, 2), "overflow": (0, 1, 2, 3)}[kind]
    return frozenset(f"/{place}_{kind}{step}" for step in steps)


class Order:
    """What lies above and below in the child."""

    def __init__(self, model: ModelProto) -> None:
        self.maker = {name: node for node in model.graph.node for name in node.output}
        self.nodes = list(model.graph.node)
        self.ends = outputs(model)

    def below(self, names: Collection[str], without: Collection[str] = ()) -> frozenset[str]:
        """Return the nodes that depend on some, these included, when others are gone."""
        found: set[str] = set(names)
        tensors = {name for node in self.nodes if node.name in found for name in node.output}
        for node in self.nodes:
            if node.name not in without and not tensors.isdisjoint(node.input):
                found.add(node.name)
                tensors.update(node.output)
        return frozenset(found)

    def above(self, names: Collection[str]) -> frozenset[str]:
        """Return the nodes that some depend on, these included."""
        found: set[str] = set()
        waiting = [node for node in self.nodes if node.name in names]
        while waiting:
            node = waiting.pop()
            if node.name not in found:
                found.add(node.name)
                waiting += [self.maker[name] for name in node.input if name in self.maker]
        return frozenset(found)

    def reaches_end(self, names: Collection[str], without: Collection[str] = ()) -> bool:
        """Whether an output depends on some nodes when others are gone."""
        return any(self.maker[end].name in self.below(names, without) for end in self.ends)

    def relation(self, noise: frozenset[str], fault: frozenset[str]) -> str:
        """Return where noise stands, seen from a fault."""
        if noise & self.below(fault):
            return "after" if self.reaches_end(fault, noise) else "only after"
        if noise & self.above(fault):
            roots = [node.name for node in self.nodes if not any(name in self.maker for name in node.input)]
            free = self.below(set(roots) - noise, noise)
            fed = [name for name in fault if name in free] if roots else []
            weights = {one for one in roots if one.endswith("_DequantizeLinear")}
            if not fed or (fed and not (set(fed) & self.below(set(roots) - weights - noise, noise))):
                return "only before"
            return "before"
        return "beside"


def plant(spec: Spec, seed: int, evaluator: Evaluator) -> Planted:
    """Return a model with what is wanted planted in it. Raises UnfitError."""
    conversion = Conversion(spec, seed, evaluator)
    draw = conversion.draw
    clean = conversion.made({})
    if not 55 <= len(clean.child.graph.node) <= 300:
        raise UnfitError(f"{len(clean.child.graph.node)} nodes")
    if error_of(clean, evaluator) > HEALTHY * 0.8:
        raise UnfitError("the conversion alone is not good enough")
    faults = _faults(conversion, evaluator)
    order = Order(conversion.made(faults).child)
    sets = [culprits(spec, conversion.made(faults).child, place, kind) for place, (kind, _) in faults.items()]
    kind = "coarse" if spec.dtype == "qdq" else "cancel"
    wanted = {"both": ("before", "after"), "many both": ("before", "after")}.get(
        spec.where, (spec.where.removeprefix("many "),)
    )
    sites = [site for site in conversion.sites if site not in faults]
    draw.shuffle(sites)
    if spec.where.startswith("many"):
        operators = {node.output[0]: node.op_type for node in conversion.parent.graph.node}
        common = [one for one in operators.values() if one not in ("Concat", "Sigmoid")]
        most = sorted({*common}, key=lambda one: (-common.count(one), one))
        chosen = most[int(draw.integers(min(3, len(most))))]
        sites = [site for site in sites if operators[site] == chosen]
    noise: dict[str, tuple[str, float]] = {}
    seen: list[str] = []
    limit = 8 if spec.where.startswith("many") else len(wanted) + int(draw.integers(2))
    for site in sites:
        strength = float(draw.uniform(LOCAL[0] + 0.1, LOCAL[1] - 0.05))
        trial = {**noise, site: (kind, strength)}
        both = conversion.made(trial | faults)
        nodes = culprits(spec, both.child, site, kind)
        # where a site has a fault as well as noise, or stands in a chain of the fault's, it is neither
        relations = {Order(both.child).relation(nodes, one) for one in sets}
        base = {one.removeprefix("only ") for one in relations} if not spec.where.startswith("only") else relations
        if len(base) != 1 or not base <= set(wanted):
            continue
        relation = base.pop()
        if len(wanted) == 2 and seen.count(relation) > seen.count(wanted[wanted[0] == relation]):
            continue
        local = alone(both, nodes, evaluator)
        if local is None or not LOCAL[0] <= local <= LOCAL[1]:
            continue
        if error_of(conversion.made(trial), evaluator) > HEALTHY:
            continue
        noise, seen = trial, [*seen, relation]
        if len(noise) == limit and set(seen) == set(wanted):
            break
    if set(seen) != set(wanted) or (spec.where.startswith("many") and len(noise) < 3):
        raise UnfitError(f"there is no place for noise {spec.where}")
    del order
    planted = conversion.made(noise | faults)
    planted.faults = sets
    planted.noise = [culprits(spec, planted.child, site, kind) for site in noise]
    _verify(planted, conversion, noise, faults, evaluator)
    return planted


def _verify(planted: Planted, conversion: Conversion, noise: Mapping[str, tuple[str, float]],
            faults: Mapping[str, tuple[str, float]], evaluator: Evaluator) -> None:  # fmt: skip
    planted.error = error_of(planted, evaluator)
    planted.healthy = error_of(conversion.made(noise), evaluator)
    planted.local = [alone(planted, nodes, evaluator) or 0.0 for nodes in planted.noise]
    if not LOUD <= planted.error < 200:
        raise UnfitError("the fault is not loud enough")
    if planted.healthy > HEALTHY:
        raise UnfitError("without the fault it is not healthy")
    if not all(LOCAL[0] <= one <= LOCAL[1] for one in planted.local):
        raise UnfitError("the noise is not just over the tolerance")
    if not 60 <= len(planted.child.graph.node) <= 300:
        raise UnfitError("it is too small, or too large")
    for place in faults:
        if len(faults) > 1:  # each fails at the outputs by itself, and what is left without one fails too
            others = {other: one for other, one in faults.items() if other != place}
            if error_of(conversion.made(noise | others), evaluator) < 2:
                raise UnfitError("a fault can be spared")
            if error_of(conversion.made({**noise, place: faults[place]}), evaluator) < 2:
                raise UnfitError("a fault does not show by itself")
    for nodes in planted.faults:
        if not (error := alone(planted, nodes, evaluator)) or error <= 2:
            raise UnfitError("a fault does not fail alone")


def _faults(conversion: Conversion, evaluator: Evaluator) -> dict[str, tuple[str, float]]:
    """Choose where faults go, and how strong they are, so that they are loud at the outputs."""
    spec, draw = conversion.spec, conversion.draw
    every = spec.fault.startswith("every ")
    kinds = spec.fault.removeprefix("every ").removeprefix("two: ").split(", ")
    found: dict[str, tuple[str, float]] = {}
    for kind in kinds:
        options = [place for place in places(conversion, kind) if place not in found]
        if not options:
            raise UnfitError(f"there is no place for {kind}")
        draw.shuffle(options)
        chosen = options[:3] if every else options[:1]
        for strength in STRENGTHS[kind]:
            trial = dict.fromkeys(chosen, (kind, strength))
            if LOUD * 1.1 <= error_of(conversion.made(trial), evaluator) < 150:
                found |= trial
                break
        else:
            raise UnfitError(f"{kind} is not loud enough")
    return found


def error_of(planted: Planted, evaluator: Evaluator) -> float:
    """Return the error of the whole child at its outputs."""
    with np.errstate(all="ignore"):
        values = evaluator.run(planted.child, planted.feeds)
    return worst(values, planted.good, outputs(planted.child))


def generated(spec: Spec, evaluator: Evaluator) -> Planted:
    """Return the first seed's model that has all properties. Raises UnfitError."""
    reasons = []
    for seed in range(spec.seed, spec.seed + SEEDS):
        try:
            return replace(plant(spec, seed, evaluator), seed=seed)
        except UnfitError as error:  # noqa: PERF203 - most seeds are no good
            reasons.append(str(error))
    raise UnfitError(f"{spec.name}: no seed of {SEEDS}: { ({one: reasons.count(one) for one in reasons}) }")


# ---- runs

CLIENT = """import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.sendall(("\\n".join(sys.argv[2:]) + "\\n\\n").encode())
code, _, text = link.makefile().read().partition("\\n")
print(text)
sys.exit(int(code))
"""


class Checks(socketserver.ThreadingUnixStreamServer):
    """Judges for the command that Winnow runs, so that no check waits for Python to import a runtime."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Check)
        self.evaluator = Evaluator()
        self.lock = threading.Lock()


class _Check(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        words = []
        while line := self.rfile.readline().decode().strip():
            words.append(line)
        assert isinstance(self.server, Checks)
        try:
            with self.server.lock, np.errstate(all="ignore"):
                error = judged(*words, evaluator=self.server.evaluator)
            code, said = (
                (3, "nothing to compare") if error is None else (int(error > 1), f"error {min(error, 1e30):.4g}")
            )
        except Exception as error:  # noqa: BLE001 - it is told
            code, said = 3, f"{type(error).__name__}: {error}"
        self.wfile.write(f"{code}\n{said}".encode())


def judged(model: str, inputs: str, references: str, *, evaluator: Evaluator) -> float | None:
    """Return the error of a candidate in tolerances; None where nothing says what its outputs should be."""
    candidate = onnx.load(model)
    with np.load(inputs) as feeds, np.load(references) as good:
        values = evaluator.run(candidate, dict(feeds))
        names = [name for name in outputs(candidate) if name in good]
        return max(in_tolerances(values[name], good[name]) for name in names) if names else None


@dataclass(frozen=True)
class Way:
    """How Winnow is asked: the checker, and which end is looked for first."""

    check: str
    first: str

    def options(self, folder: Path) -> list[str]:
        """Return the overrides on the command line; ``folder``: where the command's client lies."""
        if self.check == "compare":
            return ["checker=compare", "checker.metric=scale", f"checker.rtol={RTOL}", f"checker.atol={ATOL}"]
        argv = [sys.executable, "-S", "-E", str(folder / "client.py"), str(folder / "socket"),
                "{model}", "{inputs}", "{references}"]  # fmt: skip
        options = ["checker=command", f"checker.command={json.dumps(argv)}", "checker.invalid_codes=[3]"]
        return options + (["checker.measure='error ([0-9.e+-]+)'"] if self.check == "measured" else [])


WAYS = (Way("compare", "start"), Way("compare", "end"), Way("measured", "start"), Way("plain", "start"))


def right(planted: Planted, nodes: Collection[str], evaluator: Evaluator) -> str:
    """Return ``right`` for a set that holds a faulty node and of which none can be spared, else what it is."""
    held = [fault for fault in planted.faults if fault & set(nodes)]
    # what a quantized tensor should hold may be told by its node, or by nobody: both are right; the first node of an
    # overflow fails alone where the check compares it with a good value that fp16 does not have
    if held and (
        (len(nodes) == 1)
        or set(nodes) in planted.faults
        or any(minimal(planted, nodes, evaluator, made_too=x) for x in (0, 1))
    ):
        return "right"
    if held:
        return "large"
    return "noise" if any(set(nodes) & noise for noise in planted.noise) else "other"


def ask(planted: Planted, way: Way, folder: Path, at: Path) -> dict:
    """Run Winnow; return its result."""
    run = at / f"{way.check}-{way.first}"
    argv = [
        *(sys.executable, "-m", "runner", f"model={at / 'child.onnx'}", f"reference.model={at / 'parent.onnx'}"),
        *("inputs=files", f"inputs.path={at / 'inputs.npz'}", "target.optimization=none", "checker.flaky=never"),
        f"target.rounding={'on' if planted.spec.dtype == 'fp16' else 'off'}",
        f"strategy.first={way.first}",
        # two faults take a second search
        *(["strategy.cause_checks=60"] if planted.joint else []),
        *way.options(folder),
        f"hydra.run.dir={run}",
    ]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    (at / f"{run.name}.txt").write_text(shlex.join(argv) + "\n" + done.stdout + done.stderr)
    if done.returncode:
        return {"exit": done.returncode, "said": (done.stdout + done.stderr).strip().splitlines()[-1:]}
    return json.loads((run / "result.json").read_text())


def shown(one: dict | None) -> str:
    """An experiment in a cell of the table."""
    if one is None:
        return "-"
    return one["outcome"] + ("" if one["measure"] is None else f" {one['measure']:.2g}")


def line(spec: Spec, way: Way, result: dict, first: str, last: str) -> str:
    """Return a row of the table."""
    if "cause" not in result:
        return f"{spec.name:42} {way.check:8} {way.first:5} exit {result['exit']}: {result['said']}"
    cause, checks = result["cause"], result["checks"]
    main = next(
        (one for one in cause["answers"] if set(one["culprits"]) == set(result["culprits"])), cause["answers"][0]
    )
    return (
        f"{spec.name:42} {way.check:8} {way.first:5} {first:6} {last:6} {cause['status']:10} {len(main['instances']):3}"
        f" {shown(cause['whole']):>11} {shown(main['good_outputs']):>11} {shown(main['good_inputs']):>11} "
        f"{checks['search']:4} {checks['cause']:3}"
    )


def write(planted: Planted, at: Path) -> None:
    """Write a model's files."""
    at.mkdir(parents=True, exist_ok=True)
    onnx.save(planted.parent, at / "parent.onnx")
    onnx.save(planted.child, at / "child.onnx")
    np.savez(at / "inputs.npz", **planted.feeds)
    said = {
        "faults": [sorted(one) for one in planted.faults],
        "noise": [sorted(one) for one in planted.noise],
        "error": planted.error,
        "healthy": planted.healthy,
        "local": planted.local,
    }
    (at / "planted.json").write_text(json.dumps(said, indent=1))


def asked(spec: Spec, ways: list[Way], out: Path, evaluator: Evaluator) -> list[tuple[Spec, Way, dict, str, str]]:
    """Make a model, run Winnow on it in several ways, and print a row of each."""
    try:
        planted = generated(spec, evaluator)
    except UnfitError as error:
        print(f"no model: {error}", flush=True)
        return []
    at = out / spec.name.replace(" ", "_").replace(":", "").replace(",", "")
    write(planted, at)
    print(
        f"# {spec.name} (seed {planted.seed}): {len(planted.child.graph.node)} nodes, {planted.error:.1f} tolerances "
        f"off, {planted.healthy:.2f} without the fault; {len(planted.noise)} x noise",
        flush=True,
    )
    rows = []
    with ThreadPoolExecutor(2) as pool:
        for way, result in zip(ways, pool.map(lambda way: ask(planted, way, out, at), ways), strict=True):
            found = [result["cause"]["answers"][0]["culprits"], result["culprits"]] if "cause" in result else []
            first, last = [right(planted, set(one), evaluator) for one in found] or ["-", "-"]
            rows.append((spec, way, result, first, last))
            print(line(*rows[-1]), flush=True)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--half", choices=["seen", "held"])
    parser.add_argument("--ways", default="", help="compare, measured, plain")
    given = parser.parse_args(arguments)
    out = (given.out or Path(tempfile.mkdtemp(prefix="planted-noise-"))).absolute()
    out.mkdir(parents=True, exist_ok=True)
    evaluator = Evaluator()
    (out / "client.py").write_text(CLIENT)
    (out / "socket").unlink(missing_ok=True)
    rows: list[tuple[Spec, Way, dict, str, str]] = []
    with Checks(out / "socket") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for spec in SPECS:
            if given.only in spec.name and (not given.half or (given.half == "held") is spec.held):
                rows += asked(spec, [way for way in WAYS if given.ways in way.check], out, evaluator)
        server.shutdown()
    for half in (False, True):
        print(f"\n## {'held back' if half else 'seen'}")
        for way in WAYS:
            some = [row for row in rows if row[0].held is half and row[1] == way]
            if some:
                count = {what: sum(test(row) for row in some) for what, test in TOTALS.items()}
                print(
                    f"{way.check:8} first={way.first:5} of {len(some)}: "
                    + ", ".join(f"{what} {n}" for what, n in count.items())
                )


TOTALS: dict[str, Callable[[tuple], bool]] = {
    "first right": lambda row: row[3] == "right",
    "culprits right": lambda row: row[4] == "right",
    "shown to be the cause": lambda row: row[4] == "right" and row[2]["cause"]["status"] in ("proven", "joint"),
    "wrongly proven": lambda row: row[4] not in ("right", "-") and row[2]["cause"]["status"] in ("proven", "joint"),
}


if __name__ == "__main__":
    main()
