"""Run Winnow as a user does: a process, a command line, a run folder."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
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
