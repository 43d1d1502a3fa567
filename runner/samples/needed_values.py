"""Which values of made-up inputs the operators take that have none for some numbers: roots, logarithms, divisions.

A NaN that comes of what was made up is no bug. It does where a node makes it of finite numbers, one of its operands is
out of what its operator takes, by more than rounding, and that operand depends on inputs that were made up. So it does
where the reference refuses to run the node, as integers are not divided by zero. What overflows is another matter, and
so is a zero that rounding may have made. Other values are found in two ways: some ranges are tried, and from the
operand the graph is gone back through, up to the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from runner.model.graph import scopes
from runner.model.graph.graph_index import Graph, Node
from runner.model.values import recorded
from runner.model.values.dtypes import is_integer
from runner.model.values.recorded import TensorFile
from runner.schema.inputs import RandomInputs

Array = np.ndarray[Any, Any]
Span = tuple[float, float]
Spans = Mapping[str, Sequence[float]]

_ANY, _ABOVE, _UNIT = (-math.inf, math.inf), (0.0, math.inf), (-1.0, 1.0)
_TAKES: Mapping[tuple[str, int], tuple[Span, bool]] = {
    **dict.fromkeys([("Sqrt", 0), ("BatchNormalization", 4), ("Pow", 0)], (_ABOVE, True)),
    ("Log", 0): (_ABOVE, False),
    ("Acosh", 0): ((1.0, math.inf), True),
    **dict.fromkeys([("Asin", 0), ("Acos", 0), ("Atanh", 0)], (_UNIT, True)),
    **dict.fromkeys([("Div", 1), ("Mod", 1), ("Reciprocal", 0)], (_ANY, False)),
}
"""(operator, input) -> the numbers that it takes, and whether zero is one of them."""
_MOVES = frozenset(
    {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice", "Split", "Tile", "Cast"}
    | {"ReduceMean", "ReduceMax", "ReduceMin", "Concat", "Gather"}
)
"""Operators whose output lies within the range of their first input (of Concat, of all)."""
_EXACT = _MOVES | {"ReduceSum", "Relu", "Abs", "Neg", "Clip", "Sign", "Floor", "Ceil", "Round", "Max", "Min", "Where"}
"""Operators that make a zero of numbers that are none only where it is meant, and not by rounding."""
_TELLS = frozenset({"Not", "And", "Or", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_TELLS |= {"NonZero", "Size", "Shape"}
"""Operators that tell what is true, or count it: a zero of these is meant, also where what they read was rounded."""
_EPSILON = {TensorProto.FLOAT16: 2.0**-10, TensorProto.BFLOAT16: 2.0**-7, TensorProto.DOUBLE: 2.0**-52}
_ROUNDINGS, _NEAR = 32, 4
"""Roundings that a number may be off by, of the largest that it was made of in so many steps."""
_MARGIN = 0.1
_MOST = 1 << 20
"""Elements of a weight that is looked at."""
_FLOATS: Sequence[Span] = (
    *((0.5, 1.5), (1, 2), (1, 1.00000001), (0.1, 0.9), (10, 11), (100, 101), (-10, 10)),
    *((-1e-3, 1e-3), (1e-3, 2e-3), (-2, -1), (-11, -10)),
)
_INTEGERS: Sequence[Span] = ((1, 8), (0, 2), (0, 1), (1, 2), (2, 3))
_MASKS: Sequence[Span] = ((0, 2), (0, 1), (1, 2))
_FIRST = 3
"""Ranges that are tried before the graph is gone back through."""


@dataclass(frozen=True)
class Run:
    """What the reference made of each tensor. ``values``: of each sample; ``weight``: the array of an initializer.

    ``graph``: the model; the bodies in which a NaN or Inf begins stand beside or in place of their ``owners``.
    ``again``: runs it on other inputs.
    """

    graph: Graph
    values: Sequence[Mapping[str, TensorFile]]
    weight: Callable[[str], Array | None]
    again: Callable[[RandomInputs], Run]
    owners: tuple[str, ...] = ()


def begins(graph: Graph, node: Node, held: Mapping[str, TensorFile]) -> bool:
    """Whether a node makes a NaN or Inf of finite numbers, or does not run on what is known."""
    makes = any(name in held and not held[name].finite for name in node.outputs)
    if held.keys().isdisjoint(node.outputs):
        makes = all(name in held or name in graph.initializers or name in graph.carried for name in node.inputs)
    return makes and all(held[name].finite for name in node.inputs if name in held)


@dataclass(frozen=True)
class Suspect:
    """A node that makes a NaN or Inf of finite numbers, and the operand that is out of what it takes, in a sample."""

    node: Node
    operand: str
    takes: Span
    sample: int


@dataclass(frozen=True)
class NeededValues:
    """One run of a model. ``free``: the inputs whose values are made up; ``masks``: those of which 1 counts."""

    run: Run
    free: Collection[str]
    masks: Collection[str] = ()

    @cached_property
    def suspects(self) -> list[Suspect]:
        """The nodes whose NaN or Inf comes of made-up inputs, in the order of the model."""
        return [
            one
            for at in range(len(self.run.values))
            for node in self.run.graph.nodes
            for one in self._of(node.index, at)
        ]

    @cached_property
    def makers(self) -> tuple[str, ...]:
        """The names of these nodes, and of those that they stand in."""
        return tuple(dict.fromkeys([*(one.node.name for one in self.suspects), *self.run.owners]))

    @cached_property
    def untold(self) -> bool:
        """Whether a node makes a NaN or Inf of finite numbers and no operand says why: graphs in it, or no elements."""
        return any(
            begins(self.run.graph, node, held)
            and (self._is_closed(node) or any(0 in held[name].shape for name in node.inputs if name in held))
            for held in self.run.values
            for node in self.run.graph.nodes
            if not self._reached.isdisjoint(node.inputs)
        )

    def _is_closed(self, node: Node) -> bool:
        """Whether nobody saw what the nodes inside a node make."""
        nests = node.nests or scopes.call_key(self.run.graph.protos[node.index]) in self.run.graph.functions
        return nests and node.name not in self.run.owners

    def is_cured(self, suspect: Suspect) -> bool:
        """Whether a node makes finite numbers in this run; one in a body that is closed does where its owner does."""

        def cured(name: str, held: Mapping[str, TensorFile]) -> bool:
            if name in self.run.graph.producers:
                return name in held and held[name].finite
            return not any(
                self._is_closed(node) and begins(self.run.graph, node, held) for node in self.run.graph.nodes
            )

        return all(cured(name, held) for held in self.run.values for name in suspect.node.outputs)

    def finite(self, suspect: Suspect) -> Array | None:
        """Return which elements of what a node makes are finite; None: that is not known."""
        name = suspect.node.outputs[0]
        held = self.run.values[suspect.sample].get(name) if suspect.sample < len(self.run.values) else None
        return np.isfinite(recorded.read(held).astype(np.float64)) if held and held.structure is None else None

    def inputs_of(self, suspects: Sequence[Suspect]) -> list[str]:
        """Return the made-up inputs that their operands depend on."""
        found, waiting = set[str](), [one.operand for one in suspects]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                maker = self.run.graph.producer(name)
                waiting += maker.inputs if maker else ()
        return [name for name in self.free if name in found]

    def others(self, names: Sequence[str], suspects: Sequence[Suspect]) -> Iterator[Spans]:
        """Yield ranges of these inputs with which the operands may be what their nodes take, the likeliest first."""
        whole = [name for name in names if is_integer(self.run.graph.value_types[name].tensor_type.elem_type)]
        spans = {name: _MASKS if name in self.masks else _INTEGERS if name in whole else _FLOATS for name in names}

        def tried(at: int) -> Spans:
            return {name: list(some[at % len(some)]) for name, some in spans.items()}

        yield from map(tried, range(_FIRST))
        needed: dict[str, Span] = {}
        for one in suspects:  # all other values being as they were
            low, high = one.takes
            inner = (low + _MARGIN, high - _MARGIN)  # what has no end has none then
            aim = (0.5, 2.0) if one.takes == _ANY else inner
            needed |= self._back(one.operand, aim, self.run.values[one.sample], set()) or {}
        if needed:
            yield {name: _as_range(span, name in whole) for name, span in needed.items()}
        yield from map(tried, range(_FIRST, len(_FLOATS)))

    # ---- which nodes

    @cached_property
    def _reached(self) -> set[str]:
        """The tensors that depend on made-up inputs."""
        found = {*self.free}
        for node in self.run.graph.nodes:
            if not found.isdisjoint(node.inputs):
                found.update(node.outputs)
        return found

    def _of(self, index: int, at: int) -> Iterator[Suspect]:
        node, proto, held = self.run.graph.nodes[index], self.run.graph.protos[index], self.run.values[at]
        if node.domain or not begins(self.run.graph, node, held):
            return
        for place, name in enumerate(proto.input):
            takes = self._takes(proto, place)
            if takes and name in self._reached and name in held and self._is_outside(name, held, *takes):
                yield Suspect(node, name, takes[0], at)

    def _takes(self, node: NodeProto, place: int) -> tuple[Span, bool] | None:
        takes = _TAKES.get((node.op_type, place))
        power = self.run.weight(node.input[1]) if takes and node.op_type == "Pow" else None
        if power is not None and (power % 1 == 0).all():
            return (_ANY, False) if (power < 0).any() else None
        return takes

    def _is_outside(self, name: str, held: Mapping[str, TensorFile], takes: Span, zero: bool) -> bool:
        file, made_of = held[name], self._above(name, _NEAR)
        arrays = [one for other in made_of if (one := self._array(other, held)) is not None]
        sizes = [float(np.abs(one).max(initial=0)) for one in arrays]
        value = self._array(name, held)
        if value is None:
            return False
        slack = max(sizes, default=0.0) * _ROUNDINGS * _EPSILON.get(file.dtype, 2.0**-23)
        beyond = float(np.maximum(takes[0] - value, value - takes[1]).max(initial=-math.inf))
        return beyond > slack or (not zero and bool((value == 0).any()) and name not in self._rounded)

    def _above(self, name: str, steps: int) -> set[str]:
        """Return what a tensor was made of in so many steps."""
        maker = self.run.graph.producer(name) if steps else None
        reads = maker.inputs if maker else ()
        return {*reads}.union(*(self._above(one, steps - 1) for one in reads))

    @cached_property
    def _rounded(self) -> set[str]:
        """The tensors in which rounding may make a zero: the others are of whole numbers, or a zero is meant."""
        found, moving = set[str](), self._reached
        types = {name: file.dtype for one in self.run.values for name, file in one.items()}
        for node, proto in zip(self.run.graph.nodes, self.run.graph.protos, strict=True):
            moved = [one for one in node.inputs if one in moving]
            scaled = node.op_type in ("Add", "Sub", "Mul", "Div") and len(proto.input) - len(moved) == 1
            low = any(types.get(name) in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for name in node.outputs)
            exact = (node.op_type in _EXACT or (scaled and not low)) and not node.domain and found.isdisjoint(moved)
            if moved and not exact and node.op_type not in _TELLS:
                found.update(node.outputs)
        return found

    def _array(self, name: str, held: Mapping[str, TensorFile]) -> Array | None:
        file = held.get(name)
        plain = file is not None and file.structure is None
        found = self.run.weight(name) if file is None else recorded.read(file) if plain else None
        if file is None and found is not None and found.size > _MOST:
            return None
        return found.astype(np.float64) if found is not None and found.dtype.kind in "fiub" and found.size else None

    # ---- back through the graph

    def _back(self, name: str, aim: Span, held: Mapping[str, TensorFile], seen: set[str]) -> dict[str, Span] | None:
        """Return ranges of inputs with which a tensor lies within ``aim``, the other values being as they are.

        ``seen``: what was gone through; each tensor is asked once.
        """
        if not aim[0] < aim[1] or name in seen or len(seen) > _DEEPEST:
            return None
        seen.add(name)
        if name in self.free:
            return {name: aim}
        maker = self.run.graph.producer(name)
        if maker is None or maker.domain:
            return None
        proto = self.run.graph.protos[maker.index]
        for place, read in enumerate(proto.input):
            if read in self._reached and (wanted := self._wanted(proto, place, aim, held)):
                found = self._back(read, wanted, held, seen)
                if found:
                    return found
        return None

    def _wanted(self, node: NodeProto, place: int, aim: Span, held: Mapping[str, TensorFile]) -> Span | None:
        """Return what an input must be for the output of a node to lie within ``aim``; None: nobody knows."""
        low, high = aim
        if node.op_type in _MOVES:
            return aim if place == 0 or node.op_type == "Concat" else None
        if node.op_type in ("Relu", "Abs", "Clip"):
            return (max(low, 0.0), high) if node.op_type != "Clip" else aim
        if node.op_type == "Neg":
            return -high, -low
        if node.op_type == "ReduceSum":
            sizes = [math.prod(held[one].shape) for one in (node.input[0], node.output[0]) if one in held]
            count = sizes[0] / max(sizes[-1], 1) if len(sizes) > 1 else 1.0
            return low / max(count, 1.0), high / max(count, 1.0)
        if len(node.input) == 2 and node.input[0] == node.input[1]:
            square = node.op_type == "Mul" and low >= 0
            return (math.sqrt(low), math.sqrt(high)) if square else None
        other = self._array(node.input[1 - place], held) if len(node.input) == 2 else None
        if other is None or not np.isfinite(other).all():
            return None
        least, most = float(other.min()), float(other.max())
        if node.op_type == "Add":
            return low - least, high - most
        if node.op_type == "Sub":
            return (low + most, high + least) if place == 0 else (most - high, least - low)
        if node.op_type in ("Mul", "Div") and place == 0 and least * most > 0:
            if node.op_type == "Div":
                least, most = sorted((1 / least, 1 / most))
            if most < 0:
                low, high, least, most = -high, -low, -most, -least
            return (low / (least if low > 0 else most), high / (most if high > 0 else least))
        return None


_DEEPEST = 100
"""Tensors that are gone back through, at most."""


def _as_range(span: Span, whole: bool) -> list[float]:
    """Return the range of an input, [low, high), that lies within a span."""
    low, high = span
    if math.isinf(low):
        low = high - max(1.0, abs(high)) if math.isfinite(high) else -1.0
    if math.isinf(high):
        high = low + max(1.0, abs(low))
    return [math.ceil(low), max(math.floor(high), math.ceil(low) + 1)] if whole else [low, high]
