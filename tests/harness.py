"""Run Winnow as a user does: a process, a command line, a run folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from tests import bundles
from tests.fork_server import run_forked

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

    @property
    def log(self) -> str:
        """What winnow.log has, which is every check."""
        return (self.folder / "winnow.log").read_text()

    @property
    def screen(self) -> list[str]:
        """The lines of the last screen, of which the first says how the run ended."""
        lines = self.output.rstrip().splitlines()
        status = self.result["status"]
        return lines[max(at for at, line in enumerate(lines) if line == status or line.startswith(f"{status}: ")) :]

    def model(self, name: str = "reduced.onnx") -> onnx.ModelProto:
        return onnx.load(str(self.folder / name))


def command(*overrides: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "runner", *overrides, f"hydra.run.dir={folder}"]


#: names of GPUs that do not exist
PRETENDED_GPUS = tuple(f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in (1, 2))


def without_nvml() -> dict[str, str]:
    """An environment in which the names of GPUs are taken as they are, also where there are GPUs."""
    rest = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**rest, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "without_nvml"), str(ROOT)])}


def goes_on(folder: Path) -> bool:
    """Whether the last screen of an interrupted run has the command that goes on with it."""
    shown = run_forked(
        [sys.executable, "-m", "runner", str(folder)], cwd=folder.parent, env=None, timeout=120, merged=True
    )
    return any(line.lstrip().startswith("next ") and "resume" in line for line in shown.stdout.splitlines())


def winnow(
    *overrides: str,
    folder: Path,
    cwd: Path | None = None,
    timeout: float = 300,
    environment: Mapping[str, str] | None = None,
) -> Run:
    argv = command(*overrides, folder=folder)
    done = run_forked(argv, cwd=cwd or folder.parent, env=environment, timeout=timeout, merged=True)
    bundles.note(
        folder, next((word.partition("=")[2] for word in overrides if word.startswith("target.python=")), None)
    )
    return Run(done.returncode, folder, done.stdout)


LIGHT = """
import sys


def fields(data):
    \"\"\"The length-delimited fields of a protobuf message: (number, content).\"\"\"
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        elif key & 7 == 0:
            varint()
        else:
            at += 4 if key & 7 == 5 else 8


parts = {1: [], 5: [], 11: [], 12: []}  # the graph's nodes, and the names of its weights, inputs and outputs
with open(sys.argv[1], "rb") as file:
    whole = memoryview(file.read())
for number, graph in fields(whole):
    for inner, part in fields(graph) if number == 7 else ():
        held = {1: [], 2: [], 3: [], 4: [], 8: []}
        for field, content in fields(part) if inner in parts else ():
            held.setdefault(field, []).append(content)
        if inner == 1:
            parts[1].append([[str(text, "utf-8") for text in held[field]] for field in (2, 3, 4)])
        elif inner in parts:
            parts[inner].extend(str(name, "utf-8") for name in held[8 if inner == 5 else 1])
made = {name for outputs, _, _ in parts[1] for name in outputs}
names = [name[0] if name else "" for _, name, _ in parts[1]]
kinds = [kind[0] if kind else "" for _, _, kind in parts[1]]
nodes, weights, inputs, outputs = set(names), parts[5], parts[11], parts[12]
"""
"""Reads names in a model, and the kinds of its nodes, without onnx: a check that starts in 20 ms."""
PROTO = """
import sys
import types
from importlib.util import find_spec
package = types.ModuleType("onnx")
package.__path__ = find_spec("onnx").submodule_search_locations
sys.modules["onnx"] = package
from onnx.onnx_ml_pb2 import ModelProto
with open(sys.argv[1], "rb") as file:
    model = ModelProto.FromString(file.read())
made = {name for node in model.graph.node for name in node.output}
nodes = {node.name for node in model.graph.node}
"""
"""Reads the whole model by onnx's messages alone: the package itself imports numpy and native code."""
HEAVY = """
import sys
import onnx
model = onnx.load(sys.argv[1], load_external_data=False)
made = {name for node in model.graph.node for name in node.output}
nodes = {node.name for node in model.graph.node}
"""


def check_script(folder: Path, body: str, name: str = "check.py") -> Path:
    """A check; `made` are the tensors that the candidate's nodes produce, `nodes` the names of its nodes.

    Also lists in the file's order: `names` and `kinds` of the nodes, `weights`, `inputs` and `outputs` by name. It has
    `model` instead of these lists, and takes longer, where ``body`` speaks of it.
    """
    path = folder / name
    words = set(re.findall(r"\w+", body))
    head = HEAVY if words & {"onnx", "onnxruntime", "numpy", "np"} else PROTO if "model" in words else LIGHT
    path.write_text(f"{head}\n{body}\n")
    return path


def written(folder: Path, text: str, name: str = "check.py") -> Path:
    """A check of one's own, as it stands."""
    path = folder / name
    path.write_text(text)
    return path


def by_command(check: Path, *words: str) -> tuple[str, ...]:
    """Options for a check that is reliable: the repeats that find that out are tested elsewhere."""
    bare = ["-I", "-S"] if LIGHT in check.read_text() else []
    argv = json.dumps([sys.executable, *bare, str(check), "{model}", *words])
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
