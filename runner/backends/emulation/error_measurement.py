"""Measuring layers: errors and ranges of each, from one run with scalar outputs added.

How much error each layer introduces when it alone runs in low precision: one instrumented run of the whole model.

The model runs in its high precision; beside each layer stands a copy that reads rounded inputs and rounds what it
makes, and the largest difference of the two is taken, relative to the largest value. So an error is seen where it
comes from, not where it arrives. Ranges come from the same run. What a nested graph measures leaves it through
additional outputs of its owner: a branch that was not taken tells nothing, of a loop the worst iteration counts.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from runner.backends import tensor_files
from runner.backends.errors import StageError
from runner.backends.nested_graphs import bodies
from runner.backends.numpy_arrays import to_array
from runner.backends.rounding import unoptimized_session

# Adds scalar outputs that measure each layer's error and range, nested graphs included.

_FLOAT, _INT64 = 1, 7
_HALVES = (10, 16)
UNMEASURED = -1.0
"""What a gauge shows in a branch that was not taken; all others show magnitudes."""


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

    def copy(self, node: Any, reads: Mapping[str, str]) -> Any:
        """Add a copy of a node that reads these tensors in place of its own, and return it."""
        copy = type(node)()
        copy.CopyFrom(node)
        copy.name = self.name()
        copy.input[:] = [reads.get(name, name) for name in node.input]
        copy.output[:] = [name and self.name() for name in node.output]
        self.nodes.append(copy)
        return copy

    def gauge(self, kind: str, of: int | str, scalar: str) -> None:
        """Add a gauge that shows a tensor of one element."""
        self.gauges.append(Gauge(self.add("Reshape", [scalar, "winnow__one"]), kind, of))


def add_constants(model: Any, constants: Mapping[str, float], gauges: Sequence[Gauge]) -> None:
    """Add what all gauges read, and make them outputs of the model."""
    from onnx import helper

    tensors = [helper.make_tensor(f"winnow__{name}", _FLOAT, [], [value]) for name, value in constants.items()]
    model.graph.initializer.extend([*tensors, helper.make_tensor("winnow__one", _INT64, [1], [1])])
    model.graph.output.extend(helper.make_empty_tensor_value_info(gauge.name) for gauge in gauges)


def _instrument(
    graph: Any, wanted: Mapping[str, Any], numbers: Iterator[int], outer: _Instrument | None = None
) -> List[Gauge]:
    """Add gauges to a graph and those below it; they are no outputs of it yet. ``wanted``: arguments of `introduced`.

    Kinds: error (of a layer, by its index) and largest (of "GRAPH/TENSOR"). Bodies of other owners than If, Loop and
    Scan are left alone.
    """
    number = next(numbers)
    one = _Instrument(graph, wanted, number, outer)
    makers = {name: node for node in graph.node for name in node.output if name}
    for index, at, name in wanted["layers"] if wanted.get("beside") is None else ():
        if at == number and name in makers:
            one.layer(index, makers[name])
    for index, at, name, other in wanted.get("beside") or ():
        if at == number:
            one.distance(index, name, other)
    for name in dict.fromkeys(name for at, name in wanted["tensors"] if at == number):
        one.range(name)
    for node in graph.node:
        for name, body in bodies(node):
            one.gauges += add_owner_outputs(node, name, body, _instrument(body, wanted, numbers, one))
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

    def __init__(self, graph: Any, wanted: Mapping[str, Any], number: int, outer: _Instrument | None) -> None:
        super().__init__(f"winnow__{number}")
        self._wanted, self._number = wanted, number
        self._rounded: Dict[str, str] = {}
        own = {name: 0 for node in graph.node for name in node.output}
        own.update({tensor.name: tensor.data_type for tensor in graph.initializer})
        for value in (*graph.value_info, *graph.output, *graph.input):
            own[value.name] = value.type.tensor_type.elem_type
        weights = {tensor.name for tensor in graph.initializer if tensor.data_type == _FLOAT}
        self.types: Dict[str, int] = {**(outer.types if outer else {}), **own}
        self.weights: Set[str] = weights | (outer.weights - own.keys() if outer else set())

    def layer(self, index: int, node: Any) -> None:
        """Add a copy of a node that reads and makes rounded values, and the difference that this makes."""
        made = [name for name in node.output if self.types.get(name) == _FLOAT]
        if not made or any(attribute.HasField("g") for attribute in node.attribute):
            return
        for name in node.input:
            if self.types.get(name) == _FLOAT and name not in self._rounded:
                self._rounded[name] = self._narrow(self._clamped(name))
        copy = self.copy(node, self._rounded)
        for name, low in zip(node.output, copy.output):  # noqa: B905 - equally long; older interpreters
            if name in made:
                self.distance(index, name, self._narrow(low))

    def distance(self, index: int, name: str, low: str) -> None:
        """Add the largest difference of two tensors, relative to the largest value of the first, as a layer's error."""
        if self.types.get(name) in _HALVES:
            name, low = (self.add("Cast", [one], to=_FLOAT) for one in (name, low))
        elif self.types.get(name) != _FLOAT:
            return
        worst = self._largest(self.add("Sub", [low, name]))
        self.gauge("error", index, self.add("Div", [worst, self.add("Add", [self._largest(name), "winnow__tiny"])]))

    def range(self, name: str) -> None:
        """Add the largest magnitude of a tensor."""
        dtype = self.types.get(name)
        if dtype in (_FLOAT, *_HALVES):
            wide = self.add("Cast", [name], to=_FLOAT) if dtype in _HALVES else name
            self.gauge("largest", f"{self._number}/{name}", self._largest(wide))

    def _largest(self, name: str) -> str:
        return self.add("ReduceMax", [self.add("Abs", [name])], keepdims=0)

    def _clamped(self, name: str) -> str:
        """Return a weight as it is converted: what is beyond the range becomes the largest value."""
        if name not in self.weights or name not in self._wanted["clamped"]:
            return name
        return self.add("Max", [self.add("Min", [name, "winnow__largest"]), "winnow__least"])

    def _narrow(self, name: str) -> str:
        return self.add("Cast", [self.add("Cast", [name], to=self._wanted["low"])], to=_FLOAT)


def introduced(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``layers``: {index: relative error} (null: not finite), ``ranges``: {"GRAPH/TENSOR": largest magnitude}.

    ``silent``: the tensors of which the range is wanted that no sample made.

    ``args``: ``model`` (in its high precision), ``low`` (element type), ``largest`` (its largest number),
    ``layers``: [[index, number of the graph, an
    output of the node]], ``beside`` (optional): [[index, number of the graph, a tensor, what it is in low precision]]
    in place of rounded copies of layers, ``tensors``: [[number of the graph, name]] of which the range is wanted,
    ``clamped``: weights with values that the low type does not reach, ``samples``: [{input: path}]. Graphs are numbered
    in reading order, outer ones first. Raises StageError (load, infer) where the model cannot be run so.
    """
    import onnx

    path = args["model"]
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    gauges = _instrument(model.graph, args, iter(range(1 << 30)))
    add_constants(model, {"tiny": 1e-30, "largest": args["largest"], "least": -args["largest"]}, gauges)
    session = session_of(model, path)
    worst: Dict[Tuple[str, str], float] = {}
    for sample in args["samples"]:
        shown = measured(session, gauges, sample)
        for gauge in gauges:
            key = gauge.kind, str(gauge.of)
            for number in shown[gauge.name].tolist():
                if number != UNMEASURED:
                    worst[key] = _worst(worst.get(key, number), number)
    layers, ranges = (
        {of: number if math.isfinite(number) else None for (kind, of), number in worst.items() if kind == wanted}
        for wanted in ("error", "largest")
    )
    silent = [str(gauge.of) for gauge in gauges if gauge.kind == "largest" and str(gauge.of) not in ranges]
    return {"layers": layers, "ranges": ranges, "silent": silent}


def session_of(model: Any, path: str) -> Any:
    """Return a session of a model as it is; its weights lie beside ``path``. Raises StageError (load)."""
    try:
        return unoptimized_session(model, path, threads=1)
    except Exception as error:
        raise StageError("load", type(error).__name__, str(error)) from error


def run_session(
    session: Any, names: Sequence[str], sample: Mapping[str, str], more: Mapping[str, Any] = MappingProxyType({})
) -> Dict[str, Any]:
    """Return outputs of a session by name, fed with the files of a sample and ``more``. Raises StageError (infer)."""
    fed = {value.name for value in session.get_inputs()}
    feeds = {name: to_array(tensor_files.read(place)) for name, place in sample.items() if name in fed}
    if not names:
        return {}
    try:
        return dict(zip(names, session.run(list(names), {**feeds, **more})))  # noqa: B905 - as many as are asked for
    except Exception as error:
        raise StageError("infer", type(error).__name__, str(error)) from error


def measured(
    session: Any, gauges: Sequence[Gauge], sample: Mapping[str, str], more: Mapping[str, Any] = MappingProxyType({})
) -> Dict[str, Any]:
    """Return what each gauge shows on one sample, one number for each time that it was passed by; see `run_session`."""
    values = run_session(session, [gauge.name for gauge in gauges], sample, more)
    return {name: value.reshape(-1) for name, value in values.items()}


def _worst(one: float, other: float) -> float:
    return other if math.isnan(other) or other > one else one
