"""What `precision` in result.json counts: all float nodes, those included that no search can lower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.harness import Run, winnow

FP32, FP16 = TensorProto.FLOAT, TensorProto.FLOAT16


def model_of(nodes: list[NodeProto], weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    x, y = (helper.make_tensor_value_info(name, FP32, shape) for name, shape in (("x", [4, 8]), ("y", ["n", "m"])))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors), opset_imports=opsets)
    model.ir_version = 9
    return model


def search(folder: Path, model: onnx.ModelProto, *options: str) -> Run:
    onnx.save(model, str(folder / "net.onnx"))
    ranges = "inputs.ranges={x: [0.5, 3]}"
    return winnow("strategy=precision", f"model={folder / 'net.onnx'}", ranges, *options, folder=folder / "run")


def contrib(op: str, inputs: list[str], output: str, name: str) -> NodeProto:
    metric = {"metric": "euclidean"} if op == "CDist" else {}
    return helper.make_node(op, inputs, [output], name=name, domain="com.microsoft", **metric)


def stored(model: onnx.ModelProto) -> dict[int, int]:
    counts = {FP32: 0, FP16: 0}
    for tensor in model.graph.initializer:
        if tensor.data_type in counts:
            counts[tensor.data_type] += int(np.prod(tensor.dims))
    return counts


def test_what_has_no_low_kind_is_listed_and_counted(tmp_path: Path) -> None:
    """`CDist` knows no float16, and what is inside the branch neither; `w` is there in both types."""
    inside = [
        helper.make_node("Neg", ["down"], ["n"], name="neg"),
        contrib("CDist", ["n", "w"], "taken", "far"),
    ]
    other = [helper.make_node("Identity", ["down"], ["other"], name="same")]
    bodies = {
        f"{name}_branch": helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(made, FP32, ["n", "m"])])
        for name, nodes, made in (("then", inside, "taken"), ("else", other, "other"))
    }
    nodes = [
        contrib("CDist", ["x", "w"], "a", "distance"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="product"),
        helper.make_node("Mul", ["b", "big"], ["c"], name="up"),
        helper.make_node("Div", ["c", "big"], ["down"], name="down"),
        helper.make_node("If", ["yes"], ["y"], name="if", **bodies),
    ]
    weights = {
        "w": np.random.default_rng(0).normal(0, 1, (8, 8)).astype(np.float32),
        "big": np.array(6e4, np.float32),
        "yes": np.array(True),
    }
    run = search(tmp_path, model_of(nodes, weights), "strategy.untaken=low")
    assert run.code == 0, run.output
    told = run.result["precision"]
    assert run.result["culprits"] == ["up", "down"]
    assert told["stays_high"] == [
        {"node": name, "op": "com.microsoft.CDist", "why": "its operator has no float16 kind"}
        for name in ("distance", "if.then_branch/far")
    ]
    assert told["nodes_to_exclude"] == ["distance", "up", "down", "if.then_branch/far"]
    assert told["layer_precisions"] == dict.fromkeys(told["nodes_to_exclude"], "fp32")
    assert stored(run.model("mixed.onnx")) == {FP32: 65, FP16: 64}
    assert told["low_share"]["weights"] == round(64 / 129, 6)
    assert told["low_share"]["nodes"] == 0.5  # product, if, neg and same of eight
    assert told["low_share"]["flops"] < 0.9
    report = (run.folder / "REPORT.md").read_text()
    assert "2 more float nodes stay in float32: 2 `com.microsoft.CDist`." in report
