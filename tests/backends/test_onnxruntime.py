from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.backends.conftest import Lab

F = TensorProto.FLOAT


@pytest.fixture
def model(lab: Lab) -> Path:
    return lab.model([helper.make_node("Neg", ["x"], ["y"])], {"x": (F, [2])}, {"y": (F, [2])})


def run(lab: Lab, model: Path, **settings: Any) -> Any:
    return lab.run({"name": "onnxruntime", **settings}, model, {"x": np.ones(2, np.float32)})


def plugged(library: str) -> dict[str, Any]:
    return {"providers": ["PluggedProvider"], "provider_libraries": {"PluggedProvider": library}}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"providers": ["NoSuchProvider"]}, ["providers=NoSuchProvider", "CPUExecutionProvider"]),
        ({"optimization": "more"}, ["optimization=more", "valid: all, basic, extended", "none"]),
        (
            {"session_options": {"no_such": "1"}},
            ["session_options=no_such", "enable_mem_pattern", "inter_op_num_threads"],
        ),
        ({"session_options": {"execution_mode": "x"}}, ["execution_mode=x", "ORT_PARALLEL, ORT_SEQUENTIAL"]),
        ({"session_options": {"enable_mem_pattern": "x"}}, ["enable_mem_pattern=x", "false, true"]),
        ({"session_options": {"inter_op_num_threads": "x"}}, ["inter_op_num_threads=x", "a whole number"]),
        ({"custom_ops": ["/no/such/library.so"]}, ["custom_ops=/no/such/library.so", "no such file"]),
        ({"custom_ops": ["~/no such library.so"]}, ["custom_ops=/", "no such library.so", "no such file"]),
        ({"custom_ops": [__file__]}, ["custom_ops=", "test_onnxruntime.py"]),
        (plugged("no_such_package"), ["provider_libraries.PluggedProvider=no_such_package", "no such package"]),
        (plugged("/no/such/library.so"), ["provider_libraries.PluggedProvider=/no/such", "no such file"]),
        (plugged(__file__), ["provider_libraries.PluggedProvider=", "cannot be loaded"]),
    ],
)
def test_wrong_settings_are_one_clear_error(lab: Lab, model: Path, settings: dict[str, Any], words: list[str]) -> None:
    failure = run(lab, model, **settings).failure
    assert failure.stage == "setup"
    for word in words:
        assert word in failure.message
    assert "\n" not in failure.message


@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
def test_settings_reach_the_session(lab: Lab, level: str) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    model = lab.model(nodes, {"x": (F, [2])}, {"y": (F, [2])})
    saved = lab.folder / "optimized.onnx"
    options = {
        "optimized_model_filepath": str(saved),
        "enable_mem_pattern": "false",
        "execution_mode": "ORT_PARALLEL",
        "inter_op_num_threads": "2",
    }
    reply = run(
        lab,
        model,
        optimization=level,
        session_options=options,
        config_entries={"session.intra_op.allow_spinning": "0"},
        providers=[["CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"}]],
        threads=2,
    )
    assert reply.failure is None
    assert (b"Identity" in saved.read_bytes()) == (level == "none")


def test_status_is_the_type_of_the_error(lab: Lab) -> None:
    mixed = lab.model(
        [helper.make_node("Add", ["x", "z"], ["y"])], {"x": (F, [2]), "z": (TensorProto.INT64, [2])}, {"y": (F, [2])}
    )
    failure = lab.run("onnxruntime", mixed, {"x": np.ones(2, np.float32), "z": np.ones(2, np.int64)}).failure
    assert (failure.stage, failure.type) == ("load", "FAIL" if failure.type == "FAIL" else "INVALID_GRAPH")
    assert "ONNXRuntimeError" not in failure.message


def test_wrong_feed_type(lab: Lab, model: Path) -> None:
    failure = lab.run("onnxruntime", model, {"x": np.ones(2, np.int64)}).failure
    assert (failure.stage, failure.type) == ("infer", "INVALID_ARGUMENT")
