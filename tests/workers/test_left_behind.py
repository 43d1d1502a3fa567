"""What a check has started and left behind is killed when it ends, wherever that has gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.workers import guardian as guardians
from runner.workers.commands import Starters
from runner.workers.guardian import Guardian
from tests.workers.house import ended_late, soon, written
from tests.workers.test_command import Runner, guardian, run
from tests.workers.test_pool import gone

__all__ = ["guardian", "run"]

DAEMONS = """
import os, sys
count = int(sys.argv[1])
for _ in range(count):
    ready, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(told, b"%d\\n" % os.getpid())
        os.execvp("sleep", ["sleep", "60"])
    os.wait()
    sys.stdout.write(os.read(ready, 20).decode())
    os.close(ready), os.close(told)
"""


def test_daemons_of_a_check_that_ended_well(run: Runner) -> None:
    count = 50
    assert run.python(DAEMONS.replace("sys.argv[1]", str(count))).returncode == 0
    pids = [int(line) for line in run.log.read_text().split()]
    assert len(pids) == count and all(gone(pid) for pid in pids)


@pytest.mark.slow
def test_one_that_becomes_another_program_again_and_again(tmp_path: Path) -> None:
    """In the middle of an exec a process shows no environment; one look in thirty used to fall into that moment."""
    again = tmp_path / "again.sh"
    again.write_text('exec sh "$0"\n')
    for number in range(200):
        mark = f"becomes-another-{os.getpid()}-{number}"
        shell = ["sh", "-c", 'echo started; exec sh "$0"', str(again)]
        with subprocess.Popen(
            shell, env={**os.environ, guardians.MARK: mark}, stdout=subprocess.PIPE, start_new_session=True
        ) as process:
            assert process.stdout is not None and process.stdout.readline()
            guardians.kill_marked(mark.encode().__eq__)
            try:
                assert process.wait(10) < 0
            finally:
                process.kill()


HOPS = """
import os
if os.fork() == 0:
    os.setsid()
    for _ in range(3):
        if os.fork():
            os._exit(0)
    os.execvp("sleep", ["sleep", "60"])
"""


@pytest.mark.slow
def test_a_check_that_ends_while_its_daemon_starts(guardian: Guardian) -> None:
    """Each process of a chain starts the next and ends at once: the last look used to miss one in fifteen."""
    for _ in range(60):
        env = guardian.marked(os.environ)
        mark = env[guardians.MARK].encode()
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", HOPS], env=env, start_new_session=True) as process:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            guardians.kill_group(process.pid)
            guardian.sweep(mark.decode())
        assert soon(lambda mark=mark: not guardians.marked(mark.__eq__), 2.0)


def test_a_process_without_an_environment_is_not_waited_for() -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as process:
        assert process.pid not in guardians.marked(lambda _: True)
        process.kill()


def test_one_that_starts_others_again_and_again(run: Runner) -> None:
    script = "setsid sh -c 'echo $$; for i in $(seq 500); do sleep 60 & sleep 0.01; done' & sleep 0.3"
    assert run("sh", "-c", script).returncode == 0
    assert gone(int(run.log.read_text()))
    # what has been killed can be seen until its memory is taken down; a sleep that was missed would be there for longer
    mine, server = run.guardian.mark.encode(), [run.server.pid] if run.server else []
    assert soon(lambda: guardians.marked(lambda mark: mark.startswith(mine)) == server)


def test_what_another_check_has_started_lives_on(run: Runner, guardian: Guardian) -> None:
    other = subprocess.Popen(["sleep", "60"], env=guardian.marked(os.environ), start_new_session=True)
    assert run("true").returncode == 0
    assert run("sh", "-c", "setsid sleep 60 & sleep 1.2").returncode == 0  # long enough for a look at all processes
    assert other.poll() is None
    other.kill()
    other.wait()


def test_the_job_leaves_nothing_at_a_normal_end() -> None:
    with Guardian() as guardian:
        left = subprocess.Popen(["sleep", "60"], env=guardian.marked(os.environ), start_new_session=True)
    assert left.wait(10) < 0


def test_no_guardian_and_no_job_leave_no_worker(tmp_path: Path) -> None:
    """A worker sees by itself that its job is gone, also behind a script that waits for it."""
    file = tmp_path / "checks.py"
    file.write_text(
        "import os, time\ndef check(model, inputs, expected):\n"
        "    with open(model + '.part', 'w') as told:\n        told.write(str(os.getpid()))\n"
        "    os.rename(model + '.part', model)\n    time.sleep(600)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", _JOB, str(tmp_path), str(file), str(behind(tmp_path))])
    pid = int(written(tmp_path / "pid", job))
    for child in psutil.Process(job.pid).children():
        if "guardian.py" in " ".join(child.cmdline()):
            child.kill()
    job.kill()
    job.wait()
    assert gone(pid)


_JOB = """
import sys
from pathlib import Path
from runner.workers.pool import Pool
pool = Pool(Path(sys.argv[1]) / "workers")
arguments = {"file": sys.argv[2], "function": "check", "model": sys.argv[1] + "/pid", "samples": []}
pool.call("user_check", arguments, python=sys.argv[3])
"""


def behind(folder: Path) -> Path:
    """Return a script that sets something up, starts Python and waits for it, as people write them."""
    script = folder / "python.sh"
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH=/opt/here\nexport LD_LIBRARY_PATH\n"{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


def test_an_interpreter_behind_a_script(tmp_path: Path, ask: Callable[..., Any]) -> None:
    python = str(behind(tmp_path))
    assert ask("passes", python=python).value == {"result": True}
    assert ask("segv", python=python).death == "death MEMORY"
    assert ask("kill_by", "8", python=python).death == "death FPE"
    assert ask("leaves", "7", python=python).death == "exit 7"
    pids = tmp_path / "pids"
    reply = ended_late(lambda seconds: ask("hangs", str(pids), timeout=seconds, python=python), pids)
    assert reply.death == "timeout"
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_what_clears_its_environment_ends_with_a_job_that_is_killed_in_mid_check(tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path), str(log)])
    while len(log.read_text().split() if log.exists() else []) < 3:
        assert job.poll() is None
        time.sleep(0.02)
    job.kill()
    job.wait()
    assert all(gone(int(line)) for line in log.read_text().split())


_KILLED = """
import os, sys
from pathlib import Path
from runner.workers.guardian import Guardian
from runner.workers.commands import Starters
from runner.workers.commands import run_command
orphan = "import os\\nos.fork() and os._exit(0)\\nos.setsid()\\nos.fork() and os._exit(0)\\n"
orphan += "print(os.getpid(), flush=True)\\nos.execve('/bin/sleep', ['sleep', '60'], {})"
source = "import subprocess, sys, time\\nfor _ in range(3): "
source += "subprocess.run([sys.executable, '-ISc', " + repr(orphan) + "])"
with Guardian() as guardian, Starters(guardian).starter() as server:
    run_command([sys.executable, "-ISc", source + "\\ntime.sleep(600)"], server=server, cwd=Path(sys.argv[1]),
                env=dict(os.environ), timeout=600, memory_mb=None, log=Path(sys.argv[2]), guardian=guardian)
"""


def test_what_clears_its_environment_is_found_below_what_starts_commands(run: Runner) -> None:
    """It bears no mark, and has left the group and the parent of the command."""
    orphans = "import os\nos.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\n"
    orphans += "print(os.getpid(), flush=True)\nos.execve('/bin/sleep', ['sleep', '60'], {})\n"
    source = f"import os, subprocess, sys\nfor _ in range(9): subprocess.run([sys.executable, '-ISc', {orphans!r}])\n"
    source += "while len(open(sys.argv[1]).read().split()) < 9: pass\nsys.exit(3)\n"
    assert run(sys.executable, "-ISc", source, str(run.log)).returncode == 3
    pids = [int(line) for line in run.log.read_text().split()]
    assert len(pids) == 9 and all(gone(pid) for pid in pids)


def test_a_command_starts_as_python_starts_one(run: Runner) -> None:
    """With the signals that Python ignores, and no environment but the one that is given."""
    assert run("sh", "-c", "yes | head -n 1; env", env={"PATH": os.environ["PATH"]}).returncode == 0
    assert "Broken" not in run.log.read_text() and "HOME=" not in run.log.read_text()
    assert {"PATH", "PWD"} <= {line.partition("=")[0] for line in run.log.read_text().splitlines()}


def test_one_server_starts_all_commands(guardian: Guardian) -> None:
    starters = Starters(guardian)
    with starters.starter() as server:
        pass
    with starters.starter() as again:
        assert again is server
    starters.close()
    with starters.starter() as none:
        assert none is None
