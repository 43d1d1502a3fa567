"""GPU leases as a user meets them: runs from the command line that share GPUs which do not exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.workers.gpu_leases import LockFolder
from tests.harness import PRETENDED_GPUS, ROOT, command, winnow, without_nvml
from tests.workers.house import soon, written
from tests.workers.test_pool import gone

GPU = PRETENDED_GPUS[0]

# a file that must not be there while somebody else uses the GPU
CHECK = """
import os, pathlib, sys, time
gpu = os.environ["CUDA_VISIBLE_DEVICES"]
token = pathlib.Path(sys.argv[1]) / gpu
os.close(os.open(token, os.O_CREAT | os.O_EXCL))
with open(token.with_suffix(".seen"), "a") as file:
    file.write(gpu + "\\n")
time.sleep(0.2)
token.unlink()
"""


@pytest.fixture(autouse=True)
def _no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the names stand also where there are GPUs."""
    monkeypatch.setenv("PYTHONPATH", without_nvml()["PYTHONPATH"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def repeated(folder: Path, *more: str) -> list[str]:
    argv = json.dumps([sys.executable, str(folder / "check.py"), str(folder)])
    given = ["strategy=repeat", "strategy.until=4", "checker=command", f"checker.command={argv}", "workers.lease=gpu"]
    return [*given, f"workers.lease_folder={folder / 'locks'}", *more]


@pytest.mark.slow
def test_two_runs_share_a_gpu(tmp_path: Path) -> None:
    """One is told of it by the configuration, the other by the environment, and a third is killed at work."""
    (tmp_path / "check.py").write_text(CHECK)
    holder = tmp_path / "holder"
    (tmp_path / "sleep.py").write_text(
        f"import os, time\nopen({str(holder)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    sleeper = json.dumps([sys.executable, str(tmp_path / "sleep.py")])
    chosen = f"workers.gpus=[{GPU}]"
    argv = repeated(tmp_path, chosen, f"checker.command={sleeper}")
    killed = subprocess.Popen(command(*argv, folder=tmp_path / "killed"), cwd=tmp_path)
    held_by = int(written(holder, killed))
    runs: list[tuple[Path, Any]] = []
    for number, how in enumerate((repeated(tmp_path, chosen, "workers=parallel"), repeated(tmp_path))):
        environment = {**os.environ} if number == 0 else {**os.environ, "CUDA_VISIBLE_DEVICES": GPU}
        folder = tmp_path / f"run{number}"
        runs.append((folder, subprocess.Popen(command(*how, folder=folder), env=environment, cwd=tmp_path)))
    assert soon(lambda: all(waits(run.pid) for _, run in runs), 120.0)
    assert [run.poll() for _, run in runs] == [None, None]
    killed.kill()
    killed.wait()
    for folder, run in runs:
        run.wait(120)
        result = json.loads((folder / "result.json").read_text())
        assert result["statistics"]["passed"] == 4, result
    assert gone(held_by)
    assert (tmp_path / f"{GPU}.seen").read_text().split() == [GPU] * 8


def waits(pid: int) -> bool:
    """Whether a run has told the others that it waits for a GPU."""
    return any("wanted-gpu" in file.path for file in psutil.Process(pid).open_files())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "code", "words"),
    [
        (("strategy=repeat", "strategy.until=4"), 3, "(budget reached)"),
        (("strategy=reduce", f"model={ROOT / 'examples' / 'overflow.onnx'}"), 3, "budget.seconds is over, after"),
    ],
)
def test_the_budget_ends_a_wait(tmp_path: Path, strategy: tuple[str, ...], code: int, words: str) -> None:
    (tmp_path / "check.py").write_text(CHECK)
    held = LockFolder(tmp_path / "locks").lock(GPU)
    assert held is not None
    argv = repeated(tmp_path, f"workers.gpus=[{GPU}]", "budget.seconds=2")[2:]
    run = winnow(*strategy, *argv, folder=tmp_path / "run", timeout=60)
    os.close(held)
    assert run.code == code and words in run.output and "Traceback" not in run.output, run.output


def test_functions_get_one_too(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(
        f"import os\ndef check(model, inputs, expected):\n    return os.environ['CUDA_VISIBLE_DEVICES'] == {GPU!r}\n"
    )
    argv = ["strategy=repeat", "strategy.until=2", "checker=python", f"checker.file={tmp_path / 'check.py'}"]
    more = ["workers.lease=gpu", f"workers.gpus=[{GPU}]", f"workers.lease_folder={tmp_path / 'locks'}"]
    run = winnow(*argv, *more, folder=tmp_path / "run")
    assert run.result["statistics"]["passed"] == 2, run.output


@pytest.mark.parametrize(
    ("visible", "more", "words"),
    [
        ("", (), "CUDA_VISIBLE_DEVICES='' allows none"),
        (None, ("workers.gpus=[]",), "workers.gpus=[] names none"),
    ],
)
def test_no_gpu_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, more: tuple[str, ...], words: str
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (tmp_path / "check.py").write_text(CHECK)
    run = winnow(*repeated(tmp_path, *more), folder=tmp_path / "run")
    assert run.code == 2 and words in run.output and "Traceback" not in run.output
