"""Whole runs whose target executes engines, on a pretended TensorRT and two pretended GPUs.

The stand-in mirrors what its author read: no GPU has run this.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from tests.fake_tensorrt import Installed, install
from tests.harness import PRETENDED_GPUS, Run, winnow, without_nvml


def network() -> onnx.ModelProto:
    """A chain of sums, a Softplus in its middle; at its side the places of what is positive: a shape that data tell."""
    nodes, last = [], "x"
    for number in range(10):
        made = helper.make_node("Add", [last, "w"], [f"a{number}"], name=f"add{number}")
        if number == 5:
            made = helper.make_node("Softplus", [last], [f"a{number}"], name="culprit")
        nodes.append(made)
        last = f"a{number}"
    nodes += [
        helper.make_node("Relu", ["a2"], ["positive"], name="relu"),
        helper.make_node("NonZero", ["positive"], ["places"], name="places"),
        helper.make_node("Transpose", ["places"], ["listed"], name="listed", perm=[1, 0]),
    ]
    values = [
        helper.make_tensor_value_info("x", T.FLOAT, [4, 64]),
        helper.make_tensor_value_info(last, T.FLOAT, [4, 64]),
        helper.make_tensor_value_info("listed", T.INT64, ["n", 2]),
    ]
    weights = [numpy_helper.from_array(np.full((64,), 0.25, np.float32), "w")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(folder: Path, made: Installed, *options: str) -> Run:
    onnx.save(network(), str(folder / "net.onnx"))
    target = ("target=tensorrt", f"target.python={made.python}", "checker=compare", "checker.flaky=never")
    gpus = (f"workers.gpus=[{','.join(PRETENDED_GPUS)}]", f"workers.lease_folder={folder / 'locks'}", "workers.count=2")
    return winnow(
        f"model={folder / 'net.onnx'}", *target, *gpus, *options, folder=folder / "run", environment=without_nvml()
    )


@pytest.mark.slow
def test_a_wrong_operator_is_found_under_leases(tmp_path: Path) -> None:
    made = install(tmp_path, "rtx")
    made.plant("wrong:Softplus")
    done = run(tmp_path, made, "reference=onnx_reference")
    assert done.code == 0, done.output
    assert done.result["culprits"] == ["culprit"]
    assert done.result["signature"]["stage"] == "compare"
    notes = [json.loads(line) for line in made.notes.read_text().splitlines()]
    assert {note["gpu"] for note in notes} <= set(PRETENDED_GPUS), "a process without a lease has touched a GPU"


@pytest.mark.slow
def test_a_shape_that_data_tell_is_no_failure(tmp_path: Path) -> None:
    done = run(tmp_path, install(tmp_path, "11"))
    assert done.code == 4, done.output
    assert done.result["status"] == "nothing_to_find"


@pytest.mark.slow
def test_what_tensorrt_refuses_is_no_failure_of_the_model(tmp_path: Path) -> None:
    made = install(tmp_path, "10")
    made.plant("set_tensor_address")
    done = run(tmp_path, made)
    assert done.code not in {0, 1}, done.output
    assert "refuses an address for 'x'" in done.output
    assert "culprits" not in done.result or not done.result["culprits"]


@pytest.mark.slow
def test_a_flag_of_weak_typing_says_the_way_out(tmp_path: Path) -> None:
    done = run(tmp_path, install(tmp_path, "10"), "target.flags=[FP16]")
    assert done.code == 2, done.output
    assert "strategy=precision" in done.output and "strongly_typed=false" in done.output


@pytest.mark.slow
def test_an_error_that_stays_condemns_no_other_model(tmp_path: Path) -> None:
    made = install(tmp_path, "10")
    made.plant("illegal_in:Softplus")
    done = run(tmp_path, made, "checker=runs")
    assert done.code in (0, 8), done.output
    assert done.result["culprits"] == ["culprit"]
    assert done.result["signature"]["kind"] == "error cudaErrorIllegalAddress"
