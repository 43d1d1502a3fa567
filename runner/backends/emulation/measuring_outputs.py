"""Adds scalar outputs that measure each layer's error and range, nested graphs included."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterator, List, Tuple

from runner.backends.nested_graphs import bodies

_FLOAT, _INT64 = 1, 7
UNMEASURED = -1.0
"""What a gauge shows in a branch that was not taken; all others show magnitudes."""


@dataclass(frozen=True)
class Wanted:
    """``low``: an element type, ``largest``: its largest number.

    ``layers``: number of a graph -> (index of a layer, an output of its node).

    ``tensors``: number of a graph -> names of which the range is wanted. ``clamped``: weights with values beyond the
    range of the low type. ``beside``: number of a graph -> (index of a layer, a tensor that it makes, what stands
    beside that in low precision); None: layers are copied and rounded.
    """

    low: int
    largest: float
    layers: Dict[int, List[Tuple[int, str]]]
    tensors: Dict[int, List[str]]
    clamped: FrozenSet[str]
    beside: Dict[int, List[Tuple[int, str, str]]] | None = None


@dataclass(frozen=True)
class Seen:
    """Float tensors that are seen in a graph, and which of them are weights."""

    floats: FrozenSet[str]
    weights: FrozenSet[str]


@dataclass(frozen=True)
class Gauge:
    """An output ``name`` of kind error or largest. ``of``: the layer's index, or "GRAPH/TENSOR"."""

    name: str
    kind: str
    of: int | str


def instrumented(model: Any, wanted: Wanted) -> List[Gauge]:
    """Add gauges to a model whose types were inferred, in place, and return them: scalars, or one for each iteration.

    Bodies of other owners than If, Loop and Scan are left alone.
    """
    from onnx import helper

    numbers = iter(range(1 << 30))
    gauges = _instrument(model.graph, wanted, numbers, Seen(frozenset(), frozenset()))
    largest = wanted.largest
    constants = {"tiny": 1e-30, "largest": largest, "least": -largest}
    for name, value in constants.items():
        model.graph.initializer.append(helper.make_tensor(f"winnow__{name}", _FLOAT, [], [value]))
    model.graph.initializer.append(helper.make_tensor("winnow__one", _INT64, [1], [1]))
    for gauge in gauges:
        model.graph.output.append(helper.make_empty_tensor_value_info(gauge.name))
    return gauges


def _instrument(graph: Any, wanted: Wanted, numbers: Iterator[int], outer: Seen) -> List[Gauge]:
    """Add gauges to a graph and those below it; they are no outputs of it yet."""
    from onnx import helper

    number = next(numbers)
    one = _Instrument(graph, wanted, number, outer)
    makers = {name: node for node in graph.node for name in node.output if name}
    for index, name in wanted.layers.get(number, ()) if wanted.beside is None else ():
        if name in makers:
            one.layer(index, makers[name])
    for place, (index, name, other) in enumerate((wanted.beside or {}).get(number, ())):
        one.distance(index, name, other, f"winnow__{number}_beside_{place}")
    for name in wanted.tensors.get(number, ()):
        one.range(name)
    gauges = one.gauges
    for node in graph.node:
        for name, body in bodies(node):
            inner = _instrument(body, wanted, numbers, one.seen)
            if node.op_type in ("If", "Loop", "Scan") and not node.domain:
                gauges += add_owner_outputs(node, name, body, inner)
    graph.node.extend(one.added)
    if number == 0:
        return gauges
    for gauge in gauges:
        graph.output.append(helper.make_tensor_value_info(gauge.name, _FLOAT, None))
    return gauges


def add_owner_outputs(node: Any, name: str, body: Any, gauges: List[Gauge]) -> List[Gauge]:
    """Give an owner outputs for the gauges of one of its bodies, which are its last outputs."""
    from onnx import helper

    if node.op_type == "If":
        for attribute in node.attribute:
            if attribute.name in ("then_branch", "else_branch") and attribute.name != name:
                for gauge in gauges:
                    silent = helper.make_tensor("value", _FLOAT, [1], [UNMEASURED])
                    attribute.g.node.append(helper.make_node("Constant", [], [f"{gauge.name}__not"], value=silent))
                    attribute.g.output.append(helper.make_tensor_value_info(f"{gauge.name}__not", _FLOAT, None))
    for attribute in node.attribute:
        # a Scan states an axis and a direction for each of its outputs
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            attribute.ints.extend([0] * len(gauges))
    made = [Gauge(f"{gauge.name}__out", gauge.kind, gauge.of) for gauge in gauges]
    # trailing outputs that nobody reads may have been omitted
    before = len(body.output) - len(gauges) - (node.op_type == "Loop")
    node.output.extend([""] * (before - len(node.output)))
    node.output.extend(gauge.name for gauge in made)
    return made


class _Instrument:
    """Collects what is to be added to one graph. ``outer``: what is seen from outside."""

    def __init__(self, graph: Any, wanted: Wanted, number: int, outer: Seen) -> None:
        from onnx import helper

        self._helper = helper
        self._low = wanted.low
        self._beyond = wanted.clamped
        self._number = number
        self._stem = f"winnow__{number}"
        self._rounded: Dict[str, str] = {}
        self.added: List[Any] = []
        self.gauges: List[Gauge] = []
        values = [*graph.value_info, *graph.output, *graph.input]
        weights = {tensor.name for tensor in graph.initializer if tensor.data_type == _FLOAT}
        own = {value.name for value in values if value.type.tensor_type.elem_type == _FLOAT}
        hidden = {value.name for value in values} | {name for node in graph.node for name in node.output}
        self.seen = Seen((outer.floats - hidden) | own | weights, (outer.weights - hidden) | weights)
        self._known: Dict[str, str] = {}

    def layer(self, index: int, node: Any) -> None:
        """Add a copy of a node that reads and makes rounded values, and the difference that this makes."""
        made = [name for name in node.output if name in self.seen.floats]
        if not made or any(attribute.HasField("g") for attribute in node.attribute):
            return
        copy = type(node)()
        copy.CopyFrom(node)
        copy.name = f"{self._stem}_{index}"
        for at, name in enumerate(node.input):
            if name in self.seen.floats:
                if name not in self._rounded:
                    stem = f"{self._stem}_rounded_{len(self._rounded)}"
                    self._rounded[name] = self._narrow(self._clamped(name, stem), stem)
                copy.input[at] = self._rounded[name]
        copy.output[:] = [name and f"{self._stem}_{index}_{at}" for at, name in enumerate(node.output)]
        self.added.append(copy)
        for at, name in enumerate(node.output):
            if name in made:
                stem = f"{self._stem}_{index}_{at}"
                self.distance(index, name, self._narrow(stem, f"{stem}__low"), stem)

    def distance(self, index: int, name: str, low: str, stem: str) -> None:
        """Add the largest difference of two tensors, relative to the largest value of the first, as a layer's error."""
        if name not in self.seen.floats:
            return
        distance = self._add("Abs", [self._add("Sub", [low, name], f"{stem}__difference")], f"{stem}__distance")
        worst = self._add("ReduceMax", [distance], f"{stem}__worst", keepdims=0)
        size = self._add("Abs", [name], f"{stem}__size")
        scale = self._add("ReduceMax", [size], f"{stem}__scale", keepdims=0)
        divisor = self._add("Add", [scale, "winnow__tiny"], f"{stem}__divisor")
        self._gauge(self._add("Div", [worst, divisor], f"{stem}__quotient"), "error", index)

    def range(self, name: str) -> None:
        """Add the largest magnitude of a tensor."""
        if name not in self.seen.floats or name in self._known:
            return
        stem = self._known[name] = f"{self._stem}_range_{len(self._known)}"
        size = self._add("Abs", [name], f"{stem}__size")
        self._gauge(self._add("ReduceMax", [size], f"{stem}__most", keepdims=0), "largest", f"{self._number}/{name}")

    def _gauge(self, scalar: str, kind: str, of: int | str) -> None:
        self.gauges.append(Gauge(self._add("Reshape", [scalar, "winnow__one"], f"{scalar}__gauge"), kind, of))

    def _add(self, op: str, inputs: List[str], output: str, **attributes: Any) -> str:
        self.added.append(self._helper.make_node(op, inputs, [output], **attributes))
        return output

    def _clamped(self, name: str, stem: str) -> str:
        """Return a weight as it is converted: what is beyond the range becomes the largest value."""
        if name not in self.seen.weights or name not in self._beyond:
            return name
        below = self._add("Min", [name, "winnow__largest"], f"{stem}__below")
        return self._add("Max", [below, "winnow__least"], f"{stem}__clamped")

    def _narrow(self, name: str, to: str) -> str:
        self._add("Cast", [name], f"{to}__narrow", to=self._low)
        return self._add("Cast", [f"{to}__narrow"], to, to=_FLOAT)
