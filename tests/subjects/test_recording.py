"""Recording values where the model as a whole cannot be run: what can be is, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.errors import UsageError
from runner.model import values
from runner.model.graph import Graph
from runner.model.store import Store
from runner.subjects.recording import Recorder
from runner.workers.pool import Pool

ORT = {"name": "onnxruntime", "optimization": "none", "providers": ["CPUExecutionProvider"]}


def info(name, dims=(2,), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def endless():
    """A branch that can be run beside a Loop that does not end, and what depends on that."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [info("i", (), TensorProto.INT64), info("go", (), TensorProto.BOOL), info("v")],
        [info("on", (), TensorProto.BOOL), info("w")],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node("Loop", ["", "yes", "a"], ["stuck"], name="loop", body=body),
        helper.make_node("Neg", ["stuck"], ["y"], name="after"),
        helper.make_node("Exp", ["a"], ["z"], name="beside"),
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y"), info("z")], [yes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def pool(tmp_path: Path):
    with Pool(tmp_path / "workers") as pool:
        yield pool


def recorder(tmp_path: Path, pool: Pool, **given) -> Recorder:
    pytest.importorskip("onnxruntime")
    graph = Graph.of(endless())
    return Recorder(
        graph, Store(tmp_path), pool, given.pop("backend", ORT), graph.value_types, tmp_path / "values", **given
    )


def sample(tmp_path: Path):
    return {"x": values.write(np.array([1, -1], np.float32), "x", tmp_path / "x.pb")}


def test_a_node_that_hangs_is_found_and_the_others_are_recorded(tmp_path, pool):
    recorded = recorder(tmp_path, pool, timeout=16.0).record([sample(tmp_path)])
    assert recorded.unrunnable == ("loop",)
    assert recorded.reason == "timeout"
    assert recorded.values[0].keys() == {"x", "a", "z"}
    assert not recorded.out_of_time


def test_out_of_time_is_said_and_nothing_is_blamed(tmp_path, pool):
    recorded = recorder(tmp_path, pool, timeout=0.1).record([sample(tmp_path)])
    assert recorded.out_of_time
    assert recorded.unrunnable == ()
    assert recorded.values[0].keys() == {"x"}


def test_settings_that_cannot_work_are_not_tried_on_every_node(tmp_path, pool):
    with pytest.raises(UsageError, match=r"no values can be recorded with onnxruntime.*NoSuchProvider"):
        recorder(tmp_path, pool, backend={**ORT, "providers": ["NoSuchProvider"]}).record([sample(tmp_path)])
