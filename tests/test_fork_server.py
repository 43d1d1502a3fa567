"""A run that is forked is told from one that is started by nothing that tests look at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import run_forked
from tests.harness import command

ENVIRONMENT = {**os.environ, "HYDRA_FULL_ERROR": "1", "COLUMNS": "60"}


def test_it_says_and_ends_as_a_started_one(tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "runner", "strategy=reduc"]
    forked = run_forked(asked, cwd=tmp_path, env=ENVIRONMENT, timeout=60)
    started = subprocess.run(
        asked, cwd=tmp_path, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_one_that_takes_too_long_is_killed_and_harms_no_other(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_forked(command("model=gone.onnx", folder=tmp_path / "run"), cwd=tmp_path, timeout=0)
    assert run_forked([sys.executable, "-m", "runner", "--version"], cwd=tmp_path, timeout=60).returncode == 0
