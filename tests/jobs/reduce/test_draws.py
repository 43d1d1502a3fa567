"""Models that draw random numbers: one that is sound passes, and in one that is not the fault is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.harness import by_command, check_script, winnow

RUN = """
import numpy as np, onnxruntime as ort
feeds, good = dict(np.load(sys.argv[2])), dict(np.load(sys.argv[3]))
FAULT
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs() if one.name in good]
made = session.run(names, {one.name: feeds[one.name] for one in session.get_inputs()})
sys.exit(int(not all(np.allclose(value, good[name], rtol=1e-2, atol=1e-3) for name, value in zip(names, made))))
"""
WRONG = """
for node in model.graph.node:
    if node.op_type == "Tanh":
        node.op_type = "Softsign"
"""


def noisy(folder: Path, *drawing: onnx.NodeProto) -> str:
    """A model of six nodes or more, of which one draws; ``noise`` is what it draws of ``a``."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        *(drawing or [helper.make_node("RandomNormalLike", ["a"], ["noise"], name="noise")]),
        helper.make_node("Add", ["a", "noise"], ["b"], name="add"),
        helper.make_node("Tanh", ["b"], ["c"], name="tanh"),
        helper.make_node("MatMul", ["c", "w"], ["d"], name="matmul"),
        helper.make_node("Neg", ["d"], ["y"], name="neg"),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4])] for name in ("x", "y")]
    weights = [np.eye(4, dtype=np.float32), np.float32(0.5), np.array(True)]
    held = [
        numpy_helper.from_array(value, name) for name, value in zip(("w", "ratio", "training"), weights, strict=True)
    ]
    graph = helper.make_graph(nodes, "g", *ends, [one for one in held if any(one.name in node.input for node in nodes)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    return f"model={folder / 'net.onnx'}"


def test_a_sound_model_that_draws_has_nothing_to_find(tmp_path: Path) -> None:
    run = winnow(noisy(tmp_path), "inputs.samples=2", folder=tmp_path / "run")
    assert run.code == 4, run.output
    assert any("set_seed" in warning for warning in run.result["warnings"])


@pytest.mark.slow
def test_so_has_one_that_drops_out(tmp_path: Path) -> None:
    """ONNX Runtime's optimizations take a Dropout away in training too, which is another failure."""
    dropping = helper.make_node("Dropout", ["a", "ratio", "training"], ["noise"], name="noise")
    run = winnow(noisy(tmp_path, dropping), "inputs.samples=2", "target.optimization=none", folder=tmp_path / "run")
    assert run.code == 4, run.output


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [True, False])
def test_a_check_that_compares_with_references(seeded: bool, tmp_path: Path) -> None:
    body = RUN.replace("FAULT", "ort.set_seed(1)" if seeded else "")
    check = by_command(check_script(tmp_path, body), "{inputs}", "{references}")
    run = winnow(noisy(tmp_path), *check, "inputs.samples=3", folder=tmp_path / "run")
    assert run.code == 4, run.output
    assert seeded is not any("passes with the same ones" in warning for warning in run.result["warnings"])


@pytest.mark.variants
@pytest.mark.parametrize(("strategy", "seeded"), [("reduce", True), ("extract", False)])
def test_a_part_that_is_to_be_used_draws_as_it_did(strategy: str, seeded: bool, tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, "sys.exit(int('noise' in nodes))"))
    asked = check if strategy == "reduce" else ("strategy.nodes=[noise]",)
    run = winnow(noisy(tmp_path), f"strategy={strategy}", *asked, folder=tmp_path / "run")
    (path,) = (one for one in (tmp_path / "run").glob("*.onnx") if one.name in ("reduced.onnx", "extracted.onnx"))
    (node,) = onnx.load(path).graph.node
    assert [one.name for one in node.attribute] == (["seed"] if seeded else []), run.output


@pytest.mark.slow
def test_a_fault_beside_a_draw_is_found(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, RUN.replace("FAULT", WRONG)), "{inputs}", "{references}")
    run = winnow(noisy(tmp_path), *check, "inputs.samples=2", folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["cause"]["status"]) == (0, ["tanh"], "proven"), run.output
