"""python -m benchmarks.precision_rivals MODEL FEEDS.npz: what onnxconverter-common's mixed precision raises, as JSON.

And the range rule of NVIDIA's AutoCast: whatever reads or makes a value beyond a limit stays in high precision. Both
are judged like Winnow's own trials: with low precision rounded after every operator.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from runner.backends.rounding import rounded

RTOL = 0.02
DATA_MAX, INIT_MAX = 512.0, 65504.0
"""AutoCast's defaults."""

Feeds = Mapping[str, Any]


def close(good: Sequence[Any], found: Sequence[Any]) -> bool:
    """Whether outputs are finite, and within 2 % of the largest value of the good ones."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(good, found, strict=True)]
    return all(np.isfinite(b).all() and np.abs(a - b).max() <= RTOL * np.abs(a).max() for a, b in pairs if a.size)


def run(model: onnx.ModelProto, feeds: Feeds, *, emulated: bool, path: str = "") -> list[Any]:
    """Run a model; ``emulated``: low precision is rounded after every operator. ``path``: where its weights lie."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    if path:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", path)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    given = (rounded(copy) if emulated else copy).SerializeToString()
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    return list(session.run(None, {name: value for name, value in feeds.items() if name in wanted}))


def beyond_range(model: onnx.ModelProto, feeds: Feeds) -> set[str]:
    """Return the names of the nodes that AutoCast's range rule keeps in high precision."""
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    floats = {
        value.name
        for value in onnx.shape_inference.infer_shapes(model).graph.value_info
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    del probed.graph.output[:]
    probed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in sorted(floats))
    values = dict(zip(sorted(floats), run(probed, feeds, emulated=False), strict=True))
    large = {name for name, value in values.items() if value.size and np.abs(value).max() > DATA_MAX}
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            weight = onnx.numpy_helper.to_array(tensor)
            large |= {tensor.name} if weight.size and np.abs(weight).max() > INIT_MAX else set()
    return {node.name for node in model.graph.node if large & {*node.input, *node.output}}


def automatic(model: onnx.ModelProto, feeds: Feeds) -> dict[str, Any]:
    """Run ``auto_convert_mixed_precision``; return what it left in high precision, and after how many trials."""
    from onnxconverter_common import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        auto_mixed_precision,
        float16,
    )

    blocked: list[list[str]] = []
    convert = float16.convert_float_to_float16

    def converted(*args: Any, node_block_list: Any = None, **options: Any) -> Any:
        blocked.append(list(node_block_list or ()))
        return convert(*args, node_block_list=node_block_list, **options)

    def emulated(model: onnx.ModelProto, feeds: Feeds, names: Any = None, _: Any = None) -> list[Any]:
        probed = onnx.ModelProto()
        probed.CopyFrom(model)
        if names is not None:
            del probed.graph.output[:]
            probed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
        return run(probed, feeds, emulated=names is None)

    auto_mixed_precision.float16.convert_float_to_float16 = converted
    auto_mixed_precision.get_tensor_values_using_ort = emulated
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            auto_mixed_precision.auto_convert_mixed_precision(model, dict(feeds), close, keep_io_types=True)
    except Exception as error:  # noqa: BLE001 - whatever it raises is its result
        return {"error": f"{type(error).__name__}: {error}"[:120], "trials": len(blocked)}
    return {"raised": blocked[-1], "trials": len(blocked)}


if __name__ == "__main__":
    given = onnx.load(sys.argv[1])
    with np.load(sys.argv[2]) as arrays:
        print(json.dumps(automatic(given, {name: arrays[name] for name in arrays.files})))
