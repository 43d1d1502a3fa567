"""The scene of the fault matrix: a small run with a known answer, its processes, and what is left when it has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from runner.workers.guardian import processes_with

ROOT = Path(__file__).parents[1]
MARK = "WINNOW_FAULT"
#: exit codes that the README names, and the signals that a row itself sends
DOCUMENTED = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 130, 143})
ANSWERED = frozenset({0, 4, 5, 6})
#: seconds in which whatever a run has started must be gone
_GONE = 5.0
_WAIT = 120.0
#: a check of some milliseconds without onnx: it fails where two nodes are, and says what it was asked
CHECK = """
import os, sys, zlib
path = sys.argv[1]
with open(path, "rb") as file:
    data = file.read()
seen = os.open({paid!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(seen, b"%d\\n" % zlib.crc32(data))
os.close(seen)
{misbehave}
sys.exit(1 if b"node-05" in data and b"node-09" in data else 0)
"""


def chain(path: Path, nodes: int = 14) -> None:
    """Write a chain of additions."""
    one = numpy_helper.from_array(np.ones(2, np.float32), "one")
    made = [helper.make_node("Add", [f"t{i}", "one"], [f"t{i + 1}"], f"node-{i:02d}") for i in range(nodes)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("t0", f"t{nodes}")]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], [one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@dataclass(frozen=True)
class End:
    """How a process ended. ``code``: negative for a signal."""

    code: int
    output: str

    @property
    def clear(self) -> bool:
        """Whether it ended as the README says, and not as a bug of Winnow's own."""
        said = "Traceback" in self.output or "This is a bug" in self.output or "ignored" in self.output
        return self.code in DOCUMENTED and not said


@dataclass
class Scene:
    """One trial's place. ``misbehave``: what the check does besides. ``sweep``: two jobs instead of one run.

    ``before``: words before the command (other rights, another file system). ``folder``: of the run.
    """

    place: Path
    misbehave: str = ""
    sweep: bool = False
    before: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    folder: Path = Path()
    #: codes that the fault itself makes, checks that are repeated for it, and where the run sees its place
    killed: Sequence[int] = (-signal.SIGKILL,)
    retried: int = 0
    seen_at: Path | None = None
    found_before: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        self.mark = f"{os.getpid()}-{zlib.crc32(str(self.place).encode()):x}"
        self.temporary = self.place / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.folder = self.folder if self.folder.name else self.place / "out"
        chain(self.place / "net.onnx")
        body = CHECK.format(paid=str((self.seen_at or self.place) / "paid"), misbehave=self.misbehave)
        (self.place / "check.py").write_text(body)

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the run; its words go to a file."""
        seen = self.seen_at or self.place
        folder = self.seen_at / "out" if self.seen_at else self.folder
        check = json.dumps([sys.executable, "-I", "-S", str(seen / "check.py"), "{model}"])
        given = ["checker=command", f"checker.command={check}", "checker.flaky=never", "strategy=reduce_bisect"]
        where = "hydra.sweep.dir" if self.sweep else "hydra.run.dir"
        several = ["-m", "strategy.first=start,end", "hydra.launcher.n_jobs=1"] if self.sweep else []
        with (self.place / "said").open("ab") as said:
            return subprocess.Popen(
                [*self.before, sys.executable, "-m", "runner", *several, f"model={seen / 'net.onnx'}", *given,
                 f"{where}={folder}", *self.overrides, *more],
                cwd=self.place, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), MARK: self.mark, "TMPDIR": str(self.temporary)}
                | dict(self.environment),
                preexec_fn=_hears,  # noqa: PLW1509 - no threads here
            )  # fmt: skip

    def end(self, process: subprocess.Popen[bytes]) -> End:
        """Wait for the end of a process; one that hangs is killed, and that is its end."""
        try:
            code = process.wait(_WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        said = self.place / "said"
        text = said.read_text(errors="replace")
        said.unlink()
        return End(code, text)

    def resume(self) -> End:
        """Go on as the run's last line says."""
        return self.end(self.start(*self.onward))

    @property
    def onward(self) -> list[str]:
        """What to add to the command; nothing where the run had not begun."""
        return [f"resume={self.folder}"] if self.folder.is_dir() else []

    # ---- while it runs

    def lines(self) -> int:
        """Count the verdicts that lie in journals by now."""
        names = ("*/*.jsonl",) if self.sweep else ("*.jsonl",)
        files = [path for name in names for path in self.folder.glob(name)]
        return sum(path.read_bytes().count(b"\n") - 1 for path in files)

    def until(self, process: subprocess.Popen[bytes], when: Callable[[], bool]) -> bool:
        """Wait until something is so; False: the run has ended before."""
        while process.poll() is None:
            if when():
                return True
            time.sleep(0.01)
        return False

    def processes(self) -> list[int]:
        """Return all living processes of the run."""
        return processes_with(MARK, self.mark.encode().__eq__)

    def process_of(self, job: int, script: str) -> psutil.Process | None:
        """Return a process below the job that runs a script."""
        try:
            for child in psutil.Process(job).children(recursive=True):
                if any(word.endswith(script) for word in child.cmdline()):
                    return child
        except psutil.Error:
            pass
        return None

    # ---- afterwards

    def answers(self) -> list[Any]:
        """What the run, or each job, hands over."""
        found = []
        for folder in [self.folder / "0", self.folder / "1"] if self.sweep else [self.folder]:
            try:
                result = json.loads((folder / "result.json").read_text())
                names = sorted(node.name for node in onnx.load(str(folder / result["model"])).graph.node)
            except (OSError, ValueError, TypeError, KeyError, DecodeError):
                found.append(None)
                continue
            found.append([result[key] for key in ("status", "exit_code", "culprits", "nodes", "minimality")] + [names])
        return found

    def paid(self) -> Counter[str]:
        """How often the check was asked about each candidate, by what it holds."""
        path = self.place / "paid"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def left(self) -> list[str]:
        """What is left behind: processes, temporary files, what only a run at work has in its folder."""
        deadline = time.monotonic() + _GONE
        while (alive := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        names = ("workers", "inputs", "values", "target", "feeds")
        files = [path for name in names for path in self.folder.rglob(name)]
        found = [str(path) for path in [*files, *self.temporary.iterdir()]]
        return [*self.found_before, *(f"process {pid}" for pid in alive), *found]


def _hears() -> None:
    # a shell starts what runs in the background deaf to SIGINT, and children inherit that
    signal.signal(signal.SIGINT, signal.SIG_DFL)
