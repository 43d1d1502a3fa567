"""Random models of real operators, small enough that a check of one takes a fraction of a millisecond.

Every tensor that depends on the inputs has the shape [4, 8] (a reduction's: [4, 1]), and is computed for all samples at
once: the arrays here have the samples before these axes. Magnitudes are kept in bounds, so that every error has a
scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TypeProto, helper, numpy_helper

from runner.model.graph.graph_index import Graph

Array = NDArray[np.float32]
ROWS, COLUMNS = 4, 8
LEAST, MOST = 0.02, 500.0
"""The largest absolute value of a tensor lies between these, in each sample."""
NOT_NEGATIVE = frozenset({"Abs", "Relu", "Sigmoid", "Exp", "Softmax", "Sqrt"})
BOUNDED = frozenset({"Sigmoid", "Tanh", "Softsign", "Softmax"})
_UNARY = (
    *("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Softsign", "HardSwish", "LeakyRelu", "Elu", "Softmax", "Sqrt", "Exp"),
)
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_CONSTANT = ("Add", "Sub", "Mul", "Div", "Max")
ALPHA = 0.125


def _softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def _normalized(x: Array, scale: Array, bias: Array) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + np.float32(1e-5)) * scale + bias


KERNELS: Mapping[str, Callable[..., Array]] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + np.float32(0.5), 0, 1),
    "LeakyRelu": lambda x: np.where(x < 0, np.float32(ALPHA) * x, x),
    "Elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "Softmax": _softmax,
    "Sqrt": np.sqrt,
    "Exp": np.exp,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "MatMul": np.matmul,
    "ReduceMean": lambda x: x.mean(-1, keepdims=True),
    "LayerNormalization": _normalized,
}
"""What each operator computes, of arrays with the samples in front."""
_ATTRIBUTES: Mapping[str, Mapping[str, object]] = {
    "LeakyRelu": {"alpha": ALPHA},
    "Softmax": {"axis": -1},
    "ReduceMean": {"axes": [-1], "keepdims": 1},
    "LayerNormalization": {"axis": -1, "epsilon": 1e-5},
}


@dataclass(frozen=True, eq=False)
class RandomModel:
    """A model and what it computes.

    ``inputs``: values of the graph inputs; ``good``: of every tensor, initializers included; samples in front, but for
    ``constant`` tensors, which no input reaches. ``blocks``: node names of each instance of the repeated pattern.
    """

    model: ModelProto
    inputs: Mapping[str, Array]
    good: Mapping[str, Array]
    constant: frozenset[str]
    blocks: tuple[tuple[str, ...], ...]
    samples: int

    @cached_property
    def graph(self) -> Graph:
        """The model's index."""
        return Graph.of(self.model)

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The tensors that each node reads, in order."""
        return tuple(tuple(proto.input) for proto in self.graph.protos)

    @cached_property
    def types(self) -> dict[str, TypeProto]:
        """The types of all tensors, as they are recorded of a run."""
        skip = {name: int(name not in self.constant) for name in self.good}
        return {name: helper.make_tensor_type_proto(1, value.shape[skip[name] :]) for name, value in self.good.items()}


class UnfitError(Exception):
    """A random model or fault has not the properties that are asked for."""


@dataclass
class _Step:
    operator: str
    reads: tuple[str, ...]
    gives: str
    block: int = -1


@dataclass
class _Builder:
    random: Random
    samples: int
    good: dict[str, Array] = field(default_factory=dict)
    weights: list[str] = field(default_factory=list)
    constant: set[str] = field(default_factory=set)
    steps: list[_Step] = field(default_factory=list)
    made_by: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def weight(self, shape: tuple[int, ...], low: float, high: float) -> str:
        name = self.fresh("w")
        drawn = np.random.Generator(np.random.PCG64(self.random.getrandbits(63)))
        value = drawn.uniform(low, high, shape).astype(np.float32)
        if len(shape) == 2:  # about as large as what it is multiplied with
            value = (drawn.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        self.good[name] = value
        self.weights.append(name)
        self.constant.add(name)
        return name

    def add(self, operator: str, reads: Sequence[str], block: int = -1) -> str | None:
        """Add a node; None where its values would leave the bounds."""
        with np.errstate(all="ignore"):
            value = np.asarray(KERNELS[operator](*map(self.good.__getitem__, reads)), np.float32)
        constant = self.constant.issuperset(reads)
        largest = np.abs(value).reshape(1 if constant else self.samples, -1).max(1)
        if not np.isfinite(value).all() or largest.min() < LEAST or largest.max() > MOST:
            return None
        name = self.fresh("t")
        self.good[name] = value
        self.made_by[name] = operator
        self.steps.append(_Step(operator, tuple(reads), name, block))
        if constant:
            self.constant.add(name)
        return name

    def unary(self, operator: str, read: str, block: int = -1) -> str | None:
        before = self.made_by.get(read, "")
        if (operator == "Sqrt" and before not in NOT_NEGATIVE) or (operator == "Exp" and before not in BOUNDED):
            return None
        return self.add(operator, [read], block)

    def with_constant(self, operator: str, read: str, block: int = -1) -> str | None:
        if operator == "MatMul":
            weight = self.weight((COLUMNS, COLUMNS), 0, 0)
            if self.random.random() < 0.2:  # a weight that is computed
                weight = self.add("Mul", [weight, self.weight((COLUMNS,), 0.5, 1.5)]) or weight
            return self.add(operator, [read, weight], block)
        if operator == "LayerNormalization":
            scale, bias = self.weight((COLUMNS,), 0.5, 1.5), self.weight((COLUMNS,), -0.5, 0.5)
            return self.add(operator, [read, scale, bias], block)
        shape = (COLUMNS,) if self.random.random() < 0.7 else ()
        return self.add(operator, [read, self.weight(shape, 0.4, 1.9)], block)

    def one(self, operator: str, read: str, block: int = -1) -> str | None:
        if operator.endswith("+w"):
            return self.with_constant(operator[:-2], read, block)
        return self.unary(operator, read, block)

    def readers(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for step in self.steps:
            for name in set(step.reads):
                found[name] = found.get(name, 0) + 1
        return found


def _pattern(random: Random) -> tuple[str, ...]:
    operators = [*_UNARY[:10], *(f"{operator}+w" for operator in (*_CONSTANT, "MatMul", "LayerNormalization"))]
    return tuple(random.choice(operators) for _ in range(random.randint(2, 4)))


def random_model(random: Random, *, samples: int, dead: bool, repeated: bool) -> RandomModel:
    """Return a valid model of 8 to 40 nodes. Raises UnfitError where the dice gave none.

    ``dead``: it has nodes that nobody reads. ``repeated``: a pattern stands in it several times.
    """
    build = _Builder(random, samples)
    drawn = np.random.Generator(np.random.PCG64(random.getrandbits(63)))
    scales = random.sample([0.5, 1.0, 4.0], samples) if samples > 1 else [1.0]
    inputs = ("x", "y")[: random.choice([1, 1, 2])]
    for name in inputs:
        value = drawn.standard_normal((samples, ROWS, COLUMNS)) * np.reshape(scales, (-1, 1, 1))
        build.good[name] = value.astype(np.float32)
    pool, current, size = list(inputs), "x", random.randint(8, 34)
    pattern, left = _pattern(random), random.randint(2, 4) if repeated else 0
    instances = 0
    for _ in range(400):
        if len(build.steps) >= size and not left:
            break
        given = _grown(build, current, pool)
        if left and random.random() < 0.2:
            made, given = current, None
            for operator in pattern:
                made = build.one(operator, made, instances) or ""
                if not made:
                    raise UnfitError("the pattern leaves the bounds")
                pool.append(made)
            given, instances, left = made, instances + 1, left - 1
        if given:
            pool.append(given)
            current = given if random.random() < 0.9 else random.choice(pool)
    if left or len(build.steps) < 8:
        raise UnfitError("too few nodes")
    outputs = _outputs(build, pool)
    if dead:
        _add_dead(build, pool)
    if len(build.steps) > 40:
        raise UnfitError("too many nodes")
    return _written(build, inputs, outputs)


def _grown(build: _Builder, current: str, pool: list[str]) -> str | None:
    random, dice = build.random, build.random.random()
    if dice < 0.38:
        return build.unary(random.choice(_UNARY), current)
    if dice < 0.62:
        return build.with_constant(random.choice((*_CONSTANT, "MatMul", "MatMul", "LayerNormalization")), current)
    if dice < 0.68:
        mean = build.add("ReduceMean", [current])
        return build.add(random.choice(("Sub", "Add", "Mul")), [current, mean]) if mean else None
    return build.add(random.choice(_BINARY), [current, random.choice(pool)])


def _outputs(build: _Builder, pool: list[str]) -> tuple[str, ...]:
    """Choose one to three outputs; what else nobody reads is added up, so that nothing is dead."""
    random, wanted = build.random, build.random.choice([1, 1, 2, 3])
    read = build.readers()
    build.steps = [step for step in build.steps if step.gives in read or step.gives not in build.constant]
    unread = [step.gives for step in build.steps if step.gives not in read]
    full = [name for name in unread if build.good[name].shape[1:] == (ROWS, COLUMNS)]
    for name in [name for name in unread if name not in full]:  # a reduction that nothing came of
        if not full or not (sum_ := build.add("Add", [full.pop(), name])):
            raise UnfitError("what nobody reads cannot be added")
        full.append(sum_)
    while len(full) > wanted:
        sum_ = build.add("Add", [full.pop(), full.pop()])
        if not sum_:
            raise UnfitError("the sum leaves the bounds")
        full.append(sum_)
    inner = [name for name in pool if name in build.made_by and name not in full]
    if len(full) < wanted and inner and random.random() < 0.5:
        full.append(random.choice(inner))
    return tuple(full)


def _add_dead(build: _Builder, pool: list[str]) -> None:
    wanted, made = build.random.randint(1, 3), 0
    read = build.random.choice(pool)
    for _ in range(30):
        gives = build.unary(build.random.choice(_UNARY), read)
        if not gives:
            continue
        step = build.steps.pop()  # somewhere after what it reads
        earliest = next((at + 1 for at, one in enumerate(build.steps) if one.gives == read), 0)
        build.steps.insert(build.random.randint(earliest, len(build.steps)), step)
        made += 1
        if made == wanted:
            return
        read = gives if build.random.random() < 0.4 else build.random.choice(pool)
    raise UnfitError("no dead nodes")


def _written(build: _Builder, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> RandomModel:
    nodes: list[NodeProto] = []
    blocks: dict[int, list[str]] = {}
    read = build.readers()
    for at, step in enumerate(build.steps):
        name = f"{step.operator}_{at}"
        attributes = _ATTRIBUTES.get(step.operator, {})
        nodes.append(helper.make_node(step.operator, step.reads, [step.gives], name=name, **attributes))
        if step.block >= 0:
            blocks.setdefault(step.block, []).append(name)
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info(name, 1, [ROWS, COLUMNS]) for name in inputs],
        [helper.make_tensor_value_info(name, 1, [ROWS, COLUMNS]) for name in outputs],
        [numpy_helper.from_array(build.good[name], name) for name in build.weights if name in read],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = {name: build.good[name] for name in inputs}
    known = {*given, *(name for name in build.weights if name in read), *(step.gives for step in build.steps)}
    good = {name: value for name, value in build.good.items() if name in known}
    constant = frozenset(build.constant & known)
    return RandomModel(model, given, good, constant, tuple(map(tuple, blocks.values())), build.samples)
