"""What is planted, and an evaluator of it that owes nothing to Winnow: models, faults, noise, tolerances."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, numpy_helper

from benchmarks.planted_networks import Evaluator, Values

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
