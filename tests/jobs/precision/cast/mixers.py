"""What tests of mixed models share: initializers in another type, and a run as the model stands."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

from runner.jobs.precision.mixer import Weights
from runner.jobs.precision.prepare_model import convert
from runner.model.graph import scopes

LEVELS = onnxruntime.GraphOptimizationLevel


def tensor(name: str, values: np.ndarray, dtype: int) -> TensorProto:
    made, _ = convert(values, dtype)
    return helper.make_tensor(name, dtype, made.shape, np.asarray(made).tobytes(), raw=True)


def converted(typed: ModelProto) -> Weights:
    """The initializers of a model in the other type, and what it dequantizes of them."""
    graphs = list(scopes.graphs_below(typed.graph))
    held = {one.name: numpy_helper.to_array(one) for one in scopes.initializers(typed)}
    pairs = {name: node for node in scopes.all_nodes(typed.graph.node) for name in node.output}

    def weights(number: int, name: str, dtype: int) -> TensorProto:
        if name in pairs:
            integers, scale, zero = (held[one].astype(np.float32) for one in pairs[name].input)
            return tensor(name, (integers - zero) * scale, dtype)
        stored = next(one for one in graphs[number].initializer if one.name == name)
        return tensor(name, numpy_helper.to_array(stored), dtype)

    return weights


def run(
    model: ModelProto, feeds: dict[str, np.ndarray], level: onnxruntime.GraphOptimizationLevel = LEVELS.ORT_DISABLE_ALL
) -> list[np.ndarray]:
    """Run a model that may take low precision, on those of the feeds that it wants."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    half = {value.name for value in session.get_inputs() if value.type == "tensor(float16)"}
    wanted = {value.name for value in session.get_inputs()}
    given = {name: value.astype(np.float16) if name in half else value for name, value in feeds.items()}
    found: list[np.ndarray] = session.run(None, {name: value for name, value in given.items() if name in wanted})
    return found
