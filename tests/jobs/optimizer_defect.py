"""A model of which ONNX Runtime's optimizers make an invalid graph, as long as they have that defect."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
from onnx import TensorProto, helper


def defective(path: Path, behind: str | None = None) -> Path:
    """Write a cast, a division and a multiplication; ``behind``: the operator of a node that reads what they make."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT, name="cast"),
        helper.make_node("Div", ["one", "most"], ["scale"], name="div"),
        helper.make_node("Mul", ["wide", "scale"], ["scaled" if behind else "y"], name="mul"),
    ]
    nodes += [helper.make_node(behind, ["scaled"], ["y"], name=behind.lower())] if behind else []
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 4]), ("most", [1, 1]))
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])]
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    graph = helper.make_graph(nodes, "g", inputs, outputs, [one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def loads(model: Path) -> bool:
    """Return whether ONNX Runtime loads a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(str(model), options)
    except Exception:  # noqa: BLE001 - of native code
        return False
    return True
