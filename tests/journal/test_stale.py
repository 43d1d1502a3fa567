"""A folder that is used again holds the results of its last run only."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from runner import run_folder
from runner.journal import artifact_folder
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import whole
from runner.model.graph.graph_index import Graph
from runner.run_folder import Marker
from tests.harness import by_command, check_script, winnow
from tests.jobs.reduce.test_hard_failures import plain
from tests.model.models import model_of, tensor


@pytest.mark.slow
def test_what_an_earlier_run_handed_over_goes(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, "sys.exit(1 if {'Cos_4', 'Abs_1'} & nodes else 0)"))
    first = winnow(*plain(tmp_path), *check, "strategy.find=all", folder=tmp_path / "run")
    assert {"answers", "min_good.onnx", "reduced.onnx"} <= {path.name for path in first.folder.iterdir()}
    known = {*run_folder.named(first.folder, run_folder.OF_A_RUN), run_folder.NAME}
    assert {path.name for path in first.folder.iterdir()} == known
    refused = winnow(*plain(tmp_path), *check, "strategy.find=all", "strategy.reduce_inputs=false", folder=first.folder)
    assert refused.code == 2
    assert "result.json" not in refused.output
    assert (first.folder / "answers").exists()
    again = winnow(*plain(tmp_path), *check, "result.find_min_good=false", folder=first.folder)
    assert again.result["culprits"] == first.result["culprits"], again.output
    assert not {"answers", "min_good.onnx"} & {path.name for path in again.folder.iterdir()}
    assert (again.folder / "reduced.onnx").exists()


def test_weights_go_with_their_model_and_nothing_else_does(tmp_path: Path) -> None:
    add = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    cut = whole(Graph.of(model_of([add], ["x"], ["y"], [tensor("w", np.ones((600, 3), np.float32))])))
    store = Store(tmp_path / "store")
    for name in ("reduced", "min_good"):
        store.standalone(cut.model, tmp_path / f"{name}.onnx", external_data=f"{name}.bin")
    listed = {"reduced.onnx", "reduced.bin", "min_good.onnx", "min_good.bin", "answers", "test_data_set_1"}
    run_folder.write(tmp_path, Marker(running=False, wrote=frozenset(listed)))
    (tmp_path / "mine.bin").touch()
    (tmp_path / "answers" / "notes").mkdir(parents=True)
    (tmp_path / "answers" / "2").mkdir()
    (tmp_path / "test_data_set_1").mkdir()
    shutil.rmtree(store.folder, ignore_errors=True)
    artifact_folder.drop(tmp_path, [tmp_path / "reduced.onnx"])
    assert {path.name for path in tmp_path.iterdir()} == {
        *("reduced.onnx", "reduced.bin", "mine.bin", "answers", run_folder.NAME)
    }
    assert [path.name for path in (tmp_path / "answers").iterdir()] == ["notes"]


def test_inputs_of_this_run_stay(tmp_path: Path) -> None:
    run_folder.write(tmp_path, Marker(running=True))
    for name in ("test_data_set_0", "test_data_set_1"):
        (tmp_path / name).mkdir()
    artifact_folder.drop(tmp_path, [tmp_path / "test_data_set_1" / "input_0.pb"])
    assert {path.name for path in tmp_path.iterdir()} == {"test_data_set_1", run_folder.NAME}
    artifact_folder.drop(tmp_path, [tmp_path])
    assert {path.name for path in tmp_path.iterdir()} == {"test_data_set_1", run_folder.NAME}


def test_a_file_that_only_looks_like_a_model(tmp_path: Path) -> None:
    run_folder.write(tmp_path, Marker(running=True))
    (tmp_path / "min_good.onnx").write_text("no model")
    artifact_folder.drop(tmp_path, [])
    assert [path.name for path in tmp_path.iterdir()] == [run_folder.NAME]


def test_what_no_run_has_listed_stays(tmp_path: Path) -> None:
    """A model of the run's that names files of the user's as its weights, and files of the user's by a run's names."""
    add = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    cut = whole(Graph.of(model_of([add], ["x"], ["y"], [tensor("w", np.ones((600, 3), np.float32))])))
    Store(tmp_path / "store").standalone(cut.model, tmp_path / "reduced.onnx", external_data="mine.bin")
    (tmp_path / "answers" / "1").mkdir(parents=True)
    (tmp_path / "layers.json").touch()
    before = {path.name for path in tmp_path.iterdir()}
    artifact_folder.drop(tmp_path, [])
    assert {path.name for path in tmp_path.iterdir()} == before
    run_folder.write(tmp_path, Marker(running=False, wrote=frozenset({"reduced.onnx"})))
    artifact_folder.drop(tmp_path, [])
    assert {path.name for path in tmp_path.iterdir()} == before - {"reduced.onnx"} | {run_folder.NAME}
