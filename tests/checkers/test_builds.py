"""`checker=builds`, with the real builder of TensorRT for RTX on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from benchmarks.trt_failures import CULPRIT, FAILURES, Network, resnet
from tests.bundles import unpacked
from tests.harness import Run, winnow

QUICK = [name for name in FAILURES if name != "gru"]


def builds(model: onnx.ModelProto, folder: Path, python: str, *options: str) -> Run:
    onnx.save(model, str(folder / "net.onnx"))
    given = (f"model={folder / 'net.onnx'}", "checker=builds", "target=tensorrt", f"target.python={python}")
    return winnow(*given, *options, folder=folder / "run")


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_failure_is_found(tmp_path: Path, rtx_python: str, name: str) -> None:
    failure = FAILURES[name]
    model = resnet(failure.opset, failure.plant)
    assert len(model.graph.node) >= 150
    run = builds(model, tmp_path, rtx_python, *failure.options)
    assert run.code == 0, run.output
    planted = {node.name for node in model.graph.node if node.name.startswith(CULPRIT)}
    assert set(run.result["culprits"]) <= planted
    assert failure.said in run.result["signature"]["kind"]
    assert run.result["minimality"] == "1-minimal"


def test_a_build_that_blows_up(tmp_path: Path, rtx_python: str) -> None:
    """With a longer time-out where the machine is too busy for a short one."""
    options = ("checker.flaky=never", "strategy=reduce_bisect", "strategy.trim=false")
    for timeout in (3, 12, 48):
        folder, limit = tmp_path / str(timeout), f"checker.timeout={timeout}"
        folder.mkdir()
        run = builds(resnet(17, FAILURES["gru"].plant), folder, rtx_python, limit, *options)
        if run.code == 0 and run.result["culprits"] == [CULPRIT]:
            break
    assert run.code == 0, run.output
    assert run.result["culprits"] == [CULPRIT]
    assert (run.result["signature"]["stage"], run.result["signature"]["kind"]) == ("build", "timeout")


def test_one_target_of_two_fails(tmp_path: Path, rtx_python: str) -> None:
    onnx.save(resnet(17, FAILURES["gemm_sm75"].plant), str(tmp_path / "net.onnx"))
    options = ("model=net.onnx", "checker=builds", "target=tensorrt", f"target.python={rtx_python}")
    swept = "target.compute_capabilities=[SM75],[SM86]"
    command = [sys.executable, "-m", "runner", "-m", *options, swept, f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "sweep" / "sweep.md").read_text()
    turing, ampere = (next(line for line in table.splitlines() if name in line) for name in ("[SM75]", "[SM86]"))
    assert "found" in turing and CULPRIT in turing
    assert "nothing_to_find" in ampere


def grid_sample(net: Network, x: str) -> str:
    """Volumes are sampled since 1.6."""
    inputs = [net.take(x, [1, 1, 2, 3, 4]), net.take(x, [1, 2, 3, 4, 3], 7)]
    return net.give(x, net.add("GridSample", inputs, name=CULPRIT, mode="linear"))


def test_one_version_of_two_fails(tmp_path: Path, rtx_python: str, older_rtx_python: str) -> None:
    trusted = ("reference=tensorrt", f"reference.python={rtx_python}")
    run = builds(resnet(22, grid_sample), tmp_path, older_rtx_python, *trusted)
    assert run.code == 0, run.output
    assert run.result["culprits"] == [CULPRIT]
    versions = run.result["versions"]
    assert versions["tensorrt_rtx"] != versions["reference.tensorrt_rtx"]


def test_what_both_versions_cannot_build_is_no_difference(
    tmp_path: Path, rtx_python: str, older_rtx_python: str
) -> None:
    trusted = ("reference=tensorrt", f"reference.python={older_rtx_python}")
    run = builds(resnet(17, FAILURES["top_k"].plant), tmp_path, rtx_python, *trusted)
    assert run.code == 4, run.output
    assert "the reference cannot build it either" in run.result["message"]


def resizing() -> onnx.ModelProto:
    """Shapes that are computed go into a Reshape and a Resize; what fails comes last."""

    def constant(name: str, value: list[int] | int) -> onnx.TensorProto:
        return numpy_helper.from_array(np.asarray(value, np.int64), name)

    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Slice", ["s", "zero", "one", "zero"], ["n"], name="batch"),
        helper.make_node("Concat", ["n", "rest"], ["flat"], axis=0, name="flat"),
        helper.make_node("Reshape", ["a", "flat"], ["b"], name="reshape"),
        helper.make_node("Sigmoid", ["b"], ["c"], name="sigmoid"),
        helper.make_node("Reshape", ["c", "s"], ["d"], name="back"),
        helper.make_node("Slice", ["s", "two", "four", "zero"], ["hw"], name="hw"),
        helper.make_node("Add", ["hw", "hw"], ["twice"], name="twice"),
        helper.make_node("Slice", ["s", "zero", "two", "zero"], ["nc"], name="nc"),
        helper.make_node("Concat", ["nc", "twice"], ["sizes"], axis=0, name="sizes"),
        helper.make_node("Resize", ["d", "", "", "sizes"], ["e"], mode="nearest", name="resize"),
        helper.make_node("Flatten", ["e"], ["f"], name="flatten"),
        helper.make_node("TopK", ["f", "k"], ["y", "i"], name=CULPRIT),
    ]
    values = {"zero": [0], "one": [1], "two": [2], "four": [4], "rest": [-1], "k": [5000]}
    x = helper.make_tensor_value_info("x", T.FLOAT, ["n", 3, "h", "w"])
    y = helper.make_tensor_value_info("y", T.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [constant(name, value) for name, value in values.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


@pytest.mark.parametrize(
    "options",
    [
        ("inputs.shapes={x: [1, 3, 32, 32]}",),
        ("target.profiles={x: {min: [1, 3, 32, 32], opt: [2, 3, 32, 32], max: [4, 3, 48, 48]}}",),
        ("inputs.shapes={x: [1, 3, 32, 32]}", "cut.policy=input"),
    ],
    ids=["fixed", "dynamic", "shapes are inputs"],
)
def test_cuts_in_front_of_a_reshape_and_of_a_resize_build(
    tmp_path: Path, rtx_python: str, options: tuple[str, ...]
) -> None:
    once = "strategy=reduce_linear", "strategy.shrink=false", "checker.flaky=never"
    run = builds(resizing(), tmp_path, rtx_python, *once, *options)
    assert run.code == 0, run.output
    assert run.result["culprits"] == [CULPRIT]
    # one node less each time: a cut that did not build would have another signature, or none
    assert set(run.result["outcomes"]) <= {"pass", "fail"}


def test_what_is_found_builds_nowhere_else_either(tmp_path: Path, rtx_python: str) -> None:
    run = builds(
        resnet(17, FAILURES["mat_mul"].plant),
        tmp_path,
        rtx_python,
        "checker.keep=[engine, log, layers]",
        "strategy.look_inside=false",
    )
    assert unpacked(run.folder, tmp_path / "unpacked", rtx_python).code == 1
    good = sorted(path.suffix for path in (run.folder / "artifacts" / "good").iterdir())
    assert good == [".engine", ".json", ".log"]  # of min_good.onnx


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("target=onnxruntime",), "Set target=tensorrt"),
        (("target=tensorrt", "checker.keep=[nothing]"), "engine, log, layers"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    onnx.save(resnet(17, None), str(tmp_path / "net.onnx"))
    run = winnow("model=net.onnx", "checker=builds", *options, folder=tmp_path / "run")
    assert run.code == 2
    assert said in run.output


@pytest.mark.variants
@pytest.mark.parametrize("checker", ["auto", "builds", "compare", "finite", "runs"])
def test_without_tensorrt_one_line_says_what_to_install(tmp_path: Path, checker: str) -> None:
    onnx.save(resnet(17, None), str(tmp_path / "net.onnx"))
    options = ("target=tensorrt", "target.flavor=tensorrt", f"checker={checker}")
    run = winnow("model=net.onnx", *options, "verbosity=error", folder=tmp_path / "run")
    if "is not installed under this interpreter" not in run.output:
        pytest.skip("TensorRT itself is installed here")
    assert run.code == 2
    assert "pip install tensorrt" in run.output
    assert len(run.output.strip().splitlines()) == 1
