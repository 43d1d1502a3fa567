"""`strategy=precision` with outputs that one tolerance does not fit, as a user runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.harness import Run, winnow


def detector(folder: Path) -> Path:
    """Boxes of a few pixels in a picture of 4000, and a score for each."""
    random = np.random.default_rng(0)

    def weight(name: str, values: object) -> str:
        stored.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    stored: list[TensorProto] = []
    nodes = [
        helper.make_node("MatMul", ["x", weight("wp", random.normal(0, 1, (16, 2)))], ["p0"], name="places"),
        helper.make_node("Sigmoid", ["p0"], ["p1"], name="within"),
        helper.make_node("Mul", ["p1", weight("size", 4000)], ["low"], name="corner"),
        helper.make_node("MatMul", ["x", weight("we", random.normal(0, 0.2, (16, 2)))], ["e0"], name="extents"),
        helper.make_node("Exp", ["e0"], ["e1"], name="positive"),
        helper.make_node("Mul", ["e1", weight("usual", 6)], ["e2"], name="wide"),
        helper.make_node("Add", ["low", "e2"], ["high"], name="other"),
        helper.make_node("Concat", ["low", "high"], ["boxes"], name="both", axis=1),
        helper.make_node("MatMul", ["x", weight("ws", random.normal(0, 1, (16, 1)))], ["s0"], name="score"),
        helper.make_node("Sigmoid", ["s0"], ["scores"], name="share"),
    ]
    outputs = [helper.make_tensor_value_info(name, 1, [200, wide]) for name, wide in (("boxes", 4), ("scores", 1))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [200, 16])], outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(folder / "detector.onnx"))
    return folder / "detector.onnx"


def search(folder: Path, *options: str) -> Run:
    folder.mkdir()
    given = (f"model={detector(folder)}", "checker.flaky=never", "strategy.layer_errors=false", *options)
    return winnow("strategy=precision", *given, folder=folder / "run")


def test_a_tolerance_that_is_wider_than_boxes_gets_a_word(tmp_path: Path) -> None:
    run = search(tmp_path / "one")
    assert run.code == 4, run.output
    (word,) = [text for text in run.result["warnings"] if text.startswith("boxes")]
    assert "an error of 39.8" in word and "checker.rtol={boxes: 5e-05" in word
    assert word in run.output.replace("\n", " ")
    assert "boxes has values up to" in (run.folder / "REPORT.md").read_text()
    # as it is proposed, it is taken, and found out of what
    again = search(tmp_path / "of_its_own", 'checker.rtol={boxes: 5e-05, "": 0.01}')
    assert again.code == 0, again.output
    assert "boxes has values" not in again.output
    raised = set(again.result["culprits"])
    assert raised >= {"corner", "other", "both"} and not raised & {"score", "share", "positive"}
