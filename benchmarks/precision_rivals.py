"""python -m benchmarks.precision_rivals MODEL FEEDS.npz: what onnxconverter-common's mixed precision raises, as JSON.

And the range rule of NVIDIA's AutoCast: whatever reads or makes a value beyond a limit stays in high precision. Both
are judged like Winnow's own trials: with low precision rounded after every operator. With ``--autocast``: AutoCast
itself (``nvidia-modelopt[onnx]``), for which FEEDS may be a folder. ``--out PATH`` keeps the converted model.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime

from runner.backends.emulation.rounding import rounded

RTOL = 0.02
DATA_MAX, INIT_MAX = 512.0, 65504.0
"""AutoCast's defaults."""

Feeds = Mapping[str, Any]


def close(good: Sequence[Any], found: Sequence[Any], rtol: float = RTOL) -> bool:
    """Whether outputs are finite, and within 2 % (or ``rtol``) of the largest value of the good ones."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(good, found, strict=True)]
    return all(np.isfinite(b).all() and np.abs(a - b).max() <= rtol * np.abs(a).max() for a, b in pairs if a.size)


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


def automatic(model: onnx.ModelProto, feeds: Feeds, rtol: float = RTOL, out: str = "") -> dict[str, Any]:
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
            agree = partial(close, rtol=rtol)
            made = auto_mixed_precision.auto_convert_mixed_precision(model, dict(feeds), agree, keep_io_types=True)
        if out:
            onnx.save(made, out)
    except Exception as error:  # noqa: BLE001 - whatever it raises is its result
        return {"error": f"{type(error).__name__}: {error}"[:120], "trials": len(blocked)}
    return {"raised": blocked[-1], "trials": len(blocked)}


def autocast(path: str, feeds: str, out: str = "") -> dict[str, Any]:
    """Run NVIDIA's AutoCast as it comes; return the nodes of the original that still make fp32 tensors."""
    from modelopt.onnx.autocast import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        convert_to_mixed_precision,
    )

    names = {node.name for node in onnx.load(path, load_external_data=False).graph.node}
    try:
        made = convert_to_mixed_precision(path, "fp16", keep_io_types=True, calibration_data=feeds)
    except Exception as error:  # noqa: BLE001 - whatever it raises is its result
        return {"error": f"{type(error).__name__}: {error}"[:120]}
    if out:
        onnx.save(made, out)
    inferred = onnx.shape_inference.infer_shapes(made).graph
    wide = {value.name for value in inferred.value_info if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    return {"raised": [node.name for node in made.graph.node if node.name in names and wide & {*node.output}]}


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("feeds")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--rtol", type=float, default=RTOL)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    if options.autocast:
        told = autocast(options.model, options.feeds, options.out)
    else:
        with np.load(options.feeds) as arrays:
            feeds = {name: arrays[name] for name in arrays.files}
        told = automatic(onnx.load(options.model), feeds, options.rtol, options.out)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
