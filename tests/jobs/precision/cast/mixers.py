"""What tests of mixed models share: initializers in another type, and a run as the model stands."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto

from runner.jobs.precision.layers import Contrib, Pair, layers, quantized_layers
from runner.jobs.precision.mixer import Mixer
from runner.jobs.precision.prepare_model import convert_weights
from runner.model.graph.low_precision import pairs_of

LEVELS = onnxruntime.GraphOptimizationLevel


def mixer(typed: ModelProto, low: int, keep_io: bool = True, contrib: Contrib | None = None) -> Mixer:
    """What makes mixed models of a model whose tensors' types are known, with the weights that a run makes."""
    pair, pairs = Pair(low, TensorProto.FLOAT), pairs_of(typed.graph)
    found = layers(typed, {}, pair, contrib)
    if low == TensorProto.FLOAT:
        found = quantized_layers(typed, found)
    names = (f"{at}/{name}" for at, some in enumerate(pairs) for name, one in some.items() if one.constant is not None)
    with TemporaryDirectory() as folder:
        path, out = Path(folder) / "typed.onnx", Path(folder) / "weights.onnx"
        path.write_bytes(typed.SerializeToString())
        args = {"model": path, "out": out, "low": low, "high": pair.high, "parent": None}
        convert_weights({**args, "quantized": dict.fromkeys(names, ())})
        weights = {one.name: one for one in ModelProto.FromString(out.read_bytes()).graph.initializer}
    return Mixer(typed, {}, found, pair, weights, keep_io, any(pairs), contrib or {})


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
