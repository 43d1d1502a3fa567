"""How much error each layer introduces when it alone runs in low precision: one instrumented run of the whole model.

The model runs in its high precision; beside each layer stands a copy that reads rounded inputs and rounds what it
makes, and the largest difference of the two is taken, relative to the largest value. So an error is seen where it
comes from, not where it arrives. Ranges come from the same run.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH100, PTH120
from __future__ import annotations

import math
import os
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from runner.backends import tensors
from runner.backends.arrays import to_array
from runner.backends.errors import StageError

_FLOAT = 1
_LARGEST = {10: 65504.0, 16: 3.3895313892515355e38}


def prepare(args: Dict[str, Any]) -> None:
    """Import the runtime, so that the time of the first call does not hold it."""
    import onnxruntime  # noqa: F401


def introduced(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``layers``: {index: relative error (null: not finite)} and ``ranges``: {tensor: [largest, smallest]}.

    ``args``: ``model`` (in its high precision), ``low`` (element type), ``layers``: [[index, an output of the node]],
    ``tensors``: names whose range is wanted, ``samples``: [{input: path}]. ``smallest`` is the smallest magnitude that
    is not zero. Raises StageError (load, infer) where the model cannot be run so.
    """
    import onnx

    path = args["model"]
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    instrument = _Instrument(model, int(args["low"]))
    makers = {name: node for node in model.graph.node for name in node.output if name}
    for index, name in args["layers"]:
        if name in makers:
            instrument.layer(int(index), makers[name])
    for name in args["tensors"]:
        instrument.range(name)
    instrument.finish()
    names = [*instrument.errors, *(name for pair in instrument.ranges.values() for name in pair)]
    found = _measured(_session(model, path), names, args["samples"])
    layers: Dict[str, Any] = {}
    for name, index in instrument.errors.items():
        number, before = found[name], layers.get(str(index), 0.0)
        layers[str(index)] = None if before is None or not math.isfinite(number) else max(before, number)
    ranges = {name: [_plain(found[name]) for name in pair] for name, pair in instrument.ranges.items()}
    return {"layers": layers, "ranges": ranges}


def _session(model: Any, path: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    folder = os.path.dirname(os.path.abspath(path))
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    providers = ["CPUExecutionProvider"]
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), sess_options=options, providers=providers)
    except Exception as error:
        raise StageError("load", type(error).__name__, str(error)) from error


def _measured(session: Any, names: List[str], samples: Sequence[Mapping[str, str]]) -> Dict[str, float]:
    """Return the worst of each scalar over all samples (the least of what is called smallest)."""
    fed = {value.name for value in session.get_inputs()}
    found: Dict[str, float] = {}
    for sample in samples:
        feeds = {name: to_array(tensors.read(place)) for name, place in sample.items() if name in fed}
        try:
            values = session.run(names, feeds)
        except Exception as error:
            raise StageError("infer", type(error).__name__, str(error)) from error
        for name, value in zip(names, values):  # noqa: B905 - equally long; runs on older interpreters too
            number = float(value) if value.size else 0.0
            worst = min if name.endswith("__smallest") else _worst
            found[name] = number if name not in found else worst(found[name], number)
    return found


def _worst(one: float, other: float) -> float:
    return other if math.isnan(other) or other > one else one


def _plain(number: Any) -> Any:
    return number if number is not None and math.isfinite(number) else None


class _Instrument:
    """Adds copies and measures to a model, in place. ``errors``: {output: layer}; ``ranges``: {tensor: two outputs}."""

    def __init__(self, model: Any, low: int) -> None:
        from onnx import helper

        self._helper = helper
        self._low = low
        self._graph = model.graph
        self._added: List[Any] = []
        self._rounded: Dict[str, str] = {}
        self._outputs: List[str] = []
        self.errors: Dict[str, int] = {}
        self.ranges: Dict[str, Tuple[str, str]] = {}
        self._floats = {
            value.name
            for group in (model.graph.value_info, model.graph.output, model.graph.input)
            for value in group
            if value.type.tensor_type.elem_type == _FLOAT
        }
        self._weights = {tensor.name for tensor in model.graph.initializer if tensor.data_type == _FLOAT}
        self._floats |= self._weights

    def layer(self, index: int, node: Any) -> None:
        """Add a copy of a node that reads and makes rounded values, and the difference that this makes."""
        made = [name for name in node.output if name in self._floats]
        if not made or any(attribute.HasField("g") for attribute in node.attribute):
            return
        copy = type(node)()
        copy.CopyFrom(node)
        copy.name = f"winnow__{index}"
        for at, name in enumerate(node.input):
            if name in self._floats:
                if name not in self._rounded:
                    stem = f"winnow__rounded_{len(self._rounded)}"
                    self._rounded[name] = self._narrow(self._clamped(name, stem), stem)
                copy.input[at] = self._rounded[name]
        copy.output[:] = [name and f"winnow__{index}_{at}" for at, name in enumerate(node.output)]
        self._added.append(copy)
        for at, name in enumerate(node.output):
            if name in made:
                stem = f"winnow__{index}_{at}"
                low = self._narrow(stem, f"{stem}__low")
                distance = self._add("Abs", [self._add("Sub", [low, name], f"{stem}__difference")], f"{stem}__distance")
                worst = self._add("ReduceMax", [distance], f"{stem}__worst", keepdims=0)
                size = self._add("Abs", [name], f"{stem}__size")
                scale = self._add("ReduceMax", [size], f"{stem}__scale", keepdims=0)
                divisor = self._add("Add", [scale, "winnow__tiny"], f"{stem}__divisor")
                self.errors[self._add("Div", [worst, divisor], f"{stem}__error")] = index

    def range(self, name: str) -> None:
        """Add the largest magnitude of a tensor, and the smallest that is not zero."""
        if name not in self._floats or name in self.ranges:
            return
        stem = f"winnow__range_{len(self.ranges)}"
        size = self._add("Abs", [name], f"{stem}__size")
        is_zero = self._add("Equal", [size, "winnow__zero"], f"{stem}__is_zero")
        rest = self._add("Where", [is_zero, "winnow__huge", size], f"{stem}__rest")
        largest = self._add("ReduceMax", [size], f"{stem}__largest", keepdims=0)
        self.ranges[name] = largest, self._add("ReduceMin", [rest], f"{stem}__smallest", keepdims=0)

    def finish(self) -> None:
        """Put what was added into the graph."""
        make = self._helper.make_tensor
        largest = _LARGEST[self._low]
        named = {"zero": 0.0, "huge": 3.0e38, "tiny": 1e-30, "largest": largest, "least": -largest}
        for name, value in named.items():
            self._graph.initializer.append(make(f"winnow__{name}", _FLOAT, [], [value]))
        self._graph.node.extend(self._added)
        for name in [*self.errors, *(name for pair in self.ranges.values() for name in pair)]:
            self._graph.output.append(self._helper.make_tensor_value_info(name, _FLOAT, []))

    def _add(self, op: str, inputs: List[str], output: str, **attributes: Any) -> str:
        self._added.append(self._helper.make_node(op, inputs, [output], **attributes))
        return output

    def _clamped(self, name: str, stem: str) -> str:
        """Return a weight as it is converted: what is beyond the range becomes the largest value."""
        if name not in self._weights:
            return name
        below = self._add("Min", [name, "winnow__largest"], f"{stem}__below")
        return self._add("Max", [below, "winnow__least"], f"{stem}__clamped")

    def _narrow(self, name: str, to: str) -> str:
        self._add("Cast", [name], f"{to}__narrow", to=self._low)
        return self._add("Cast", [f"{to}__narrow"], to, to=_FLOAT)
