"""Run Winnow as a user does: a process, a command line, a run folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"


@dataclass(frozen=True)
class Run:
    code: int
    folder: Path
    output: str

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "result.json").read_text())

    def model(self, name: str = "reduced.onnx") -> onnx.ModelProto:
        return onnx.load(str(self.folder / name))


def command(*overrides: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "runner", *overrides, f"hydra.run.dir={folder}"]


def winnow(*overrides: str, folder: Path, cwd: Path | None = None, timeout: float = 300) -> Run:
    done = subprocess.run(
        command(*overrides, folder=folder),
        cwd=cwd or folder.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Run(done.returncode, folder, done.stdout)


def check_script(folder: Path, body: str, name: str = "check.py") -> Path:
    """A check; `made` are the tensors that the candidate's nodes produce, `nodes` the names of its nodes."""
    path = folder / name
    path.write_text(
        "import sys\n"
        "import onnx\n"
        "model = onnx.load(sys.argv[1], load_external_data=False)\n"
        "made = {name for node in model.graph.node for name in node.output}\n"
        "nodes = {node.name for node in model.graph.node}\n"
        f"{body}\n"
    )
    return path


def by_command(check: Path, *words: str) -> tuple[str, ...]:
    """Options for a check that is reliable: the repeats that find that out are tested elsewhere."""
    argv = json.dumps([sys.executable, str(check), "{model}", *words])
    return "checker=command", f"checker.command={argv}", "checker.flaky=never"


def interrupted(*overrides: str, folder: Path, ready: Path, number: signal.Signals, pause: float = 0.0) -> int:
    """Start a run, send it a signal ``pause`` seconds after the file ``ready`` is there, and return its exit code."""
    process = subprocess.Popen(
        command(*overrides, folder=folder),
        cwd=folder.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # a shell starts what runs in the background deaf to SIGINT, and children inherit that
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    while not ready.exists() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(pause)
    process.send_signal(number)
    return process.wait(timeout=60)
