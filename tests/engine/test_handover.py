"""What is handed over stands alone, also beside another model in the same folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from runner.engine.min_good import HandOver
from runner.exit_codes import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import whole
from runner.model.graph.graph_index import Graph
from runner.run_folder import MIN_GOOD, REDUCED
from runner.schema.root import ResultSettings
from strategies.search import Trial
from tests.model.models import model_of, tensor


def model_with(value: float) -> onnx.ModelProto:
    node = onnx.helper.make_node("Add", ["a", "w"], ["y"])
    return model_of([node], ["a"], ["y"], [tensor("w", np.full(1000, value, np.float32))])


class Models:
    """A subject that has one model for each number of elements."""

    def cut(self, trial):
        return whole(Graph.of(model_with(len(trial))))


def hands(tmp_path: Path, **given) -> HandOver:
    return HandOver(ResultSettings(**given), tmp_path, tmp_path.joinpath, Store(tmp_path / "store"))


def weight(path: Path) -> float:
    return float(numpy_helper.to_array(onnx.load(str(path)).graph.initializer[0])[0])


def test_two_models_in_one_folder_do_not_share_a_weights_file(tmp_path):
    hand_over = hands(tmp_path, external_data="w.data", path="r.onnx", min_good="g.onnx")
    assert hand_over.write(Models(), Trial.of([0]), REDUCED) == tmp_path / "reduced.onnx"
    hand_over.write(Models(), Trial.of([0, 1]), MIN_GOOD)
    assert (tmp_path / "w.data").is_file()
    assert [weight(tmp_path / name) for name in ("reduced.onnx", "r.onnx", "min_good.onnx", "g.onnx")] == [1, 1, 2, 2]


def test_what_did_not_stand_the_test_goes_with_its_weights(tmp_path):
    hand_over = hands(tmp_path, external_data="w.data", min_good="g.onnx")
    hand_over.write(Models(), Trial.of([0]), REDUCED)
    before = set(tmp_path.iterdir())
    hand_over.write(Models(), Trial.of([0, 1]), MIN_GOOD)
    assert set(tmp_path.iterdir()) > before
    hand_over.withdraw(MIN_GOOD)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("key", ["path", "min_good"])
def test_what_is_no_file_is_not_replaced(tmp_path, key):
    """A device, a pipe, a folder; not /dev/null itself, in case this test fails."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(UsageError, match=f"result.{key}="):
            hands(tmp_path, **{key: name})
