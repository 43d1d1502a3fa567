"""A replay means the same from any folder, whatever was relative in the run that it came from."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.harness import ROOT, Run, check_script, winnow


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("first")
    shutil.copy(ROOT / "examples" / "overflow.onnx", folder / "net, a.onnx")
    check_script(folder, "open('golden.txt'); sys.exit(1 if len(nodes) > 5 else 0)")
    (folder / "golden.txt").touch()
    (folder / "conf" / "strategy").mkdir(parents=True)
    (folder / "conf" / "strategy" / "ours.yaml").write_text(
        "defaults: [/schema/strategy/reduce@_here_, _self_]\nname: ours\nsearch: bisect\n"
    )
    own = ("--config-dir", "conf", "strategy=ours", "model=net, a.onnx", "checker=command")
    check = "checker.command=" + json.dumps([sys.executable, "check.py", "{model}"])
    run = winnow(*own, check, folder=folder / "run")
    assert (run.code, run.result["status"]) == (0, "found"), run.output
    return run


@pytest.mark.slow
def test_from_another_folder(first: Run, tmp_path: Path) -> None:
    again = winnow(str(first.folder / "replay.yaml"), f"journal.reuse=[{first.folder}]", folder=tmp_path / "again")
    assert again.code == 0, again.output
    assert again.result["culprits"] == first.result["culprits"]
    assert again.result["warnings"] == first.result["warnings"], "nothing has drifted"
    assert again.result["checks"]["search"] == 0, "every verdict is the first run's"
    assert yaml.safe_load((again.folder / "replay.yaml").read_text())["cwd"] == str(first.folder.parent)


@pytest.mark.slow
def test_with_changes_that_start_where_the_user_stands(first: Run, tmp_path: Path) -> None:
    model = tmp_path / "other.onnx"
    shutil.copy(first.folder / "reduced.onnx", model)
    again = winnow(
        *(str(first.folder / "replay.yaml"), "model=other.onnx", "result.path=best.onnx"),
        *("checker.timeout=50", "strategy=reduce_linear", "artifacts=none", "strategy.find=one"),
        folder=tmp_path / "run",
    )
    assert again.code == 0, again.output
    assert (again.result["strategy"], again.result["input_model"]) == ("reduce_linear", str(model))
    assert (tmp_path / "best.onnx").is_file()
    assert not any("model changed" in warning for warning in again.result["warnings"]), "it was typed"
    assert not list((again.folder / "artifacts").glob("*/*.onnx")), "artifacts=none replaces what was recorded"
