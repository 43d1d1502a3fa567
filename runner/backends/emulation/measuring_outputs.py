"""Adds scalar outputs that measure each layer's error and range, nested graphs included."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Sequence, Tuple

from runner.backends.nested_graphs import bodies

_FLOAT, _INT64 = 1, 7
UNMEASURED = -1.0
"""What a gauge shows in a branch that was not taken; all others show magnitudes."""


@dataclass(frozen=True)
class Wanted:
    """``low``: an element type, ``largest``: its largest number. Graphs go by their number in reading order.

    ``layers``: (index of a layer, its graph, an output of its node), to be copied and rounded. ``beside``: (index of a
    layer, its graph, a tensor that it makes, what stands beside that in low precision). ``tensors``: (graph, name) of
    which the range is wanted. ``clamped``: weights with values beyond the range of the low type.
    """

    low: int
    largest: float
    layers: Sequence[Tuple[int, int, str]]
    beside: Sequence[Tuple[int, int, str, str]]
    tensors: Sequence[Tuple[int, str]]
    clamped: FrozenSet[str]


@dataclass(frozen=True)
class Seen:
    """Float tensors that are seen in a graph, and which of them are weights."""

    floats: FrozenSet[str]
    weights: FrozenSet[str]


@dataclass(frozen=True)
class Gauge:
    """An output ``name`` that measures something; ``kind``: what, ``of``: which layer, tensor or node."""

    name: str
    kind: str
    of: int | str


class Additions:
    """Collects nodes and gauges for one graph; names of what they make begin with ``stem``."""

    def __init__(self, stem: str) -> None:
        from onnx import helper

        self.helper, self._stem = helper, stem
        self._numbers = iter(range(1 << 30))
        self.nodes: List[Any] = []
        self.gauges: List[Gauge] = []

    def name(self) -> str:
        """Return a new name."""
        return f"{self._stem}_{next(self._numbers)}"

    def add(self, op: str, inputs: List[str], **attributes: Any) -> str:
        """Add a node and return its output."""
        output = self.name()
        self.nodes.append(self.helper.make_node(op, inputs, [output], **attributes))
        return output

    def gauge(self, kind: str, of: int | str, scalar: str) -> None:
        """Add a gauge that shows a tensor of one element."""
        self.gauges.append(Gauge(self.add("Reshape", [scalar, "winnow__one"]), kind, of))


def instrumented(model: Any, wanted: Wanted) -> List[Gauge]:
    """Add gauges to a model whose types were inferred, in place, and return them: scalars, or one for each iteration.

    Kinds: error (of a layer, by its index) and largest (of "GRAPH/TENSOR"). Bodies of other owners than If, Loop and
    Scan are left alone.
    """
    gauges = _instrument(model.graph, wanted, iter(range(1 << 30)), Seen(frozenset(), frozenset()))
    add_constants(model, {"tiny": 1e-30, "largest": wanted.largest, "least": -wanted.largest}, gauges)
    return gauges


def add_constants(model: Any, constants: Mapping[str, float], gauges: Sequence[Gauge]) -> None:
    """Add what all gauges read, and make them outputs of the model."""
    from onnx import helper

    tensors = [helper.make_tensor(f"winnow__{name}", _FLOAT, [], [value]) for name, value in constants.items()]
    model.graph.initializer.extend([*tensors, helper.make_tensor("winnow__one", _INT64, [1], [1])])
    model.graph.output.extend(helper.make_empty_tensor_value_info(gauge.name) for gauge in gauges)


def _instrument(graph: Any, wanted: Wanted, numbers: Iterator[int], outer: Seen) -> List[Gauge]:
    """Add gauges to a graph and those below it; they are no outputs of it yet."""
    number = next(numbers)
    one = _Instrument(graph, wanted, number, outer)
    makers = {name: node for node in graph.node for name in node.output if name}
    for index, at, name in wanted.layers:
        if at == number and name in makers:
            one.layer(index, makers[name])
    for index, at, name, other in wanted.beside:
        if at == number:
            one.distance(index, name, other)
    for name in dict.fromkeys(name for at, name in wanted.tensors if at == number):
        one.range(name)
    for node in graph.node:
        for name, body in bodies(node):
            one.gauges += add_owner_outputs(node, name, body, _instrument(body, wanted, numbers, one.seen))
    graph.node.extend(one.nodes)
    return one.gauges


def add_owner_outputs(node: Any, name: str, body: Any, gauges: List[Gauge]) -> List[Gauge]:
    """Make gauges in one of an owner's bodies outputs of the body and of the owner; return those of the owner.

    None of an owner that is no If, Loop or Scan.
    """
    from onnx import helper

    if node.op_type not in ("If", "Loop", "Scan") or node.domain:
        return []
    body.output.extend(helper.make_tensor_value_info(gauge.name, _FLOAT, None) for gauge in gauges)
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


class _Instrument(Additions):
    """Collects what is to be added to one graph. ``outer``: what is seen from outside."""

    def __init__(self, graph: Any, wanted: Wanted, number: int, outer: Seen) -> None:
        super().__init__(f"winnow__{number}")
        self._wanted, self._number = wanted, number
        self._rounded: Dict[str, str] = {}
        values = [*graph.value_info, *graph.output, *graph.input]
        weights = {tensor.name for tensor in graph.initializer if tensor.data_type == _FLOAT}
        own = {value.name for value in values if value.type.tensor_type.elem_type == _FLOAT}
        hidden = {value.name for value in values} | {name for node in graph.node for name in node.output}
        self.seen = Seen((outer.floats - hidden) | own | weights, (outer.weights - hidden) | weights)

    def layer(self, index: int, node: Any) -> None:
        """Add a copy of a node that reads and makes rounded values, and the difference that this makes."""
        made = [name for name in node.output if name in self.seen.floats]
        if not made or any(attribute.HasField("g") for attribute in node.attribute):
            return
        copy = type(node)()
        copy.CopyFrom(node)
        copy.name = self.name()
        for name in node.input:
            if name in self.seen.floats and name not in self._rounded:
                self._rounded[name] = self._narrow(self._clamped(name))
        copy.input[:] = [self._rounded.get(name, name) for name in node.input]
        copy.output[:] = [name and self.name() for name in node.output]
        self.nodes.append(copy)
        for name, low in zip(node.output, copy.output):  # noqa: B905 - equally long; older interpreters
            if name in made:
                self.distance(index, name, self._narrow(low))

    def distance(self, index: int, name: str, low: str) -> None:
        """Add the largest difference of two tensors, relative to the largest value of the first, as a layer's error."""
        if name not in self.seen.floats:
            return
        worst = self._largest(self.add("Sub", [low, name]))
        self.gauge("error", index, self.add("Div", [worst, self.add("Add", [self._largest(name), "winnow__tiny"])]))

    def range(self, name: str) -> None:
        """Add the largest magnitude of a tensor."""
        if name in self.seen.floats:
            self.gauge("largest", f"{self._number}/{name}", self._largest(name))

    def _largest(self, name: str) -> str:
        return self.add("ReduceMax", [self.add("Abs", [name])], keepdims=0)

    def _clamped(self, name: str) -> str:
        """Return a weight as it is converted: what is beyond the range becomes the largest value."""
        if name not in self.seen.weights or name not in self._wanted.clamped:
            return name
        return self.add("Max", [self.add("Min", [name, "winnow__largest"]), "winnow__least"])

    def _narrow(self, name: str) -> str:
        return self.add("Cast", [self.add("Cast", [name], to=self._wanted.low)], to=_FLOAT)
