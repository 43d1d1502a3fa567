"""A model that is taken apart: each part gets what is right, and what it makes of it is an output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from runner.backends.numpy_arrays import from_array, to_array
from runner.backends.onnx_reference import OnnxReference
from runner.backends.onnxruntime import OnnxRuntime
from tests.jobs.models import saved


def made(folder: Path, kind: str = "float", ops: tuple[str, str, str] = ("Abs", "Neg", "Abs")) -> str:
    nodes = "a = {}(x) b = {}(a) out = {}(b)".format(*ops)
    return str(saved(folder / "model.onnx", f"g ({kind}[2] x) => ({kind}[2] out) {{ {nodes} }}"))


def ran(backend: Any, path: str, kind: Any, **settings: Any) -> dict[str, list[float]]:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = backend.load(path, {"inside": {"a": dtype, "b": dtype}, **settings})
    feeds = {"x": [1, 2], "a": [10, 20], "b": [100, 200]}
    given = {name: from_array(np.array(held, kind)) for name, held in feeds.items()}
    assert model.inputs == set(feeds)
    return {name: np.asarray(to_array(held)).tolist() for name, held in model.run(list(model.outputs), given)}


@pytest.mark.parametrize("backend", [OnnxRuntime, OnnxReference])
def test_each_part_gets_what_is_right(tmp_path: Path, backend: Any) -> None:
    found = ran(backend, made(tmp_path), np.float32, optimization="all")
    assert found == {"out": [100, 200], "a__winnow_made": [1, 2], "b__winnow_made": [-10, -20]}
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_it_is_taken_apart_before_it_is_rounded(tmp_path: Path) -> None:
    found = ran(OnnxRuntime, made(tmp_path, "float16"), np.float16, rounding="on")
    assert found == {"out": [100, 200], "a__winnow_made": [1, 2], "b__winnow_made": [-10, -20]}


def test_what_optimizations_leave_out_stays_in_its_part(tmp_path: Path) -> None:
    path = made(tmp_path, ops=("Identity", "Identity", "Neg"))
    model = OnnxRuntime.load(path, {"inside": {"a": TensorProto.FLOAT, "b": TensorProto.FLOAT}})
    assert model.outputs == ["out"]


@pytest.mark.parametrize("backend", [OnnxRuntime, OnnxReference])
def test_of_a_window_only_its_parts_are_left(tmp_path: Path, backend: Any) -> None:
    path = made(tmp_path)
    model = backend.load(path, {"inside": {"a": 1, "b": 1}, "wanted": ["b"], "optimization": "all"})
    assert list(model.outputs) == ["b__winnow_made"] and set(model.inputs) == {"a"}
    given = {"a": from_array(np.array([10, 20], np.float32))}
    assert [np.asarray(to_array(held)).tolist() for _, held in model.run(["b__winnow_made"], given)] == [[-10, -20]]
    left = backend.load(path, {"inside": {"a": 1}, "wanted": ["fused away"], "optimization": "all"})
    assert list(left.outputs) == ["out"]
