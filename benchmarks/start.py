"""How long until the first check begins, beside importing what no run goes without, in one run.

    python -m benchmarks.start [MODEL ...] [--times 10] [--python PYTHON ...]

One round starts each of these once, so that a busy machine slows down all of them: medians, and ratios to the import.
``CPU``: of the main thread of the process itself until then, which says more where others are at work.
A check of a command begins with the first line of its script; one on ONNX Runtime with the folder of its candidate.
A small model is made here; others are named. A first round is not counted: it writes Python's bytecode, which a user's
installation has. ``--python``: interpreters that each import a version of Winnow of their own; they take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.chain_models import chain

IMPORTS = "import hydra, onnx, numpy"
Taken = tuple[float, float]
"""Seconds, and seconds of CPU."""
STAMP = 'date +%s.%N >> "$STAMP"; exit 1\n'


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    given = parser.parse_args()
    given.python = [str(Path(python).absolute()) for python in given.python]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(scratch) / "bytecode")
        small = chain(Path(scratch) / "small.onnx", 3)
        rows: dict[str, Callable[[], Taken]] = {IMPORTS: partial(_ended, given.python[0], ["-c", IMPORTS])}
        for python in given.python:
            told = f" [{python}]" if len(given.python) > 1 else ""
            rows[f"--version{told}"] = partial(_ended, python, ["-m", "runner", "--version"])
            rows[f"--cfg job{told}"] = partial(_ended, python, ["-m", "runner", f"model={small}", "--cfg", "job"])
        for model in (small, *given.models):
            name = model.parent.name if model.name == "model.onnx" else model.stem
            for python in given.python:
                told = f" [{python}]" if len(given.python) > 1 else ""
                rows[f"{name}: checker=command{told}"] = partial(_command, python, model.resolve())
                rows[f"{name}: checker=runs{told}"] = partial(_runs, python, model.resolve())
        taken: dict[str, list[Taken]] = {name: [] for name in rows}
        for number in range(given.times + 1):
            for name, measure in rows.items():
                one = measure()
                if number:
                    taken[name].append(one)
    unit = tuple(map(statistics.median, zip(*taken[IMPORTS], strict=True)))
    print("| from the start of Python to the first check, or to the end | s | times the import | least | most "
          "| CPU s | times the import |")  # fmt: skip
    print("|---" * 7 + "|")
    for name, measured in taken.items():
        walls, cpus = zip(*measured, strict=True)
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        told = f"{wall:.3f} | {wall / unit[0]:.2f} | {min(walls):.3f} | {max(walls):.3f}"
        print(f"| {name} | {told} | {cpu:.3f} | {cpu / unit[1]:.2f} |")


def _ended(python: str, arguments: list[str]) -> Taken:
    began = time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = subprocess.Popen([python, *arguments], **quiet, cwd=_place(python))
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    taken = time.monotonic() - began, _cpu(job)
    if job.wait():
        raise RuntimeError(f"{python} {' '.join(arguments)}: exit {job.returncode}")
    return taken


def _cpu(job: subprocess.Popen[bytes]) -> float:
    """Return the CPU seconds of a process's main thread so far."""
    return int(Path(f"/proc/{job.pid}/schedstat").read_text().split()[0]) / 1e9


def _command(python: str, model: Path) -> Taken:
    with tempfile.TemporaryDirectory() as out:
        stamp = Path(out) / "stamp"
        check = Path(out) / "check.sh"
        check.write_text(STAMP)
        argv = json.dumps(["sh", str(check), "{model}"])
        began = time.time()
        settings = ["checker=command", f"checker.command={argv}", "checker.fail_codes=[1]"]
        job = _job(python, model, out, *settings, stamp=stamp)
        while not stamp.exists() or not stamp.read_text().endswith("\n"):
            _wait(job)
        cpu = _cpu(job)
        _end(job)
        return float(stamp.read_text().split()[0]) - began, cpu


def _runs(python: str, model: Path) -> Taken:
    with tempfile.TemporaryDirectory() as out:
        began = time.time()
        job = _job(python, model, out, "checker=runs", "target=onnxruntime")
        while not (Path(out) / "run" / "checks" / "00001").exists():
            if job.poll() == 4:  # nothing fails, and the machine is so busy that the folder was there and is gone again
                return _runs(python, model)
            _wait(job)
        taken = time.time() - began, _cpu(job)
        _end(job)
        return taken


def _job(python: str, model: Path, out: str, *arguments: str, stamp: Path | None = None) -> subprocess.Popen[bytes]:
    command = [python, "-m", "runner", "strategy=reduce", f"model={model}", *arguments]
    environment = {**os.environ, "STAMP": str(stamp)}
    folder = f"hydra.run.dir={Path(out) / 'run'}"
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, folder], **pipes, env=environment, cwd=_place(python))


def _place(python: str) -> Path:
    """Return where a version of Winnow lies: where the user stands comes first on the path of a module."""
    return Path(python).absolute().parents[2]


def _wait(job: subprocess.Popen[bytes]) -> None:
    if job.poll() is not None:
        raise RuntimeError(f"it ended before its first check: {job.stderr.read().decode() if job.stderr else ''}")
    time.sleep(0.0005)


def _end(job: subprocess.Popen[bytes]) -> None:
    job.terminate()
    job.communicate()


if __name__ == "__main__":
    main()
