"""What a job reads is known by its content, wherever it lies and however old it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from omegaconf import DictConfig, OmegaConf
from onnx import TensorProto, helper, numpy_helper

from runner.sweeps.fingerprint import fingerprint, unchanged
from runner.sweeps.finished import digest


def save(path: Path, value: float) -> None:
    """A model whose weights lie beside it."""
    weights = numpy_helper.from_array(np.full(512, value, np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [512]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path), save_as_external_data=True, location=f"{path.name}.data", size_threshold=0)


def settings(**changes: object) -> DictConfig:
    plain = {
        "model": "net.onnx",
        "cwd": None,
        "strategy": {"name": "tactic_compare", "good": "good", "bad": "good/deep/b.json"},
        "checker": {"name": "command", "command": "python check.py {model} --log=out.txt", "place": "placed.onnx"},
        "inputs": {"name": "files", "path": ["data"]},
        "target": {"model": None, "python": "python3"},
    }
    return OmegaConf.create({**plain, **changes})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "net.onnx", 1.0)
    for name in ("check.py", "good/deep/b.json", "good/a.log", "data/x.npz", "data/test_data_set_0/input_0.pb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"old {name}")
    return tmp_path


def rewritten(path: Path) -> None:
    """Another content of the same length, with the times that the file had: its folder's do not change either."""
    times = path.stat()
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    "name",
    [
        *("net.onnx.data", "check.py", "good/deep/b.json", "good/a.log", "data/x.npz"),
        "data/test_data_set_0/input_0.pb",
    ],
)
def test_a_file_of_other_content_is_told(here: Path, name: str) -> None:
    before = fingerprint(settings())
    assert unchanged(before, fingerprint(settings()))
    rewritten(here / name)
    assert not unchanged(before, fingerprint(settings()))


def older(here: Path) -> None:
    save(here / "old.onnx", 1.0)
    model = onnx.load(str(here / "old.onnx"), load_external_data=False)
    model.doc_string = "another"
    onnx.save(model, str(here / "old.onnx"))
    os.utime(here / "old.onnx", (1.0, 1.0))
    shutil.copy2(here / "old.onnx", here / "net.onnx")


@pytest.mark.parametrize(
    "change",
    [
        older,
        lambda here: (here / "data" / "y.npz").write_text("one more"),
        lambda here: (here / "good" / "a.log").unlink(),
        lambda here: (here / "net.onnx.data").unlink(),
    ],
)
def test_a_file_that_came_or_went_or_is_an_older_one_is_told(here: Path, change: Callable[[Path], object]) -> None:
    before = fingerprint(settings())
    change(here)
    assert not unchanged(before, fingerprint(settings()))


def test_what_a_run_writes_is_none_of_its_inputs(here: Path) -> None:
    before = fingerprint(settings())
    (here / "placed.onnx").write_text("a candidate")
    (here / "out.txt").write_text("what the check says")
    (here / "data" / "notes.txt").write_text("no values")
    os.utime(here / "net.onnx")
    assert unchanged(before, fingerprint(settings()))


def test_the_same_words_elsewhere_are_other_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, written = fingerprint(settings()), digest(settings())
    shutil.copytree(here, here / "there")
    monkeypatch.chdir(here / "there")
    assert not unchanged(before, fingerprint(settings())) and digest(settings()) != written
    plain = {"model": str(here / "net.onnx"), "checker": {"name": "auto"}}
    from_there = fingerprint(OmegaConf.create(plain)), digest(OmegaConf.create(plain))
    monkeypatch.chdir(here)
    relative = OmegaConf.create({**plain, "model": "net.onnx"})
    assert (fingerprint(relative), digest(relative)) == from_there
