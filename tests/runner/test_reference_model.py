"""A reference with a model of its own: its values, matched by name, are the golden ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.harness import winnow


def chain(path: Path, dtype: int = TensorProto.FLOAT, wrong: float = 2.0) -> Path:
    """Twelve nodes x * 2, abs, x * 2 ...; the seventh multiplies with ``wrong``."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    weights = [numpy_helper.from_array(np.array([2.0 if at != 6 else wrong], kind), f"w{at}") for at in range(0, 12, 2)]
    nodes = []
    for at in range(12):
        source = f"t{at - 1}" if at else "x"
        inputs = [source] if at % 2 else [source, f"w{at}"]
        nodes.append(helper.make_node("Abs" if at % 2 else "Mul", inputs, [f"t{at}"], name=f"n{at}"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, [8])],
        [helper.make_tensor_value_info("t11", dtype, [8])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("tolerance", ["fixed", "auto"])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_a_wrong_weight_is_found(tmp_path: Path, tolerance: str, dtype: int) -> None:
    good, bad = chain(tmp_path / "good.onnx"), chain(tmp_path / "bad.onnx", dtype, wrong=2.5)
    run = winnow(
        f"model={bad}",
        f"reference.model={good}",
        "checker=compare",
        "checker.golden=ahead",
        f"checker.tolerance={tolerance}",
        folder=tmp_path / "run",
    )
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["n6"]


def test_a_reference_that_is_no_relative(tmp_path: Path) -> None:
    bad, other = chain(tmp_path / "bad.onnx"), tmp_path / "other.onnx"
    model = onnx.load(chain(other))
    onnx.save(onnx.compose.add_prefix(model, "p/"), other)
    run = winnow(
        f"model={bad}",
        f"reference.model={other}",
        "checker=compare",
        "checker.golden=ahead",
        folder=tmp_path / "run",
    )
    assert run.code == 2
    assert "its input 'p/x' is none of the model's, which are x" in run.output
