from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from runner.model.values import recorded


def tensors(arrays: Mapping[str, np.ndarray], folder: Path) -> dict[str, recorded.TensorFile]:
    folder.mkdir(parents=True, exist_ok=True)
    return {name: recorded.write(array, name, folder / f"{i}.pb") for i, (name, array) in enumerate(arrays.items())}


def model(
    nodes: list[onnx.NodeProto],
    path: Path,
    *,
    outputs: tuple[str, ...] = ("y",),
    weights: Mapping[str, np.ndarray] | None = None,
    dtype: int = TensorProto.FLOAT,
    shape: tuple[int, ...] = (4,),
    opset: int = 17,
) -> Path:
    """A model with the input `x` and these outputs, all of one type."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(made, path)
    return path
