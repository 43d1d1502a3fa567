"""Whole runs whose target executes engines, on a pretended TensorRT and two pretended GPUs.

The stand-in mirrors what its author read: no GPU has run this.
"""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.fake_tensorrt import Installed, install
from tests.harness import PRETENDED_GPUS, Run, winnow, without_nvml
from tests.jobs.models import parsed

pytestmark = pytest.mark.slow


def network() -> onnx.ModelProto:
    """A chain of sums, a Softplus in its middle; at its side the places of what is positive: a shape that data tell."""
    names = ["x", *(f"a{number}" for number in range(10))]
    sums = [f"[add{at}] a{at} = Add({names[at]}, w)" for at in range(10)]
    sums[5] = "[culprit] a5 = Softplus(a4)"
    text = f"""g (float[4,64] x) => (float[4,64] a9, int64[n,2] listed) <float w = {{0.25}}> {{
        {" ".join(sums)} [relu] positive = Relu(a2) [places] places = NonZero(positive)
        [listed] listed = Transpose<perm = [1, 0]>(places) }}"""
    return parsed(text, ir=9)


def run(folder: Path, made: Installed, *options: str) -> Run:
    onnx.save(network(), str(folder / "net.onnx"))
    target = ("target=tensorrt", f"target.python={made.python}", "checker=compare", "checker.flaky=never")
    gpus = (f"workers.gpus=[{','.join(PRETENDED_GPUS)}]", f"workers.lease_folder={folder / 'locks'}", "workers.count=2")
    return winnow(
        f"model={folder / 'net.onnx'}", *target, *gpus, *options, folder=folder / "run", environment=without_nvml()
    )


def test_a_wrong_operator_is_found_under_leases(tmp_path: Path) -> None:
    made = install(tmp_path, "rtx")
    made.plant("wrong:Softplus")
    done = run(tmp_path, made, "reference=onnx_reference")
    assert done.code == 0, done.output
    assert done.result["culprits"] == ["culprit"]
    assert done.result["signature"]["stage"] == "compare"
    notes = [json.loads(line) for line in made.notes.read_text().splitlines()]
    assert {note["gpu"] for note in notes} <= set(PRETENDED_GPUS), "a process without a lease has touched a GPU"


def test_a_shape_that_data_tell_is_no_failure(tmp_path: Path) -> None:
    done = run(tmp_path, install(tmp_path, "11"))
    assert done.code == 4, done.output
    assert done.result["status"] == "nothing_to_find"


def test_an_error_that_stays_condemns_no_other_model(tmp_path: Path) -> None:
    made = install(tmp_path, "10")
    made.plant("illegal_in:Softplus")
    done = run(tmp_path, made, "checker=runs")
    assert done.code in (0, 8), done.output
    assert done.result["culprits"] == ["culprit"]
    assert done.result["signature"]["kind"] == "error cudaErrorIllegalAddress"
