"""The examples for programs, as they stand: the notebook, and the suite for pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "winnow.ipynb"
MOST = 10
"""How many lines one question may take."""


@pytest.mark.slow
def test_the_notebook_runs_and_its_answers_are_right(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(len(cell.source.splitlines()) <= MOST for cell in notebook.cells if cell.cell_type == "code")
    assert not any(cell.get("outputs") for cell in notebook.cells)
    (tmp_path / "overflow.onnx").symlink_to(ROOT / "examples" / "overflow.onnx")
    (tmp_path / "notebook").mkdir()
    os.environ["PYTHONPATH"], before = str(ROOT), os.environ.get("PYTHONPATH")
    try:
        nbclient.NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path / "notebook")}}
        ).execute()
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = ["".join(out.get("data", {}).get("text/html", "") for out in cell.outputs) for cell in cells]
    said = ["".join(out.get("text", "") for out in cell.outputs) for cell in cells]
    whose, node = "whose bug: the model itself", "/bert/encoder/layer.5/output/dense/MatMul"
    assert f"reduce_bisect: found: {whose}, in {node} (1 of 550 nodes)" in shown[1]
    assert "REPORT.md</a>" in shown[1]
    assert "MatMul" in said[2]
    assert "precision: found: " in shown[3]
    assert "triage: found" in shown[4]
    assert "reduce: found" in said[4]


@pytest.mark.slow
def test_the_suite_for_pytest_passes(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "runner.pytest_plugin"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    suite = ROOT / "examples" / "test_with_winnow.py"
    done = subprocess.run(
        [*argv, f"--rootdir={tmp_path}", str(suite)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
