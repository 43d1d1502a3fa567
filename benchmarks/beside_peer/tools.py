"""The tools that are compared: how each is called, and how its answer is read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.beside_peer.measured_process import Cost, Limits, measure, room

CHECK = Path(__file__).with_name("structural_check.py")
REQUIREMENTS = ("polygraphy==0.53.6", "onnx", "onnxruntime", "onnx-graphsurgeon", "numpy")
"""What the peer needs. Where torch is installed as well, it starts six times as slowly."""


@dataclass(frozen=True)
class Question:
    """A model that fails as long as it holds the node that makes ``culprit``.

    ``sleep``: seconds that each check takes beside its own work.
    """

    model: Path
    culprit: str
    sleep: float = 0.0


@dataclass(frozen=True)
class Tool:
    """Winnow with so many workers, or the peer (``python``: its interpreter).

    ``function``: the check is a function of a file, which a warm process calls, and no command.
    """

    name: str
    workers: int = 1
    python: Path | None = None
    options: tuple[str, ...] = ()
    function: bool = False

    def command(self, question: Question, run: Path) -> list[str]:
        """Return what to call; all that it leaves lies in ``run``."""
        check = [sys.executable, str(CHECK), "{model}", question.culprit]
        if self.python:
            check[2] = "polygraphy_debug.onnx"
            program = [str(self.python), str(self.python.with_name("polygraphy"))]
            tool = [*program, "debug", "reduce", str(question.model), "--mode", "bisect"]
            return [*tool, "-o", str(run / "reduced.onnx"), "--fail-code", "1", *self.options, "--check", *check]
        checker = ("checker=command", f"checker.command={json.dumps(check)}", "checker.fail_codes=[1]")
        if self.function:
            checker = ("checker=python", f"checker.file={CHECK}")
        return [
            *(sys.executable, "-m", "runner", "strategy=reduce", f"model={question.model}", f"hydra.run.dir={run}"),
            *checker,
            *(f"workers.count={self.workers}", "verbosity=warning", *self.options),
        ]


@dataclass(frozen=True)
class Measured:
    """One run of a tool.

    ``search`` and ``trust``: checks; those of the cause count as trust, and the peer has none. ``beside``: CPU seconds
    that are not the checks' own. ``left``: nodes of the answer; ``exact``: it is the culprit and nothing else.
    ``error``: why there is no answer.
    """

    tool: str
    cost: Cost
    checks: int
    search: int
    trust: int
    beside: float
    left: int | None
    exact: bool
    disk_mb: float
    error: str = ""


def run(tool: Tool, question: Question, scratch: Path, limits: Limits) -> Measured:
    """Run a tool in a new folder."""
    folder = scratch / "run"
    folder.mkdir(parents=True)
    log, checks = scratch / "output.txt", scratch / "checks.txt"
    checks.touch()
    environment = {"CHECK_LOG": str(checks), "CHECK_SECONDS": str(question.sleep), "OMP_NUM_THREADS": "1"}
    environment["CHECK_TENSORS"] = question.culprit
    root = Path(__file__).parents[2]
    working = folder if tool.python else root
    cost = measure(tool.command(question, folder), working, environment, limits, log)
    seconds = [float(line) for line in checks.read_text().split()]
    counts = _counts(folder / "result.json", len(seconds))
    answer = folder / "reduced.onnx"
    left, exact = _answer(answer, question.culprit) if cost.code == 0 and answer.is_file() else (None, False)
    error = ""
    if left is None:
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
        error = f"stopped at {cost.stopped}" if cost.stopped else f"exit {cost.code}: {last[:200]}"
    beside = cost.cpu - sum(seconds)
    return Measured(tool.name, cost, len(seconds), *counts, beside, left, exact, room(folder), error)


def _counts(result: Path, checks: int) -> tuple[int, int]:
    """Return checks of the search, and all others."""
    found = json.loads(result.read_text())["checks"]["search"] if result.is_file() else checks
    return found, checks - found


def _answer(path: Path, culprit: str) -> tuple[int, bool]:
    """Return how many nodes are left, and whether it is the culprit alone."""
    nodes = [node for node in onnx.load(path, load_external_data=False).graph.node if node.op_type != "Constant"]
    return len(nodes), [node.output[0] for node in nodes] == [culprit]


def install(folder: Path, options: Sequence[str]) -> Path:
    """Return the interpreter of a virtual environment with the peer, made where it is not there. ``options``: pip's."""
    python = folder / "bin" / "python"
    if not (folder / ".installed").is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *options, *REQUIREMENTS], check=True)
        (folder / ".installed").touch()
    return python


def versions(python: Path) -> dict[str, str]:
    """Return the versions of what matters in an interpreter's packages."""
    code = (
        "import json, platform; from importlib import metadata\n"
        "names = ('polygraphy', 'onnx', 'onnxruntime', 'onnx-graphsurgeon', 'numpy', 'protobuf')\n"
        "there = {d.metadata['Name'].lower().replace('_', '-') for d in metadata.distributions()}\n"
        "found = {n: metadata.version(n) for n in names if n in there}\n"
        "print(json.dumps({'python': platform.python_version(), **found}))"
    )
    found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(found.stdout))
