"""What is left of a run's store at its end: the candidates that the disk budget allows, with their weights."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.artifacts.shared_weights import leave_affordable
from runner.model.files.candidate_store import Store
from runner.model.files.read_model import ingest
from runner.model.graph.cut import cut
from runner.model.graph.graph_index import Graph

SIDE = 512  # a weight takes 1 MiB


@pytest.mark.parametrize(
    ("budget_mb", "left"), [(4, ["large", "small"]), (3, ["large", "small"]), (2, ["small"]), (0, [])]
)
def test_shared_weights_count_once(budget_mb, left, tmp_path: Path, caplog) -> None:
    square = helper.make_tensor_type_proto(TensorProto.FLOAT, [SIDE, SIDE])
    nodes = [helper.make_node("Add", ["x" if not at else f"h{at}", f"w{at}"], [f"h{at + 1}"]) for at in range(4)]
    weights = [numpy_helper.from_array(np.full((SIDE, SIDE), at, np.float32), f"w{at}") for at in range(4)]
    values = [helper.make_value_info(name, square) for name in ("x", "h4")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    ingest({"model": str(tmp_path / "model.onnx"), "store": str(tmp_path / "store"), "inline_limit": 0})
    store = Store(tmp_path / "store", inline_limit=0)
    whole = Graph.load(store.structure)
    bad = tmp_path / "artifacts" / "bad"
    bad.mkdir(parents=True)
    for name, keep in (("large", [0, 1]), ("small", [1]), ("other", [2, 3])):
        types = dict.fromkeys(("x", "h1", "h2", "h3", "h4"), square)
        path = store.write(cut(whole, keep, types=types, constants={}).model, tmp_path / name)
        if name != "other":  # that one was not kept
            kept = path.rename(store.folder / f"kept.{name}.onnx")
            (bad / f"{name}.onnx.txt").write_text(f"model: {kept}\nweights: {store.weights}\n")
    with caplog.at_level(logging.WARNING):
        leave_affordable(store, tmp_path / "artifacts", budget_mb)
    assert sorted(path.name for path in store.folder.glob("kept.*")) == [f"kept.{name}.onnx" for name in left]
    assert sorted(path.name for path in bad.iterdir()) == [f"{name}.onnx.txt" for name in left]
    assert store.weights.exists() is bool(left)
    if left:
        assert store.weights.stat().st_blocks * 512 < (len(left) << 20) + (1 << 16)
    assert len(caplog.messages) == 2 - len(left)
    for message in caplog.messages:
        assert f"artifacts.disk_budget_mb={budget_mb}" in message
