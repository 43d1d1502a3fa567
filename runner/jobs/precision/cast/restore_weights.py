"""Weights of raised layers: those of the parent where one is given, else what quantized ones amount to; in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from runner.jobs.precision.cast.convert_weights import convert
from runner.jobs.precision.cast.read_weights import array_of
from runner.model.files.weights_file import WeightsWriter
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.protobuf_edits import copy_of
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS

RESTORED = "weights.restored.bin"
"""The file of large restored weights."""
_INSIDE = 1024
_OPSET = 21
_AGREEING = 0.98
"""The share of values by which a weight is known; the rest may have been rounded in another way."""


def restore_weights(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write weights in a float type.

    ``model``: a structure in its store's folder. ``parent``: another one, or null. ``weights``: [number of the graph,
    name of an initializer or of a DequantizeLinear's output, names of the parent's initializers that it may be].
    ``target``: an element type. ``out``: a ModelProto file whose initializers are the results, named ``NUMBER/NAME``;
    large ones lie in `RESTORED` beside the model. What agrees with no weight of the parent's is what is stored.

    Returns ``taken``: [[number, name]] of the parent's, and ``strangers``: those whose parent has something else.
    """
    path, target = Path(args["model"]), int(args["target"])
    model = ModelProto.FromString(path.read_bytes())
    graphs = list(scopes.graphs_below(model.graph))
    parent_path = Path(args["parent"]) if args["parent"] else None
    theirs = _constants(ModelProto.FromString(parent_path.read_bytes())) if parent_path else {}
    constants, found = _constants(model), ModelProto()
    taken, strangers = [], []
    with WeightsWriter(path.parent / RESTORED) as writer:
        for number, name, others in args["weights"]:
            maker = next((node for node in graphs[number].node if name in node.output), None)
            stored = _stored(maker, constants, name, path.parent)
            values = stored.values
            for other in others:
                assert parent_path is not None
                given = array_of(theirs[other], parent_path.parent)
                agreeing = next((one for one in (given, given.T) if stored.may_be(one)), None)
                if agreeing is not None:
                    values = agreeing
                    taken.append([number, name])
                    break
            else:
                strangers += [[number, name]] if others else []
            made, _ = convert(np.ascontiguousarray(values), target)
            content = made.tobytes()
            tensor = found.graph.initializer.add(name=f"{number}/{name}", data_type=target, dims=values.shape)
            if len(content) < _INSIDE:
                tensor_bytes.set_raw(tensor, content)
            else:
                tensor_bytes.set_reference(tensor, RESTORED, writer.add([content], len(content)), len(content))
    Path(args["out"]).write_bytes(found.SerializeToString())
    return {"taken": taken, "strangers": strangers}


@dataclass(frozen=True)
class _Stored:
    """A weight as it is stored. ``steps``: by how much storing may have moved each value; ``edge``: saturated ones."""

    values: Any
    steps: Any
    edge: Any

    def may_be(self, other: Any) -> bool:
        """Whether storing ``other`` gives this, but for a few values."""
        if other.shape != self.values.shape:
            return False
        if not other.size:
            return True
        with np.errstate(all="ignore"):
            near = np.abs(other.astype(np.float64) - self.values) <= self.steps
        return float(np.mean(near | self.edge)) >= _AGREEING


def _stored(maker: NodeProto | None, constants: Mapping[str, Any], name: str, folder: Path) -> _Stored:
    if maker is None:
        values = array_of(constants[name], folder).astype(np.float32)
        # of fp16, and of bfloat16: one unit in the last place, and what is below the least number
        kind = FLOATS[constants[name].data_type]
        steps = np.abs(values).astype(np.float64) * 2.0 ** (1 - kind.digits) + 1.2e-7
        return _Stored(values, steps, np.abs(values) >= kind.largest)
    values = _dequantized(maker, constants, folder)
    integers = array_of(constants[maker.input[0]], folder)
    ones = _dequantized(maker, constants, folder, integers=np.ones_like(integers))
    zeros = _dequantized(maker, constants, folder, integers=np.zeros_like(integers))
    wide = integers.astype(np.float64)
    return _Stored(values, np.abs(ones - zeros).astype(np.float64) * 0.75, (wide == wide.min()) | (wide == wide.max()))


def _constants(model: ModelProto) -> dict[str, Any]:
    """Return the initializers of all graphs by name; the outermost of a name."""
    found: dict[str, Any] = {}
    for graph in scopes.graphs_below(model.graph):
        for name, tensor in initializers_of(graph).items():
            found.setdefault(name, tensor)
    return found


def _dequantized(node: NodeProto, constants: Mapping[str, Any], folder: Path, integers: Any = None) -> Any:
    """Return what a DequantizeLinear of constants makes, as ONNX defines it; ``integers``: in place of the stored."""
    names = [name for name in node.input if name]
    copy = copy_of(node)
    copy.domain = ""
    inputs = [helper.make_tensor_value_info(name, constants[name].data_type, None) for name in dict.fromkeys(names)]
    output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph([copy], "dequantize", inputs, [output])
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)]))
    feeds = {name: array_of(constants[name], folder) for name in names}
    feeds[names[0]] = feeds[names[0]] if integers is None else integers
    return np.asarray(evaluator.run(None, feeds)[0])
