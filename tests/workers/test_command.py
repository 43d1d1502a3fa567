from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.workers.commands import CommandEnd, ForkServer, Starters, run_command
from runner.workers.guardian import Guardian
from tests.workers.test_pool import gone


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    with Guardian() as guardian:
        yield guardian


class Runner:
    """Starts commands as checks are started: from a server, where there is one."""

    def __init__(self, folder: Path, guardian: Guardian, server: ForkServer | None) -> None:
        self.folder, self.guardian, self.server, self.log = folder, guardian, server, folder / "check.log"

    def __call__(self, *argv: str, **changes: Any) -> CommandEnd:
        settings: dict[str, Any] = {"cwd": self.folder, "env": dict(os.environ), "timeout": 60.0, "memory_mb": None}
        settings |= {"log": self.log, "guardian": self.guardian, "server": self.server, **changes}
        return run_command(list(argv), **settings)

    def python(self, code: str, **changes: Any) -> CommandEnd:
        return self(sys.executable, "-c", code, **changes)


@pytest.fixture
def run(tmp_path: Path, guardian: Guardian) -> Iterator[Runner]:
    starters = Starters(guardian)
    with starters.starter() as server:
        yield Runner(tmp_path, guardian, server)
    starters.close()


def test_exit_code_and_output(run: Runner) -> None:
    code = (
        "import os, sys, time; print(os.getcwd(), os.environ['A'], sys.stdin.read()); sys.stderr.write('err')\n"
        "time.sleep(0.1); sys.exit(9)"
    )
    end = run.python(code, env={**os.environ, "A": "b c"})
    assert end.returncode == 9 and end.death is None and end.cannot_start is None
    assert end.seconds > 0 and end.peak_rss_mb > 0
    assert f"{run.folder} b c" in run.log.read_text() and "err" in run.log.read_text()


def test_a_death(run: Runner) -> None:
    end = run.python(f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    assert end.death == "death MEMORY" and end.returncode == -signal.SIGSEGV


def test_cannot_start(run: Runner, tmp_path: Path) -> None:
    text = tmp_path / "not_executable"
    text.write_text("hello")
    strange = tmp_path / "strange"
    strange.write_text("hello")
    strange.chmod(0o755)
    for argv, words in [
        (["no-such-program-anywhere"], "no such program: no-such-program-anywhere"),
        ([str(text)], "is it executable?"),
        ([str(strange)], "Exec format error"),
        (["sleep", "1\0"], "null byte"),
    ]:
        end = run(*argv)
        assert end.cannot_start is not None and words in end.cannot_start
        assert end.returncode is None and end.death is None
    end = run("true", cwd=tmp_path / "nowhere")
    assert end.cannot_start is not None and "folder" in end.cannot_start


def test_nothing_leaks(run: Runner) -> None:
    run("true")
    held = [psutil.Process(), *([psutil.Process(run.server.pid)] if run.server else [])]
    before = [one.num_fds() for one in held]
    for _ in range(50):
        assert run("true").returncode == 0
    assert [one.num_fds() for one in held] == before


_UNTOLD = """
import os, subprocess, sys, time
from runner.workers.guardian import Guardian
with Guardian() as guardian:
    env = guardian.marked(os.environ)
    child = subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)
    print(child.pid, flush=True)
    time.sleep(600)  # killed before it can tell the guardian of the child
"""


def test_a_command_that_the_guardian_was_not_told_of_in_time_is_no_orphan_either() -> None:
    job = subprocess.Popen([sys.executable, "-c", _UNTOLD], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    child = int(job.stdout.readline())
    assert psutil.pid_exists(child)
    job.kill()
    job.wait()
    job.stdout.close()
    assert gone(child)


def test_a_killed_guardian_is_replaced(run: Runner, guardian: Guardian) -> None:
    run("true")
    assert guardian._process
    first = guardian._process.pid
    psutil.Process(first).kill()
    gone(first)
    assert [run("true").returncode for _ in range(2)] == [0, 0]
    assert guardian._process.pid != first and psutil.pid_exists(guardian._process.pid)
