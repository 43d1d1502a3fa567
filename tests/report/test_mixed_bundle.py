"""bundle.zip of a precision run: with the original beside it, it makes the same mixed model, and shows nothing else."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.report.bundle import BUNDLE_NAME
from tests.harness import ROOT, Run, winnow
from tests.model.models import model_of

CHECK = """
import os, sys
import numpy as np
from runner.backends.rounding import session

assert os.environ["MY_KEY"] == "hunter2"
model, inputs, limit = sys.argv[1:]
outputs = session(model).run(None, dict(np.load(inputs)))
sys.exit(0 if np.isfinite(outputs[0]).all() else int(open(limit).read()))
"""


def overflowing(path: Path) -> None:
    """Write a model in which two nodes, one with letters of a pattern in its name, leave the range of float16."""
    weights = [
        numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"),
        numpy_helper.from_array(np.float32(60000), "big"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "big"], ["b"], name="up[0]"),
        helper.make_node("Div", ["b", "big"], ["c"], name="down"),
        helper.make_node("MatMul", ["c", "w"], ["y"], name="last"),
    ]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    onnx.save(model_of(nodes, declared[:1], declared[1:], weights), path)


def raised(user: Path, *options: str) -> Run:
    """Run a precision search in a user's folder."""
    overflowing(user / "net.onnx")
    np.savez(user / "sample.npz", x=np.linspace(2, 5, 16, dtype=np.float32).reshape(4, 4))
    given = ("model=net.onnx", "inputs=files", "inputs.path=sample.npz", "strategy.layer_errors=false", *options)
    run = winnow("strategy=precision", *given, folder=user / "run", cwd=user)
    assert (run.code, run.result["culprits"]) == (0, ["up[0]", "down"]), run.output
    return run


def unpacked(run: Run, place: Path) -> Path:
    with zipfile.ZipFile(run.folder / BUNDLE_NAME) as archive:
        archive.extractall(place)
    return place / "bundle"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "somebody"
    (folder / "tools").mkdir(parents=True)
    return folder


def test_with_the_original_it_makes_the_same_model(user: Path, tmp_path: Path) -> None:
    run = raised(user)
    bundle = unpacked(run, tmp_path / "elsewhere")
    names = {path.name for path in bundle.iterdir()}
    assert names - {"curve.svg"} == {"README.txt", "REPORT.md", "mixed.yaml"}, "neither model goes along"
    said = (bundle / "REPORT.md").read_text()
    assert "winnow bundle/mixed.yaml" in said and "| `bundle.zip` | one file to attach" in said
    assert "test_data_set" not in (bundle / "README.txt").read_text()
    shutil.copy(user / "net.onnx", bundle)
    shutil.copy(user / "sample.npz", bundle)
    made = (run.folder / "mixed.onnx").read_bytes()
    shutil.rmtree(tmp_path / "home")
    again = winnow(str(bundle / "mixed.yaml"), folder=tmp_path / "again")
    assert again.result["checks"]["search"] == 0 and again.result["status"] == "nothing_to_find", again.output
    assert (again.folder / "mixed.onnx").read_bytes() == made


@pytest.mark.slow
def test_a_command_is_run_on_its_copies_and_its_environment_is_the_readers(user: Path, tmp_path: Path) -> None:
    (user / "tools" / "look.py").write_text(CHECK)
    (user / "limit.txt").write_text("1")
    words = json.dumps([sys.executable, "tools/look.py", "{model}", "{inputs}", "limit.txt"])
    check = ("checker=command", f"checker.command={words}", f"+checker.env.PYTHONPATH={ROOT}")
    run = raised(user, *check, "checker.env.MY_KEY=hunter2")
    bundle = unpacked(run, tmp_path / "elsewhere")
    for path in (path for path in bundle.rglob("*") if path.is_file() and path.name != "REPORT.md"):
        said = path.read_text().replace(CHECK, "")
        assert "hunter2" not in said and str(tmp_path) not in said and sys.executable not in said, path
    head = [line for line in (bundle / "mixed.yaml").read_text().splitlines() if line.startswith("#")]
    assert head[3:] == [
        "# to be put beside this file first: net.onnx, sample.npz",
        "# to be set in the environment first: PYTHONPATH, MY_KEY",
    ]
    for name in ("net.onnx", "sample.npz"):
        shutil.copy(user / name, bundle)
    made = (run.folder / "mixed.onnx").read_bytes()
    shutil.rmtree(tmp_path / "home")
    environment = {"MY_KEY": "hunter2", "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    again = winnow(str(bundle / "mixed.yaml"), folder=tmp_path / "again", environment=environment)
    assert again.result["status"] == "nothing_to_find", again.output
    assert (again.folder / "mixed.onnx").read_bytes() == made
