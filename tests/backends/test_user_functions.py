from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from runner.workers.pool import Pool
from tests.backends.conftest import Lab, load

SOURCE = """
import numpy as np
import beside

def check(model, inputs, expected):
    [sample], [wanted] = inputs, expected
    assert sample["b"].dtype.name == "bfloat16"
    return {
        "model": model,
        "ok": np.bool_((sample["x"] == wanted["y"]).all()),
        "sum": sample["x"].sum(),
        "list": np.arange(2),
        "other": beside.NAME,
    }

def verdict(model, inputs, expected):
    return np.bool_(False)

def text(model, inputs, expected):
    return "mismatch"

def samples():
    for seed in range(2):
        yield {"a/b": np.full((2, 3), seed, np.float32), "n": 3, "s": np.array(["x"])}

def one():
    return {"x": np.ones(1)}

def wrong():
    return [{"x": [1, 2]}]

def none():
    return []
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    return path


def test_check(lab: Lab, pool: Pool, source: Path) -> None:
    x = lab.tensor(np.arange(3.0))
    b = lab.tensor(np.ones(2, ml_dtypes.bfloat16))
    arguments = {"file": str(source), "model": "m.onnx", "samples": [{"x": x, "b": b}], "expected": [{"y": x}]}
    result = pool.call("user_check", {**arguments, "function": "check"}).value
    assert result == {"result": {"model": "m.onnx", "ok": True, "sum": 3.0, "list": [0, 1], "other": "beside"}}
    assert pool.call("user_check", {**arguments, "function": "verdict"}).value == {"result": False}
    assert pool.call("user_check", {**arguments, "function": "text"}).value == {"result": "mismatch"}
    failure = pool.call("user_check", {**arguments, "function": "chekc"}).failure
    assert failure.stage == "setup" and "functions there: check, none, one, samples" in failure.message


def test_a_changed_file_is_loaded_again(pool: Pool, tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    arguments = {"file": str(path), "function": "check", "model": "m", "samples": [], "expected": []}
    for word in ("one", "two"):
        path.write_text(f"def check(model, inputs, expected):\n    return {word!r}")
        assert pool.call("user_check", arguments).value == {"result": word}
    path.write_text("import no_such_module_at_all")
    failure = pool.call("user_check", arguments).failure
    assert failure.stage == "setup" and "no_such_module_at_all" in failure.message
    failure = pool.call("user_check", {**arguments, "file": str(tmp_path / "nowhere.py")}).failure
    assert failure.stage == "setup" and "nowhere.py" in failure.message


def test_inputs(pool: Pool, source: Path, tmp_path: Path) -> None:
    arguments = {"file": str(source), "function": "samples", "out": str(tmp_path / "made")}
    samples = pool.call("user_inputs", arguments).value["samples"]
    assert len(samples) == 2
    np.testing.assert_array_equal(numpy_helper.to_array(load(samples[1]["a/b"])), np.ones((2, 3), np.float32))
    assert samples[0]["n"]["dtype"] == TensorProto.INT64 and samples[0]["s"]["dtype"] == TensorProto.STRING
    assert len(pool.call("user_inputs", {**arguments, "function": "one"}).value["samples"]) == 1
    failure = pool.call("user_inputs", {**arguments, "function": "wrong"}).failure
    assert failure.stage == "inputs" and "sample 0, 'x'" in failure.message
    assert "no sample" in pool.call("user_inputs", {**arguments, "function": "none"}).failure.message
