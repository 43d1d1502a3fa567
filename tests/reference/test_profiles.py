"""Random inputs move as the profiles of a TensorRT target say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.exit_codes import UsageError
from runner.model.graph.graph_index import Graph
from runner.reference.load import profiled_samples
from runner.schema.backend import TensorRtBackend
from runner.schema.inputs import FilesInputs, RandomInputs
from runner.schema.root import Settings
from runner.workers.pool import Pool
from tests.model.models import model_of


def reshaping(folder: Path) -> Graph:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    path = folder / "model.onnx"
    onnx.save(model_of("[reshape] y = Reshape (x, shape)", inputs, ["y"]), str(path))
    return Graph.load(path)


def drawn(folder: Path, inputs: Any = None, **target: Any) -> tuple[list[dict[str, Any]], list[str]]:
    settings = Settings(model="model.onnx", target=TensorRtBackend(**target), inputs=inputs or RandomInputs())
    with Pool(folder / "workers") as pool:
        found, said = profiled_samples(settings, reshaping(folder), pool, folder / "inputs")
        return [
            {name: numpy_helper.to_array(onnx.load_tensor(str(file.path))) for name, file in sample.items()}
            for sample in found
        ], said


def test_the_best_shape_comes_first_then_both_ends(tmp_path: Path) -> None:
    found, said = drawn(
        tmp_path,
        profiles={"x": {"min": [1, 6], "opt": [2, 6], "max": [4, 6]}},
        shape_values={"shape": {"min": [1, 6], "opt": [2, 6], "max": [4, 6]}},
    )
    assert [sample["x"].shape for sample in found] == [(2, 6), (1, 6), (4, 6)]
    assert [sample["shape"].tolist() for sample in found] == [[2, 6], [1, 6], [4, 6]]
    assert found[0]["shape"].dtype == np.int64
    assert said == []


def test_a_sample_outside_its_profile_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "given.npz", x=np.zeros((9, 6), np.float32), shape=np.array([6, 9]))
    found, said = drawn(
        tmp_path,
        FilesInputs(path=str(tmp_path / "given.npz")),
        profiles={"x": {"min": [1, 6], "opt": [2, 6], "max": [4, 6]}},
    )
    assert len(found) == 1
    assert len(said) == 1
    assert "[9, 6], outside target.profiles.x" in said[0]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"profiles": {"z": [1, 6]}}, "target.profiles: the model has no input 'z'"),
        ({"shape_values": {"z": [1, 6]}}, "target.shape_values: the model has no input 'z'"),
        ({"profiles": {"x": [1, 7]}}, "target.profiles.x=[1, 7]: min has shape [1, 7], the model declares [n, 6]"),
        ({"profiles": {"x": [-1, 6]}}, "min has a negative size"),
        ({"shape_values": {"shape": [1, 6, 1]}}, "target.shape_values.shape=[1, 6, 1]"),
        ({"shape_values": {"shape": [1, 6.5]}}, "give [1, 3] or {min"),
        ({"shape_values": {"shape": {"min": [1, 6]}}}, "min <= opt <= max"),
    ],
)
def test_what_does_not_fit_the_model(tmp_path: Path, target: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        drawn(tmp_path, **target)
    assert said in str(caught.value)
