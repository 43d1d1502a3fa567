"""Two builds on a GPU: tactics recorded, and one other tactic pinned. Not yet run anywhere: unverified."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from runner.backends.trt.tactics import parse_file
from runner.workers.pool import Pool
from tests.model.models import model_of


def pinned_again(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the pins that were asked for, and what the build with them tells."""
    model = folder / "model.onnx"
    weights = numpy_helper.from_array(np.ones((128, 128), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Softmax", ["a"], ["b"], name="soft"),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="second"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [128, 128]) for name in "xy"]
    onnx.save(model_of(nodes, ends[:1], ends[1:], [weights], ir=9), str(model))
    with Pool(folder / "workers") as pool:
        cache = folder / "cache"
        first = _build(pool, model, folder / "first", {"load": [], "pins": {}, "save": str(cache)})
        pins = {one["key"]: one["tactic"] for one in first["choices"]}
        record = next(one for one in parse_file(str(folder / "first" / "build.log")) if len(one.kernels) > 1)
        pins[record.key] = next(tactic for tactic in record.kernels if tactic != record.selected)
        request = {"load": [str(cache)], "pins": pins, "save": None, "error_on_miss": True}
        return pins, _build(pool, model, folder / "second", request)


def _build(pool: Pool, model: Path, out: Path, tactics: dict[str, Any]) -> dict[str, Any]:
    args = {
        "backend": {"name": "tensorrt", "flavor": "tensorrt"},
        "model": str(model),
        "samples": [],
        "out": str(out),
        "keep": ["log"],
        "tactics": tactics,
    }
    reply = pool.call("build", args, python=sys.executable, timeout=600, fresh=True)
    assert reply.value, reply
    told: dict[str, Any] = reply.value["tactics"]
    return told
