"""Shapes: overridden first, then inferred; what fails leaves what is known."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runner.exit_codes import ModelError
from runner.model.passes.infer_shapes import infer_shapes, read_types
from tests.model.models import model_of, tensor


def save(model, folder):
    onnx.save(model, folder / "m.onnx")
    return {"model": str(folder / "m.onnx"), "out": str(folder / "out.onnx")}


def dynamic(**options):
    info = helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", 4])
    text = "s = Shape (a)  x = Neg (a)  y = Reshape (x, s)  z = MatMul (y, w)"
    stale = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2])
    weights = [tensor("w", np.ones((4, 2), np.float32))]
    return model_of(text, [info], [out], weights, value_info=[stale], **options)


def dims(found):
    return [dim.dim_value or dim.dim_param for dim in found.tensor_type.shape.dim]


@pytest.mark.parametrize("mode", ["onnx", "symbolic"])
def test_shapes_follow_the_given_ones(mode, tmp_path):
    if mode == "symbolic":
        pytest.importorskip("sympy")
        pytest.importorskip("onnxruntime")
    args = save(dynamic(), tmp_path)
    report = infer_shapes({**args, "mode": mode, "shapes": {"a": [3, 4]}})
    types = read_types(tmp_path / "out.onnx")
    assert report == {"types": 5, "warning": ""}
    assert {name: dims(types[name]) for name in "axyz"} == {"a": [3, 4], "x": [3, 4], "y": [3, 4], "z": [3, 2]}
    infer_shapes({**args, "mode": mode, "shapes": {}})
    assert dims(read_types(tmp_path / "out.onnx")["x"]) == ["n", 4]


def test_wrong_settings_name_the_valid_ones(tmp_path):
    args = save(dynamic(), tmp_path)
    with pytest.raises(ModelError, match="inputs: a"):
        infer_shapes({**args, "shapes": {"b": [1]}})
    with pytest.raises(ModelError, match="2 dimensions"):
        infer_shapes({**args, "shapes": {"a": [1]}})


def test_unknown_operators_do_not_stop_the_rest(tmp_path):
    text = "m = nobody.imported.this.Mystery (a)  x = Neg (a)"
    infer_shapes(save(model_of(text, ["a"], ["x"]), tmp_path))
    assert {"a", "x"} <= set(read_types(tmp_path / "out.onnx"))


def test_what_cannot_be_inferred_keeps_what_is_declared(tmp_path):
    text = "x = NoSuchOperator (a)  y = Neg (x)"
    report = infer_shapes({**save(model_of(text, ["a"], ["y"]), tmp_path), "mode": "onnx"})
    assert set(read_types(tmp_path / "out.onnx")) == {"a", "y"}
    assert "\n" not in report["warning"]
