"""Bundles of real runs, unpacked elsewhere: what a run was told of its target goes along."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.bundles import unpacked
from tests.harness import winnow
from tests.model.models import model_of


def test_a_target_that_rounds(tmp_path: Path) -> None:
    """Products of fp16 overflow where they are rounded, and only there."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Mul", ["a", "a"], ["b"], name="square"),
        helper.make_node("Sqrt", ["b"], ["c"], name="root"),
        helper.make_node("Neg", ["c"], ["y"], name="neg"),
    ]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [2]) for name in "xy"]
    onnx.save(model_of(nodes, declared[:1], declared[1:]), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.array([300, 400], np.float16))
    given = ("model=m.onnx", "inputs=files", "inputs.path=x.npz", "checker=finite", "checker.flaky=never")
    run = winnow(*given, "target.rounding=on", folder=tmp_path / "run", cwd=tmp_path)
    assert (run.code, run.result["culprits"]) == (0, ["square"]), run.output
    shown = unpacked(run.folder, tmp_path / "elsewhere")
    assert shown.code == 1, shown.text
    assert "rounded.onnx" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_a_limit_that_was_measured(tmp_path: Path) -> None:
    """What the run measured goes along, also where it is far below the tolerance as it comes."""
    weights = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="mul"),
        helper.make_node("Tanh", ["a"], ["y"], name="tanh"),
    ]
    for name, factor in (("good", 1.0), ("bad", 1.0005)):
        tensor = onnx.numpy_helper.from_array((weights * factor).astype(np.float32), "w")
        declared = [helper.make_tensor_value_info(one, TensorProto.FLOAT, [1, 8]) for one in "xy"]
        onnx.save(
            model_of(nodes, declared[:1], declared[1:], [tensor]),
            tmp_path / f"{name}.onnx",
        )
    given = ("model=bad.onnx", "reference.model=good.onnx", "checker=compare", "checker.tolerance=auto")
    run = winnow(*given, "checker.flaky=never", folder=tmp_path / "run", cwd=tmp_path)
    assert (run.code, run.result["culprits"]) == (0, ["mul"]), run.output
    shown = unpacked(run.folder, tmp_path / "elsewhere")
    assert shown.code == 1, shown.text
    assert "LIMIT" in (run.folder / "repro.py").read_text()
