"""What does not fit on the disk is not copied until the disk is full."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from runner.model.values import tensor_bytes
from tests.harness import winnow
from tests.model.models import model_of


def test_weights_that_the_disk_cannot_hold_twice_are_not_copied(tmp_path: Path) -> None:
    many = 1 << 40
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[many])
    tensor_bytes.set_reference(weight, "w.bin", 0, 4 * many)
    onnx.save(model_of([helper.make_node("Neg", ["w"], ["y"])], [], ["y"], [weight]), tmp_path / "m.onnx")
    (tmp_path / "w.bin").touch()
    os.truncate(tmp_path / "w.bin", 4 * many)  # a hole: it takes no room itself
    run = winnow(f"model={tmp_path / 'm.onnx'}", "checker=compare", folder=tmp_path / "run")
    assert (run.code, run.result["status"]) == (1, "no_room"), run.output
    assert "a run's copy of the weights takes 4194304 MiB" in run.result["message"]
    assert not list(run.folder.glob("store/weights*"))
