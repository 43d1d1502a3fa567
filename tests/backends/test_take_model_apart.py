"""A model that is taken apart: each part gets what is right, and what it makes of it is an output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runner.backends.numpy_arrays import from_array, to_array
from runner.backends.onnx_reference import OnnxReference
from runner.backends.onnxruntime import OnnxRuntime

NAMES = ("x", "a", "b", "out")


def saved(folder: Path, dtype: int, ops: tuple[str, ...] = ("Abs", "Neg", "Abs")) -> str:
    nodes = [helper.make_node(op, [NAMES[at]], [NAMES[at + 1]], name=op + str(at)) for at, op in enumerate(ops)]
    ends = [[helper.make_tensor_value_info(name, dtype, [2])] for name in ("x", "out")]
    model = helper.make_model(helper.make_graph(nodes, "g", *ends), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(folder / "model.onnx"))
    return str(folder / "model.onnx")


def ran(backend: Any, path: str, kind: Any, **settings: Any) -> dict[str, list[float]]:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = backend.load(path, {"inside": {"a": dtype, "b": dtype}, **settings})
    feeds = {"x": [1, 2], "a": [10, 20], "b": [100, 200]}
    given = {name: from_array(np.array(held, kind)) for name, held in feeds.items()}
    assert model.inputs == set(feeds)
    return {name: np.asarray(to_array(held)).tolist() for name, held in model.run(list(model.outputs), given)}


@pytest.mark.parametrize("backend", [OnnxRuntime, OnnxReference])
def test_each_part_gets_what_is_right(tmp_path: Path, backend: Any) -> None:
    made = ran(backend, saved(tmp_path, TensorProto.FLOAT), np.float32, optimization="all")
    assert made == {"out": [100, 200], "a__winnow_made": [1, 2], "b__winnow_made": [-10, -20]}
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_it_is_taken_apart_before_it_is_rounded(tmp_path: Path) -> None:
    made = ran(OnnxRuntime, saved(tmp_path, TensorProto.FLOAT16), np.float16, rounding="on")
    assert made == {"out": [100, 200], "a__winnow_made": [1, 2], "b__winnow_made": [-10, -20]}


def test_what_optimizations_leave_out_stays_in_its_part(tmp_path: Path) -> None:
    path = saved(tmp_path, TensorProto.FLOAT, ("Identity", "Identity", "Neg"))
    model = OnnxRuntime.load(path, {"inside": {"a": TensorProto.FLOAT, "b": TensorProto.FLOAT}})
    assert model.outputs == ["out"]


@pytest.mark.parametrize("backend", [OnnxRuntime, OnnxReference])
def test_of_a_window_only_its_parts_are_left(tmp_path: Path, backend: Any) -> None:
    path = saved(tmp_path, TensorProto.FLOAT, ("Abs", "Neg", "Abs"))
    model = backend.load(path, {"inside": {"a": 1, "b": 1}, "wanted": ["b"], "optimization": "all"})
    assert list(model.outputs) == ["b__winnow_made"] and set(model.inputs) == {"a"}
    given = {"a": from_array(np.array([10, 20], np.float32))}
    assert [np.asarray(to_array(held)).tolist() for _, held in model.run(["b__winnow_made"], given)] == [[-10, -20]]
    left = backend.load(path, {"inside": {"a": 1}, "wanted": ["fused away"], "optimization": "all"})
    assert list(left.outputs) == ["out"]
