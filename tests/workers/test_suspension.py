"""What was stopped with its job has not used up its time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from runner.workers import process_tree
from runner.workers.process_tree import TimeLimit

_JOB = """
import os, sys
from pathlib import Path
from runner.workers.commands import run_command
from runner.workers.guardian import Guardian
folder = Path(sys.argv[1])
with Guardian() as guardian:
    timeout = float(sys.argv[2])
    script = "touch started; until [ -e go ]; do sleep 0.01; done"
    end = run_command(["sh", "-c", script], cwd=folder, env=dict(os.environ), timeout=timeout, memory_mb=None,
                      log=folder / "log", guardian=guardian)
print(end.death, end.seconds < timeout)
"""


@pytest.mark.slow
def test_a_job_that_is_stopped_with_all_its_processes(tmp_path: Path) -> None:
    """Stopped for longer than its time-out, which is longer where the machine is too busy for a short one."""
    assert any(outlives_a_stop(tmp_path / str(timeout), timeout) for timeout in (1.0, 4.0, 16.0))


def outlives_a_stop(folder: Path, timeout: float) -> bool:
    folder.mkdir()
    argv = [sys.executable, "-c", _JOB, str(folder), str(timeout)]
    job = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    while not (folder / "started").exists():
        assert job.poll() is None
        time.sleep(0.01)
    tree = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in tree:
            if process.is_running():
                os.kill(process.pid, number)
        if number == signal.SIGSTOP:
            time.sleep(timeout + 0.5)
    (folder / "go").touch()
    told, _ = job.communicate(timeout=60)
    return told.split() == ["None", "True"]


def test_the_end_moves_by_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(process_tree, "now", lambda: clock[0])
    poller = select.poll()
    limit = TimeLimit(100.0, 10.0)
    for passed, end in [(0.001, 110.0), (0.2, 110.0), (3600.0, 3710.0), (0.01, 3710.0)]:
        limit.sleep(poller, clock[0] + 0.001)
        clock[0] += passed
        assert limit.look() == clock[0]
        assert limit.end == pytest.approx(end, abs=0.01)
    assert limit.spent() == pytest.approx(0.21, abs=0.01)
    assert TimeLimit(0.0, None).end == float("inf")
