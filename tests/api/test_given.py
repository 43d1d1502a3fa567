"""Models, checks and inputs of a program: which settings they make, and which files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from runner.api.run import Given
from runner.exit_codes import UsageError
from runner.schema.inputs import RandomInputs
from tests.api.programs import chain, lacks

ARRAY = np.ones((2, 3), np.float32)


def inputs_of(given: Any, folder: Path) -> tuple[Any, Given]:
    made = Given(folder)
    made.add_inputs(given)
    return made.keys["inputs"], made


def test_arrays_become_npz_files_that_hold_them(tmp_path: Path) -> None:
    keys, made = inputs_of([{"a/b": ARRAY}, {"a/b": ARRAY * 2}], tmp_path)
    made.write()
    assert keys["name"] == "files"
    assert [float(np.load(path)["a/b"][0, 0]) for path in keys["path"]] == [1, 2]


@pytest.mark.parametrize(
    "sample", [{"x": ARRAY.astype(ml_dtypes.bfloat16)}, {"x": [ARRAY, ARRAY]}, {"file": ARRAY}, {"x": None}]
)
def test_what_an_npz_cannot_hold_is_returned_by_a_function(sample: dict[str, Any], tmp_path: Path) -> None:
    keys, made = inputs_of(sample, tmp_path)
    made.write()
    space: dict[str, Any] = {"__file__": keys["file"]}
    exec(Path(keys["file"]).read_text(), space)
    (found,) = space[keys["function"]]()
    assert list(found) == list(sample)
    np.testing.assert_equal(next(iter(found.values())), next(iter(sample.values())))


def test_paths_functions_and_settings_are_told_apart(tmp_path: Path) -> None:
    settings = RandomInputs(samples=4)
    assert inputs_of(settings, tmp_path)[0] is settings
    assert inputs_of(None, tmp_path)[0] is None
    assert inputs_of(tmp_path, tmp_path)[0] == {"name": "files", "path": str(tmp_path)}
    assert inputs_of(["a.npz", tmp_path], tmp_path)[0] == {"name": "files", "path": ["a.npz", tmp_path]}
    assert inputs_of(lambda: {"x": ARRAY}, tmp_path)[0]["name"] == "python"
    with pytest.raises(UsageError, match=r"^inputs: give a path"):
        inputs_of([], tmp_path)


def test_other_content_never_takes_the_place_of_what_was_given_before(tmp_path: Path) -> None:
    for model, operator in ((chain(), "Neg"), (chain("Abs"), "Abs"), (chain(), "Neg")):
        given = Given(tmp_path)
        given.add_model(model)
        given.add_check(lacks(operator), None)
        given.write()
    assert len([*(tmp_path / "given").glob("*-*")]) == 4


@pytest.mark.parametrize(
    ("check", "checker", "message"),
    [
        (lacks("Neg"), "finite", "check and checker: both"),
        (lacks("Neg"), {"name": "finite"}, "check and checker: both"),
        (3, None, "check: int is neither a function nor a command"),
    ],
)
def test_two_checks_or_none_that_can_be_are_refused(check: Any, checker: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        Given(tmp_path).add_check(check, checker)


def test_a_model_is_a_path_or_a_proto(tmp_path: Path) -> None:
    given = Given(tmp_path)
    for name, stem in (("my net", "my_net"), ("../..", "model"), ("", "model"), ("x" * 99, "x" * 40)):
        model = chain()
        model.graph.name = name
        given.add_model(model)
        path = Path(given.keys["model"])
        assert (path.parent, path.name[:-22], path.suffix) == (tmp_path / "given", stem, ".onnx")
    given.add_model(Path("net.onnx"))
    assert given.keys["model"] == "net.onnx"
    with pytest.raises(UsageError, match="model: int is neither a path"):
        given.add_model(3)  # type: ignore[arg-type]


def test_what_is_no_whole_model_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^model: GraphProto is neither .*make_model\(graph\) makes one$"):
        Given(tmp_path).add_model(chain().graph)
    model = chain()
    model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1)
    with pytest.raises(UsageError, match=r"^model: the values of 'w' lie in a file .*Load it with them"):
        Given(tmp_path).add_model(model)
