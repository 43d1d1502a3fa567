"""Errors and ranges of layers, nested ones included, from one instrumented run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from runner.model.values.dtypes import FLOATS
from runner.workers.pool import Pool

FLOAT16, BFLOAT16 = 10, 16
NESTED = """
<ir_version: 9, opset_import: ["": 18]>
g (float[2,3] x, bool c, int64 n) => (float[2,3] y, float[K,2,3] stack, float[3] last)
<float up = {70000.0}, float down = {0.00001}, float w = {3.0}, float[3] start = {0.0, 0.0, 0.0}, bool go = {1}>
{
  a = Mul(x, w)
  [iff] b = If(c) <then_branch = t () => (float[2,3] tb) { t1 = Mul(a, up)  tb = Mul(t1, down) },
                   else_branch = e () => (float[2,3] eb) { e1 = Mul(a, w)  e2 = Add(e1, w)  eb = Identity(e2) }>
  [loop] y, stack = Loop(n, go, b) <body = bd (int64 i, bool ci, float[2,3] s) =>
     (bool co, float[2,3] so, float[2,3] sc)
     { co = Identity(ci)  s1 = Mul(s, w)  so = Mul(s1, w)  sc = Sub(so, a) }>
  [scan] last, z = Scan(start, y) <num_scan_inputs = 1, body = sb (float[3] st, float[3] el) =>
     (float[3] st2, float[3] o)
     { st2 = Add(st, el)  o = Sqrt(st2) }>
}
"""
LAYERS = [[0, 0, "a"], [1, 1, "t1"], [2, 1, "tb"], [3, 2, "e1"], [4, 3, "s1"], [5, 3, "so"], [6, 4, "st2"]]
TENSORS = [[0, "a"], [1, "a"], [1, "t1"], [2, "e1"], [3, "s1"], [3, "so"], [4, "st2"]]


def sample(folder: Path, **values: Any) -> dict[str, str]:
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(np.asarray(value), name).SerializeToString())
    return {name: str(folder / f"{name}.pb") for name in values}


def told(pool: Pool, folder: Path, samples: list[Mapping[str, str]], low: int = FLOAT16) -> dict[str, Any]:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(NESTED), str(path))
    largest = FLOATS[low].largest
    args = {
        "model": str(path),
        "low": low,
        "largest": largest,
        "layers": LAYERS,
        "tensors": TENSORS,
        "clamped": ["up"],
        "samples": samples,
    }
    reply = pool.call("introduced", args, timeout=60)
    assert reply.value, reply
    return dict(reply.value)


def test_what_nested_graphs_compute_is_measured(pool: Pool, tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    found = told(pool, tmp_path, [sample(tmp_path / "1", x=x, c=np.array(True), n=np.array(3))])
    assert found["ranges"]["0/a"] == 3.0
    assert found["ranges"]["1/a"] == 3.0
    assert found["ranges"]["1/t1"] == pytest.approx(210000.0)
    # 2.1, and nine times as much after each of three iterations: the worst of all
    assert found["ranges"]["3/so"] == pytest.approx(2.1 * 9**3)
    assert "2/e1" not in found["ranges"]
    # the weight is clamped to 65504, and the product is out of range all the same
    assert found["layers"]["1"] is None
    assert 0 < found["layers"]["5"] < 1e-3
    assert "3" not in found["layers"]


def test_each_branch_is_measured_by_the_samples_that_take_it(pool: Pool, tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    samples = [sample(tmp_path / str(c), x=x, c=np.array(c), n=np.array(0)) for c in (True, False)]
    found = told(pool, tmp_path, samples, BFLOAT16)
    assert found["ranges"]["2/e1"] == 9.0
    assert found["ranges"]["1/t1"] == pytest.approx(210000.0)
    assert found["layers"]["1"] < 0.01, "bfloat16 has the range"
    # no iteration, nothing known
    assert "3/so" not in found["ranges"] and "5" not in found["layers"]


def test_a_larger_sample_counts(pool: Pool, tmp_path: Path) -> None:
    samples = [
        sample(tmp_path / str(size), x=np.full((2, 3), size, np.float32), c=np.array(False), n=np.array(1))
        for size in (1.0, 4.0, 2.0)
    ]
    found = told(pool, tmp_path, samples)
    assert found["ranges"]["0/a"] == 12.0
    assert all(error is None or math.isfinite(error) for error in found["layers"].values())
