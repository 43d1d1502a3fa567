"""Ctrl-C, SIGTERM and SIGHUP at any moment: one clear end, and an exit code that says which."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner.cli import signals
from tests.cli.test_main import STUB, environment, models, result

#: sends a signal in a finalizer, where an exception is lost, when a module is about to be loaded
IN_A_FINALIZER = """
import os, signal, sys
exec(compile(open({stub!r}).read(), {stub!r}, "exec"))

class Gone:
    def __del__(self):
        os.kill(os.getpid(), {number})
        for _ in range(1000):
            pass

class Meddler:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            Gone()

sys.meta_path.insert(0, Meddler())
"""
AT_THE_END = """
import atexit, os
exec(compile(open({stub!r}).read(), {stub!r}, "exec"))
atexit.register(os.kill, os.getpid(), {number})
"""


def meddled(tmp_path: Path, text: str, number: int, module: str = "") -> dict[str, str]:
    """An environment in which a process sends itself a signal at a certain place."""
    folder = tmp_path / "meddled"
    folder.mkdir()
    stub = str(STUB / "sitecustomize.py")
    (folder / "sitecustomize.py").write_text(text.format(stub=stub, number=int(number), module=module))
    variables = environment()
    return {**variables, "PYTHONPATH": f"{folder}{os.pathsep}{variables['PYTHONPATH']}"}


def hearing() -> None:
    """Hear all signals: what a shell or ``nohup`` starts in the background ignores some, and so do its children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def on_a_terminal() -> None:
    """Take standard input for the terminal, and hear its signals."""
    hearing()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def started(folder: Path, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "runner", *arguments]
    return subprocess.Popen(argv, cwd=folder, env=environment(), **more)


def at_work(process: subprocess.Popen[bytes], job: Path) -> None:
    """Wait until a job has begun."""
    while not (job / "seen.json").exists() and process.poll() is None:
        time.sleep(0.02)


def run(folder: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", *arguments],
        cwd=folder, env=variables, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        preexec_fn=hearing,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "code", "module"), [(signal.SIGINT, 130, "omegaconf"), (signal.SIGHUP, 143, "runner.sweeps.sweep")]
)
def test_a_signal_at_the_start_is_never_lost(tmp_path: Path, number: int, code: int, module: str) -> None:
    models(tmp_path, ["net"])
    done = run(tmp_path, meddled(tmp_path, IN_A_FINALIZER, number, module), "-m", "model=net.onnx,net.onnx")
    assert (done.returncode, done.stderr) == (code, "winnow: interrupted\n"), done.stderr
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.variants
@pytest.mark.parametrize("sweep", [False, True])
def test_a_signal_while_a_job_is_loaded_is_an_interruption(tmp_path: Path, sweep: bool) -> None:
    """An exception in the midst of an import can crash modules written in C."""
    models(tmp_path, ["net"])
    given = ["-m", "hydra/launcher=basic", "hydra.sweep.dir=out"] if sweep else ["hydra.run.dir=out"]
    variables = meddled(tmp_path, IN_A_FINALIZER, signal.SIGINT, "runner.jobs.run")
    done = run(tmp_path, variables, *given, f"model=net.onnx{',net.onnx' * sweep}")
    assert done.returncode == 130, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "ignored" not in done.stderr
    assert result(tmp_path / "out" / ("0" if sweep else ""))["status"] == "interrupted"
    if sweep:
        rows = json.loads((tmp_path / "out" / "sweep.json").read_text())
        assert [row["status"] for row in rows] == ["interrupted", "not run"]


def test_a_signal_after_the_end_changes_nothing(tmp_path: Path) -> None:
    models(tmp_path, ["fine"])
    done = run(tmp_path, meddled(tmp_path, AT_THE_END, signal.SIGINT), "model=fine.onnx", "hydra.run.dir=out")
    assert (done.returncode, done.stderr) == (4, "")


def test_what_was_begun_is_written_down_whatever_comes_then() -> None:
    script = (
        "import os, signal\n"
        "from runner.cli.signals import Phase, leave, listen, terminable\n"
        "listen(leave)\n"
        "with terminable(phase=lambda: Phase.starting):\n"
        "    with terminable():\n"
        "        pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('written')\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=hearing,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "written\nended\n")


@pytest.mark.variants
@pytest.mark.parametrize("sweep", [False, True])
def test_a_closed_terminal_is_an_interruption(tmp_path: Path, sweep: bool) -> None:
    models(tmp_path, ["slow"])
    given = ["-m", "hydra.sweep.dir=out", "hydra.launcher.n_jobs=1"] if sweep else ["hydra.run.dir=out"]
    job = tmp_path / "out" / ("0" if sweep else "")
    ours, theirs = pty.openpty()
    terminal = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    model = f"model=slow.onnx{',slow.onnx' * sweep}"
    process = started(tmp_path, *given, model, **terminal, start_new_session=True, preexec_fn=on_a_terminal)
    os.close(theirs)
    at_work(process, job)
    os.close(ours)
    assert process.wait(60) == 143
    assert result(job)["status"] == "interrupted" and result(job)["exit_code"] == 143
    if sweep:
        rows = json.loads((tmp_path / "out" / "sweep.json").read_text())
        assert [row["status"] for row in rows] == ["interrupted", "not run"]


def test_nohup_stays_deaf_to_a_closed_terminal(tmp_path: Path) -> None:
    models(tmp_path, ["slow"])
    deaf = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    process = started(tmp_path, "model=slow.onnx", "hydra.run.dir=out", preexec_fn=deaf)
    at_work(process, tmp_path / "out")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143


def test_a_second_signal_ends_a_sweep_none_of_whose_jobs_runs_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(signals, "leave", left.append)
    noted = signals.Signals(lambda: signals.Phase.waiting)
    noted(signal.SIGTERM, None)
    assert left == []
    noted(signal.SIGTERM, None)
    assert left == [signal.SIGTERM]
    with pytest.raises(signals.Terminated), noted.arrived.told_to_jobs():
        noted(signal.SIGTERM, None)
    assert left == [signal.SIGTERM]
