"""Random models of real operators, an imagined target with a fault that judges any part of them in memory, and a check.

The check stands in for the target in real runs: the candidate is rewritten to be wrong by the same rules, and run by
ONNX Runtime, which optimizes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TypeProto, helper, numpy_helper

from benchmarks import session
from runner.model.graph.cut import Expose, exposed, splice
from runner.model.graph.graph_index import Graph, Node

Array = NDArray[np.float32]
ROWS, COLUMNS = 4, 8
LEAST, MOST = 0.02, 500.0
"""The largest absolute value of a tensor lies between these, in each sample."""
NOT_NEGATIVE = frozenset({"Abs", "Relu", "Sigmoid", "Exp", "Softmax", "Sqrt"})
BOUNDED = frozenset({"Sigmoid", "Tanh", "Softsign", "Softmax"})
_PLAIN = ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Softsign", "HardSwish", "LeakyRelu", "Elu", "Softmax")
_UNARY = (*_PLAIN, "Sqrt", "Exp")
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
    ``constant`` tensors, which no input reaches.
    """

    model: ModelProto
    inputs: Mapping[str, Array]
    good: Mapping[str, Array]
    constant: frozenset[str]
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

    def add(self, operator: str, reads: Sequence[str]) -> str | None:
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
        self.steps.append(_Step(operator, tuple(reads), name))
        if constant:
            self.constant.add(name)
        return name

    def unary(self, operator: str, read: str) -> str | None:
        before = self.made_by.get(read, "")
        if (operator == "Sqrt" and before not in NOT_NEGATIVE) or (operator == "Exp" and before not in BOUNDED):
            return None
        return self.add(operator, [read])

    def with_constant(self, operator: str, read: str) -> str | None:
        if operator == "MatMul":
            weight = self.weight((COLUMNS, COLUMNS), 0, 0)
            if self.random.random() < 0.2:  # a weight that is computed
                weight = self.add("Mul", [weight, self.weight((COLUMNS,), 0.5, 1.5)]) or weight
            return self.add(operator, [read, weight])
        if operator == "LayerNormalization":
            scale, bias = self.weight((COLUMNS,), 0.5, 1.5), self.weight((COLUMNS,), -0.5, 0.5)
            return self.add(operator, [read, scale, bias])
        shape = (COLUMNS,) if self.random.random() < 0.7 else ()
        return self.add(operator, [read, self.weight(shape, 0.4, 1.9)])

    def one(self, operator: str, read: str) -> str | None:
        if operator.endswith("+w"):
            return self.with_constant(operator[:-2], read)
        return self.unary(operator, read)

    def readers(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for step in self.steps:
            for name in set(step.reads):
                found[name] = found.get(name, 0) + 1
        return found


def _pattern(random: Random) -> tuple[str, ...]:
    operators = [*_PLAIN, *(f"{operator}+w" for operator in (*_CONSTANT, "MatMul", "LayerNormalization"))]
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
    for _ in range(400):
        if len(build.steps) >= size and not left:
            break
        given = _grown(build, current, pool)
        if left and random.random() < 0.2:
            made, given = current, None
            for operator in pattern:
                made = build.one(operator, made) or ""
                if not made:
                    raise UnfitError("the pattern leaves the bounds")
                pool.append(made)
            given, left = made, left - 1
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
    weights = [name for name in build.weights if name in build.readers()]
    graph = helper.make_graph(
        [
            helper.make_node(
                step.operator, step.reads, [step.gives], f"{step.operator}_{at}", **_ATTRIBUTES.get(step.operator, {})
            )
            for at, step in enumerate(build.steps)
        ],
        "random",
        [helper.make_tensor_value_info(name, 1, [ROWS, COLUMNS]) for name in inputs],
        [helper.make_tensor_value_info(name, 1, [ROWS, COLUMNS]) for name in outputs],
        [numpy_helper.from_array(build.good[name], name) for name in weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    known = {*inputs, *weights, *(step.gives for step in build.steps)}
    good = {name: value for name, value in build.good.items() if name in known}
    given = {name: build.good[name] for name in inputs}
    return RandomModel(model, given, good, frozenset(build.constant & known), build.samples)


TOLERANCE = 0.01
"""How far a tensor may be off, as a part of its largest value."""
LARGEST = 1e300
Errors = NDArray[np.float64]
Samples = Literal["first", "worst"]
"""Which sample a check speaks of: the first one that fails (a command is called for each), or the worst of all."""


@dataclass(frozen=True)
class Wrong:
    """How a kernel is wrong: by a factor, or only by what lies beyond a limit."""

    slope: float
    limit: float | None = None

    def of(self, value: Array) -> Array:
        """Return what the kernel makes of a right value."""
        if self.limit is None:
            return value * np.float32(1 + self.slope)
        return value + np.float32(self.slope) * np.maximum(value - np.float32(self.limit), 0)


@dataclass(frozen=True)
class Rules:
    """What is wrong with a target.

    ``kernels``: by the name of a node. ``fusion``: operators of a chain that it replaces by one kernel, which is wrong
    by ``fused``, wherever the chain's inner tensors are read by nobody else and are no outputs of the candidate. What
    gives a constant is folded before that, and is in no chain.
    """

    kernels: Mapping[str, Wrong] = field(default_factory=dict)
    fusion: tuple[str, ...] = ()
    fused: Wrong | None = None

    def wrong(self, nodes: Sequence[Node], outputs: Collection[str], constant: Collection[str]) -> dict[str, Wrong]:
        """Return by output tensor how a candidate's nodes are wrong."""
        found = {node.outputs[0]: self.kernels[node.name] for node in nodes if node.name in self.kernels}
        if self.fused:
            chains = fused(self.fusion, nodes, outputs, constant)
            found.update((chain[-1].outputs[0], self.fused) for chain in chains)
        return found


def fused(
    operators: Sequence[str], nodes: Iterable[Node], outputs: Collection[str], constant: Collection[str]
) -> list[tuple[Node, ...]]:
    """Return the chains of a candidate that a runtime fuses, none of which shares a node with another."""
    readers: dict[str, list[Node]] = {}
    every = [node for node in nodes if node.outputs[0] not in constant]
    for node in every:
        for name in set(node.inputs):
            readers.setdefault(name, []).append(node)
    taken: set[int] = set()
    found = []
    for first in every:
        chain = [first] if first.op_type == operators[0] else []
        while chain and len(chain) < len(operators):
            inner = chain[-1].outputs[0]
            after = readers.get(inner, [])
            fits = len(after) == 1 and inner not in outputs and after[0].op_type == operators[len(chain)]
            chain = [*chain, after[0]] if fits else []
        if chain and taken.isdisjoint(node.index for node in chain):
            taken.update(node.index for node in chain)
            found.append(tuple(chain))
    return found


@dataclass(frozen=True)
class Judged:
    """What a check says: whether a candidate fails, and its error in tolerances."""

    fails: bool
    measure: float


@dataclass(frozen=True, eq=False)
class Target:
    """Evaluates candidates of one model."""

    made: RandomModel
    rules: Rules = field(default_factory=Rules)
    samples: Samples = "worst"

    @property
    def graph(self) -> Graph:
        """The model's index."""
        return self.made.graph

    def cut(self, keep: Collection[int], expose: Expose = "frontier") -> Judged:
        """Judge a set of nodes, fed good values, at what it hands out."""
        indices = sorted(keep)
        return self._judged(indices, exposed(self.graph, indices, expose))

    def splice(self, keep: Collection[int], parts: Sequence[Collection[int]] = ()) -> Judged:
        """Judge the whole model at its own outputs, with good values in place of what the nodes give that are gone.

        ``parts``: nothing is fused across their borders.
        """
        gone = {node.index for node in self.graph.nodes}.difference(keep)
        made = splice(self.graph, gone)
        given = [name for node in made.front for name in node.output]
        return self._judged(list(made.keep), exposed(self.graph, made.keep, "own", given, made.shown), parts)

    def errors(self, keep: Sequence[int], outputs: Collection[str], wrong: Mapping[str, Wrong]) -> Errors:
        """Return the error of a candidate by sample, in tolerances: that of its worst output."""
        worst = np.zeros(self.made.samples)
        made = self._computed(keep, wrong)
        for name in outputs:
            if name in made:
                worst = np.maximum(worst, self._error(name, made[name]))
        return worst

    def _judged(self, keep: Sequence[int], outputs: Sequence[str], parts: Sequence[Collection[int]] = ()) -> Judged:
        nodes, part_of = self.graph.nodes, {index: at for at, part in enumerate(parts, 1) for index in part}
        crossing = {
            name
            for index in keep
            for name in nodes[index].inputs
            if part_of.get(self.graph.producers.get(name, -1), 0) != part_of.get(index, 0)
        }
        wrong = self.rules.wrong([nodes[index] for index in keep], crossing.union(outputs), self.made.constant)
        return judged(self.errors(keep, outputs, wrong), self.samples)

    def _computed(self, keep: Sequence[int], wrong: Mapping[str, Wrong]) -> dict[str, Array]:
        """Compute what differs from the good values."""
        made: dict[str, Array] = {}
        good = self.made.good
        with np.errstate(all="ignore"):
            for index in keep:
                node = self.graph.nodes[index]
                name = node.outputs[0]
                changed = any(read in made for read in node.inputs)
                if changed:
                    reads = self.made.reads[index]
                    value = KERNELS[node.op_type](*[made[read] if read in made else good[read] for read in reads])
                elif name in wrong:
                    value = good[name]
                else:
                    continue
                made[name] = wrong[name].of(value) if name in wrong else value
        return made

    def _error(self, name: str, value: Array) -> Errors:
        shape = (1 if name in self.made.constant else self.made.samples, -1)
        return errors(value.reshape(shape), self.made.good[name].reshape(shape))


def errors(found: Array, good: Array) -> Errors:
    """Return how far rows are off, in tolerances."""
    with np.errstate(all="ignore"):
        error = (np.abs(found - good).max(1) / np.abs(good).max(1)).astype(np.float64) / TOLERANCE
    return np.where(np.isfinite(error), error, LARGEST)


def judged(errors: Errors, samples: Samples) -> Judged:
    """Return what a check says of the errors by sample."""
    if samples == "worst":
        worst = float(errors.max())
        return Judged(worst > 1, worst)
    failing = np.flatnonzero(errors > 1)
    told = float(errors[failing[0]] if failing.size else errors[-1])
    return Judged(told > 1, told)


Values = Mapping[str, NDArray[np.float32]]


def checked(
    rules: Rules,
    constant: frozenset[str],
    model: str,
    inputs: Sequence[Values],
    expected: Sequence[Values],
    *,
    measures: bool,
) -> dict[str, object]:
    """Return the verdict on a candidate; with its error in tolerances: that of the worst output and sample."""
    loaded = session(faulty(Path(model), rules, constant))
    found = [0.0]
    for feeds, good in zip(inputs, expected, strict=True):
        names = [one.name for one in loaded.get_outputs() if one.name in good]
        made = loaded.run(names, {one.name: feeds[one.name] for one in loaded.get_inputs()})
        for name, value in zip(names, made, strict=True):
            found.append(errors(value.reshape(1, -1), good[name].reshape(1, -1)).item())
    told = judged(np.array(found), "worst")
    return {"outcome": "fail" if told.fails else "pass"} | ({"measure": told.measure} if measures else {})


def faulty(path: Path, rules: Rules, constant: frozenset[str]) -> ModelProto:
    """Return a candidate as the target computes it."""
    graph = Graph.load(path)
    wrong = rules.wrong(graph.nodes, graph.output_set, constant)
    proto = graph.model
    nodes: list[NodeProto] = []
    for node in proto.graph.node:
        how = wrong.get(node.output[0])
        nodes.append(node)
        if how:
            name, raw = node.output[0], f"{node.output[0]}_raw"
            node.output[0] = raw
            nodes += _wrong(how, raw, name)
    made = deepcopy(proto)
    made.graph.ClearField("node")
    made.graph.node.extend(nodes)
    return made


def _wrong(how: Wrong, raw: str, name: str) -> list[NodeProto]:
    def constant(what: str, value: float) -> NodeProto:
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        return helper.make_node("Constant", [], [f"{name}_{what}"], value=tensor)

    if how.limit is None:
        return [constant("factor", 1 + how.slope), helper.make_node("Mul", [raw, f"{name}_factor"], [name])]
    return [
        constant("limit", how.limit),
        constant("slope", how.slope),
        helper.make_node("Sub", [raw, f"{name}_limit"], [f"{name}_beyond"]),
        helper.make_node("Relu", [f"{name}_beyond"], [f"{name}_relu"]),
        helper.make_node("Mul", [f"{name}_relu", f"{name}_slope"], [f"{name}_more"]),
        helper.make_node("Add", [raw, f"{name}_more"], [name]),
    ]
