"""Which tensor is wrong first, and which node adds the largest error of its own: run as a user does."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.fake_tensorrt import install
from tests.harness import PRETENDED_GPUS, Run, winnow, without_nvml
from tests.jobs import models

SIZE = 8
#: ONNX Runtime fuses this into a norm over the last axis, whatever keepdims says
NORM = ("pow", "mean", "add", "sqrt", "div", "mul")


def saved(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> Path:
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE])] for name in ("x", "out")]
    held = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", *ends, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def chain(path: Path, wrong: float = 0.0) -> Path:
    """Values of about one; the third node is off by ``wrong``, and a difference in the end makes any error larger."""
    draw = np.random.default_rng(0)
    weights = {f"w{at}": np.repeat(draw.uniform(0.9, 1.1, (SIZE, 1)), SIZE, axis=1) for at in range(6)}
    weights["w0"], weights["w1"] = np.full((SIZE, SIZE), 0.01), np.ones((SIZE, SIZE))
    weights["w2"][0, 0] += wrong
    text = """g (float[8,8] x) => (float[8,8] out) {
        [scale_0] t0 = Mul(x, w0) [scale_1] t1 = Add(t0, w1) [scale_2] t2 = Mul(t1, w2) [scale_3] t3 = Mul(t2, w3)
        [scale_4] t4 = Mul(t3, w4) [scale_5] last = Mul(t4, w5)
        [even] even = ReduceMean<axes = [-1], keepdims = 1>(last) [rest] out = Sub(last, even) }"""
    model = models.parsed(text, **{name: value.astype(np.float32) for name, value in weights.items()})
    for node in model.graph.node:
        node.name = node.name.replace("_", "/")
    onnx.save(model, str(path))
    return path


def fused(path: Path) -> Path:
    """A norm between two additions before it and two after it."""
    text = """g (float[8,8] x) => (float[8,8] out) <float epsilon = {0.00001}, float two = {2.0}> {
        [before_0] a = Add(x, one) [before_1] y = Add(a, one)
        [pow] squared = Pow(y, two) [mean] mean = ReduceMean<axes = [-1], keepdims = 0>(squared)
        [add] safe = Add(mean, epsilon) [sqrt] root = Sqrt(safe) [div] normed = Div(y, root)
        [mul] z = Mul(normed, scale) [after_0] b = Add(z, one) [after_1] out = Add(b, one) }"""
    weights = {"one": np.full((SIZE, SIZE), 0.5, np.float32), "scale": np.linspace(0.5, 1.5, SIZE, dtype=np.float32)}
    return models.saved(path, text, **weights)


def layerwise(tmp_path: Path, model: Path, *given: str) -> Run:
    return winnow("strategy=layerwise", f"model={model}", *given, folder=tmp_path / "run")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A wrong weight in a copy of a model, which is run on two samples."""
    folder = tmp_path_factory.mktemp("planted")
    child, parent = chain(folder / "child.onnx", 0.05), chain(folder / "parent.onnx")
    return layerwise(folder, child, f"reference.model={parent}", "inputs.samples=2")


def test_the_planted_node_is_wrong_first_and_has_the_largest_error_of_its_own(planted: Run) -> None:
    assert planted.code == 0, planted.output
    layers = planted.result["layers"]
    assert planted.result["culprits"] == ["scale/2"] and layers["suspects"][0] == "scale/2"
    assert layers["first_bad"]["tensor"] == "t2" and layers["first_bad"]["node"] == "scale/2"
    assert layers["largest_own"]["node"] == "scale/2"
    assert layers["marking"] == "same" and layers["runs"] == 2 and layers["tensors"] == 8
    (output,) = layers["outputs"]
    # the error that is inherited is far larger in the end
    assert output["error"] > 5 * layers["first_bad"]["error"] and output["own"] < 1e-3


def test_nodes_that_only_compute_sizes_are_not_named_beside_a_wrong_one(tmp_path: Path) -> None:
    """They are compared too, though no value can be fed in their place."""
    text = """g (float[2,3] x) => (float[2,3] y) { [shape] size = Shape(x) [rows] n = Gather(size, zero)
        [loop] l = Loop(n, go, x) <body = body (int64 i, bool c, float[2,3] v) => (bool on, float[2,3] w) {
            [by] w = Mul(v, by) [on] on = Identity(c) }> [neg] y = Neg(l) }"""
    held = {"zero": np.array(0), "go": np.array(True)}
    paths = [models.saved(tmp_path / f"{by}.onnx", text, by=np.float32(by), **held) for by in (1.5, 1)]
    run = layerwise(tmp_path, paths[0], f"reference.model={paths[1]}")
    assert run.result["culprits"] == ["loop"] and run.result["layers"]["largest_own"]["node"] == "loop", run.output
    assert run.result["layers"]["own_unknown"] == "" and run.result["layers"]["tensors"] == 3


def test_files_and_the_report_have_all_tensors(planted: Run) -> None:
    rows = json.loads((planted.folder / "layerwise.json").read_text())["tensors"]
    assert [row["tensor"] for row in rows] == ["t0", "t1", "t2", "t3", "t4", "last", "even", "out"]
    assert [row["bad"] for row in rows][:3] == [False, False, True]
    with (planted.folder / "layerwise.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["tensor"] for row in table] == [row["tensor"] for row in rows]
    assert table[2]["node"] == "scale/2" and float(table[2]["own"]) == rows[2]["own"] and table[0]["shape"] == "8x8"
    report = (planted.folder / "REPORT.md").read_text()
    assert "the first wrong tensor is t2, the output of scale/2" in report and "## The model's outputs" in report


@pytest.mark.slow
def test_each_tensor_is_asked_once_and_a_resumed_run_asks_the_rest(tmp_path: Path) -> None:
    child, parent = chain(tmp_path / "child.onnx", 0.05), chain(tmp_path / "parent.onnx")
    given = f"reference.model={parent}"
    run = layerwise(tmp_path, child, given, "budget.checks=1")
    assert run.code == 0 and "the budget was reached" in run.result["message"], run.output
    assert run.result["checks"]["search"] == 1 and run.result["layers"]["largest_own"] is None
    none = winnow("strategy=layerwise", f"model={child}", given, "budget.checks=0", folder=tmp_path / "none")
    assert none.code == 3 and "hides" not in none.result["message"], none.output
    assert "could be compared" in none.result["message"]
    again = layerwise(tmp_path, child, given, f"resume={run.folder}")
    assert again.result["checks"]["search"] == 1 and again.result["checks"]["reused"] == 2, again.output
    assert again.result["layers"]["largest_own"]["node"] == "scale/2"


@pytest.mark.slow
def test_a_plan_says_how_many_runs_it_takes(tmp_path: Path) -> None:
    run = layerwise(tmp_path, chain(tmp_path / "net.onnx"), "plan=true")
    assert run.result["status"] == "planned" and "8 tensors would be compared in 2 runs" in run.result["message"]
    assert not (run.folder / "layerwise.csv").exists()


def empty(path: Path) -> Path:
    """A tensor without elements is put before the others, and its successor is like them."""
    text = """g (float[8,8] x) => (float[8,8] out) <int64[1] zero = {0}> {
        [cut] none = Slice(x, zero, zero, zero) [join] both = Concat<axis = 0>(none, x)
        [square] out = Mul(both, both) }"""
    return models.saved(path, text)


def test_of_a_tensor_without_elements_nothing_is_said_to_be_right(tmp_path: Path) -> None:
    run = layerwise(tmp_path, empty(tmp_path / "net.onnx"))
    rows = {row["tensor"]: row for row in json.loads((run.folder / "layerwise.json").read_text())["tensors"]}
    assert (rows["none"]["error"], rows["none"]["compared"]) == (None, False), run.output
    assert rows["both"]["error"] == 0 and "compared" not in rows["both"]
    with (run.folder / "layerwise.csv").open() as file:
        told = {row["tensor"]: (row["compared"], row["error"]) for row in csv.DictReader(file)}
    assert told["none"] == ("False", "") and told["both"] == ("", "0.0")


@pytest.mark.slow
def test_nor_of_its_layer_in_low_precision(tmp_path: Path) -> None:
    run = winnow("strategy=precision", f"model={empty(tmp_path / 'net.onnx')}", folder=tmp_path / "run")
    rows = {row["node"]: row for row in json.loads((run.folder / "layers.json").read_text())}
    assert rows["cut"]["error_low"] is None and rows["cut"]["not_finite"] == [], run.output
    assert rows["square"]["error_low"] is not None


def test_where_all_is_right_nothing_is_found(tmp_path: Path) -> None:
    run = layerwise(tmp_path, chain(tmp_path / "net.onnx"))
    assert run.code == 4 and "all of 8 tensors are right" in run.result["message"], run.output
    assert run.result["layers"]["first_bad"] is None and run.result["layers"]["marking"] == "same"


def test_marks_that_hide_a_failure_are_noticed_and_the_optimized_parts_show_it(tmp_path: Path) -> None:
    run = layerwise(tmp_path, fused(tmp_path / "net.onnx"))
    layers = run.result["layers"]
    if layers and layers["first_bad"] is None:
        pytest.skip("this ONNX Runtime no longer has this defect")
    assert run.code == 0 and layers["marking"] == "hides", run.output
    assert sorted(run.result["culprits"]) == sorted(NORM) and layers["runs"] == 2
    assert "makes the failure go away" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_fewer_marks_show_it_as_well(tmp_path: Path) -> None:
    """Without a look at parts, marks are halved until those are known that hide the failure."""
    run = layerwise(tmp_path, fused(tmp_path / "net.onnx"), "strategy.own=false")
    layers = run.result["layers"]
    if layers and layers["first_bad"] is None:
        pytest.skip("this ONNX Runtime no longer has this defect")
    assert layers["marking"] == "hides" and layers["largest_own"] is None, run.output
    assert {*layers["hidden"]} <= {"squared", "mean", "safe", "root", "normed"} and layers["hidden"]
    assert layers["first_bad"]["tensor"] == "z" and {*run.result["culprits"]} <= {*NORM}


def masked(path: Path, by: float) -> Path:
    """What is wrong inside does not reach the output; names are such as a file may hold."""
    nodes = [
        helper.make_node("Mul", ["x", "by"], ["=t"], name="@first"),
        helper.make_node("Sin", ["=t"], ["=t__made"], name="\x1b[31mred"),
        helper.make_node("Clip", ["=t__made", "zero", "zero"], ["none"], name="clip"),
        helper.make_node("Add", ["x", "none"], ["out"], name="sum"),
    ]
    return saved(path, nodes, {"by": np.array(by), "zero": np.array(0.0)})


def test_a_model_whose_outputs_pass_is_said_to_pass(tmp_path: Path) -> None:
    wrong, right = masked(tmp_path / "wrong.onnx", 1.3), masked(tmp_path / "right.onnx", 1.0)
    given = f"reference.model={right}", "strategy.memory_mb=1", f"result.path={tmp_path / 'nowhere.onnx'}"
    run = layerwise(tmp_path, wrong, *given)
    assert run.code == 0 and run.result["culprits"] == ["@first"], run.output
    assert run.result["message"].startswith(
        "the model as it is passes, but inside it the first wrong tensor is =t, the output of "
    )
    report = (run.folder / "REPORT.md").read_text()
    assert report.startswith("# wrong values inside a model that passes: ") and "in 2 runs" in report
    # the model is taken apart though a tensor has the name of one that is made
    layers, warnings = run.result["layers"], " ".join(run.result["warnings"])
    assert layers["largest_own"]["node"] == "@first" and layers["own_unknown"] == ""
    assert "strategy.memory_mb=1 was not kept" in warnings and "nothing is written there" in warnings
    text = (run.folder / "layerwise.csv").read_text()
    assert "'=t," in text and "'@first," in text and "\x1b" not in text and "\\x1b[31mred" in text


def test_a_reference_that_is_not_finite_is_not_the_fault_of_the_target(tmp_path: Path) -> None:
    right, broken = chain(tmp_path / "right.onnx"), chain(tmp_path / "broken.onnx", float("nan"))
    run = layerwise(tmp_path, right, f"reference.model={broken}")
    assert run.code == 3 and "the reference is not finite from t2 of scale/2 on" in run.result["message"], run.output
    assert not run.result["culprits"] and run.result["layers"]["first_bad"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("checker=runs",), "should hold. Take checker=auto, compare or finite"),
        (("cut.record=off",), "cut.record=auto"),
    ],
)
def test_refusals(tmp_path: Path, given: tuple[str, ...], said: str) -> None:
    run = layerwise(tmp_path, chain(tmp_path / "net.onnx"), *given)
    assert run.code == 2 and said in run.output, run.output


@pytest.mark.slow
def test_a_target_that_does_not_run_has_nothing_to_compare(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "net.onnx", [helper.make_node("Gather", ["x", "far"], ["out"], name="far", axis=0)], {"far": [0.0]}
    )
    run = layerwise(tmp_path, path)
    assert run.code == 3 and "strategy=reduce finds the part that fails" in run.output, run.output


@pytest.mark.slow
def test_a_wrong_operator_makes_the_first_wrong_tensor(tmp_path: Path) -> None:
    nodes = "[n0] a = Abs(x) [n1] b = Softplus(a) [n2] c = Abs(b) [n3] y = Neg(c)"
    model = models.saved(tmp_path / "net.onnx", f"g (float[4,8] x) => (float[4,8] y) {{ {nodes} }}", ir=9)
    pretended = install(tmp_path, "rtx")
    pretended.plant("wrong:Softplus")
    gpus = (f"workers.gpus=[{','.join(PRETENDED_GPUS)}]", f"workers.lease_folder={tmp_path / 'locks'}")
    given = ("strategy=layerwise", f"model={model}", "target=tensorrt", f"target.python={pretended.python}", *gpus)
    run = winnow(*given, folder=tmp_path / "run", environment=without_nvml())
    assert run.code == 0, run.output
    layers = run.result["layers"]
    assert run.result["culprits"] == ["n1"] and layers["first_bad"]["tensor"] == "b"
    assert layers["largest_own"] is None and layers["marking"] == "same" and layers["tensors"] == 4
