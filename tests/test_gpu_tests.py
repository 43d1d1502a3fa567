"""The table of `make gpu`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_tests import Results, table
from runner.workers.gpus import Device, Machine, installed
from tests.harness import ROOT


def test_without_a_gpu_one_line_says_so() -> None:
    if installed().devices:
        pytest.skip("a GPU is here")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_tests"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("no GPU: ")


def test_each_test_has_a_row_with_its_reason(tmp_path: Path) -> None:
    body = "import pytest\ndef test_a(): pass\ndef test_b(): assert 1 == 2, 'a|b'\n"
    (tmp_path / "test_x.py").write_text(body + "def test_c(): pytest.skip('needs more')\n")
    results = Results()
    pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path / "test_x.py")], [results])
    text = table(results.rows, Machine((Device(0, "GPU-1", "H100"),)), {"tensorrt": "10.13"}, "580.1")
    assert text.splitlines()[0] == "H100, driver 580.1; tensorrt 10.13"
    assert text.splitlines()[4:] == [
        "| test_x.py::test_a | passed |  |",
        "| test_x.py::test_b | failed | AssertionError: a\\|b |",
        "| test_x.py::test_c | skipped | needs more |",
        "",
        "1 passed, 1 failed, 1 skipped",
    ]
