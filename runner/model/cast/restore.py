"""Weights of raised layers: those of the parent where one is given, else what quantised ones amount to; in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from runner.model import scopes, storage
from runner.model.cast.weights import convert
from runner.model.external import chunks
from runner.model.graph import initializers_of
from runner.model.weights import WeightsWriter

RESTORED = "weights.restored.bin"
"""The file of large restored weights."""
_INSIDE = 1024
_OPSET = 21


def restore_weights(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write weights in a float type.

    ``model``: a structure in its store's folder. ``parent``: another one, or null. ``weights``: [number of the graph,
    name of an initializer or of a DequantizeLinear's output, name of the parent's initializer or null]. ``target``: an
    element type. ``out``: a ModelProto file whose initializers are the results, named ``NUMBER/NAME``; large ones lie
    in `RESTORED` beside the model.
    """
    path, target = Path(args["model"]), int(args["target"])
    model = _read(path)
    graphs = list(scopes.graphs_below(model.graph))
    parent_path = Path(args["parent"]) if args["parent"] else None
    theirs = initializers_of(_read(parent_path).graph) if parent_path else {}
    found = ModelProto()
    with WeightsWriter(path.parent / RESTORED) as writer:
        for number, name, other in args["weights"]:
            if other is not None and parent_path is not None:
                tensor = theirs[other]
                assert isinstance(tensor, TensorProto)
                values = _array(tensor, parent_path.parent)
            else:
                maker = next(node for node in graphs[number].node if name in node.output)
                values = _dequantized(maker, initializers_of(graphs[number]), path.parent)
            made, _ = convert(values, target)
            content = made.tobytes()
            tensor = found.graph.initializer.add(name=f"{number}/{name}", data_type=target, dims=values.shape)
            if len(content) < _INSIDE:
                storage.set_raw(tensor, content)
            else:
                storage.set_reference(tensor, RESTORED, writer.add([content], len(content)), len(content))
    Path(args["out"]).write_bytes(found.SerializeToString())
    return {"count": len(found.graph.initializer)}


def _dequantized(node: NodeProto, constants: Mapping[str, Any], folder: Path) -> Any:
    """Return what a DequantizeLinear of constants makes, as ONNX defines it."""
    names = [name for name in node.input if name]
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.domain = ""
    inputs = [helper.make_tensor_value_info(name, constants[name].data_type, None) for name in dict.fromkeys(names)]
    output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph([copy], "dequantize", inputs, [output])
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)]))
    feeds = {name: _array(constants[name], folder) for name in names}
    return np.asarray(evaluator.run(None, feeds)[0])


def _array(tensor: TensorProto, folder: Path) -> Any:
    if not storage.is_external(tensor):
        return numpy_helper.to_array(tensor)
    location, offset, _ = storage.reference(tensor)
    whole = TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    length = storage.byte_size(tensor.data_type, tensor.dims) or 0
    storage.set_raw(whole, b"".join(chunks(folder / Path(location).name, offset, length)))
    return numpy_helper.to_array(whole)


def _read(path: Path) -> ModelProto:
    model = ModelProto()
    model.ParseFromString(path.read_bytes())
    return model
