"""Quantized models: what integers stand for, at the ends of a model and inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.harness import winnow
from tests.model.models import model_of, tensor

_STEP = {"s": np.float32(1 / 64), "z": np.uint8(128), "t": np.float32(1 / 8)}


def ends(kind: int, *names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, [4, 8]) for name in names]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_original_is_fed_the_floats_that_an_integer_input_stands_for(tmp_path: Path, sign: int) -> None:
    weight = np.random.default_rng(4).normal(size=(8, 8)).astype(np.float32)
    held = [tensor("w", weight)]
    onnx.save(model_of("y = MatMul (x, w)", ends(1, "x"), ends(1, "y"), held), tmp_path / "float.onnx")
    text = "a = DequantizeLinear (u, s, z)  [product] b = MatMul (a, w)  v = QuantizeLinear (b, t, z)"
    held = [tensor("w", sign * weight), *(tensor(name, one) for name, one in _STEP.items())]
    kind = TensorProto.UINT8
    onnx.save(model_of(text, ends(kind, "u"), ends(kind, "v"), held), tmp_path / "child.onnx")
    run = winnow(
        "+experiment=quantized", f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'float.onnx'}",
        folder=tmp_path / "run",
    )  # fmt: skip
    assert (run.code, run.result["culprits"]) == ((4, []) if sign == 1 else (0, ["product"])), run.output
