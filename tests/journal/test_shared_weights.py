"""What is left of a run's store at its end: the candidates that the disk budget allows, with their weights."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.journal.kept_files import confirm_source, leave_affordable, leave_kept, model_of, point
from runner.model.files.candidate_store import Store
from runner.model.files.read_model import ingest
from runner.model.graph.cut import cut
from runner.model.graph.graph_index import Graph

SIDE = 512  # a weight takes 1 MiB
SQUARE = helper.make_tensor_type_proto(TensorProto.FLOAT, [SIDE, SIDE])


def read(folder: Path, values: range) -> Store:
    """A model of four weights that hold these values, read into a store."""
    nodes = [helper.make_node("Add", ["x" if not at else f"h{at}", f"w{at}"], [f"h{at + 1}"]) for at in range(4)]
    weights = [
        numpy_helper.from_array(np.full((SIDE, SIDE), value, np.float32), f"w{at}") for at, value in enumerate(values)
    ]
    ends = [helper.make_value_info(name, SQUARE) for name in ("x", "h4")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    store = Store(folder / "store", inline_limit=0)
    leave_kept(store.folder)
    facts = ingest({"model": str(folder / "model.onnx"), "store": str(store.folder), "inline_limit": 0})
    confirm_source(store, facts["sha256"])
    return store


@pytest.mark.parametrize(
    ("budget_mb", "left"), [(4, ["large", "small"]), (3, ["large", "small"]), (2, ["small"]), (0, [])]
)
def test_shared_weights_count_once(budget_mb, left, tmp_path: Path, caplog) -> None:
    store = read(tmp_path, range(4))
    whole = Graph.load(store.structure)
    bad = tmp_path / "artifacts" / "bad"
    bad.mkdir(parents=True)
    for name, keep in (("large", [0, 1]), ("small", [1]), ("other", [2, 3])):
        types = dict.fromkeys(("x", "h1", "h2", "h3", "h4"), SQUARE)
        path = store.write(cut(whole, keep, types=types, constants={}).model, tmp_path / name)
        if name != "other":  # that one was not kept
            kept = path.rename(store.folder / f"kept.{name}.onnx")
            (bad / f"{name}.onnx.txt").write_text(f"model: {kept}\nweights: {store.weights}\n")
            (bad / f"{name}.inputs.npz").touch()  # they go with it
            (bad / f"{name}.data").mkdir()
    with caplog.at_level(logging.WARNING):
        leave_affordable(store, tmp_path / "artifacts", budget_mb)
    assert sorted(path.name for path in store.folder.glob("kept.*")) == [f"kept.{name}.onnx" for name in left]
    wanted = [f"{name}.{suffix}" for name in left for suffix in ("data", "inputs.npz", "onnx.txt")]
    assert sorted(path.name for path in bad.iterdir()) == wanted
    assert store.weights.exists() is bool(left)
    if left:
        assert store.weights.stat().st_blocks * 512 < (len(left) << 20) + (1 << 16)
    assert len(caplog.messages) == 2 - len(left)
    for message in caplog.messages:
        assert f"artifacts.disk_budget_mb={budget_mb}" in message


@pytest.mark.parametrize("ended", [False, True], ids=["killed", "ended"])
@pytest.mark.parametrize("first", [0, 1], ids=["the same model", "another model"])
def test_kept_candidates_outlive_the_run_that_goes_on(first: int, ended: bool, tmp_path: Path) -> None:
    """They refer to weights that are read again; of another model's they would get the wrong ones."""
    run, moved = tmp_path / "run", tmp_path / "moved"
    bad = run / "artifacts" / "bad"
    bad.mkdir(parents=True)
    store = read(run, range(4))
    types = dict.fromkeys(("x", "h1", "h2", "h3", "h4"), SQUARE)
    made = store.write(cut(Graph.load(store.structure), [1], types=types, constants={}).model, run / "7")
    kept = made.rename(store.folder / "kept.one.onnx")
    (store.folder / "00008.model.onnx").touch()
    point(bad / "one.onnx.txt", kept, relative=True)
    if ended:
        leave_affordable(store, run / "artifacts", 100)
    store = read(run, range(first, first + 4))
    assert sorted(path.name for path in store.folder.glob("*.onnx")) == [
        *(["kept.one.onnx"] if not first else []),
        "structure.onnx",
    ]
    leave_affordable(store, run / "artifacts", 100)
    shutil.move(run, moved)
    if first:
        assert not list(bad.glob("*")) and not list((moved / "store").iterdir())
        return
    held = model_of(moved / "artifacts" / "bad" / "one.onnx.txt")
    assert held
    (weight,) = onnx.load(str(held)).graph.initializer
    assert (numpy_helper.to_array(weight) == 1).all()
