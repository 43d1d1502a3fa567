"""The fault matrix: what is done to a run, and what becomes of its answer.

Each fault is done to a small run whose undisturbed answer is known. Afterwards the run goes on as its last line says
(``resume=``), and what it hands over is compared. Counted are trials in which

- the answer was *lost*: no answer, or none that is clear, though the fault is over,
- something was *wrong*: another answer, files that do not hold it, an exit code that no page names or that blames the
  user, a traceback,
- something was *left* behind: processes, temporary files, what only a run at work has in its folder,
- a check was paid for *twice* that was not under way, and whose subject is not handed over.

    python -m benchmarks.faults [--share 0.1] [--only kill] [--seed 1] [--light]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from google.protobuf.message import DecodeError
from onnx import NodeProto, TensorProto, helper, numpy_helper

from benchmarks import ROOT
from runner.disk_space import RESERVE

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
    _write(path, made, [one], TensorProto.FLOAT, [2])


def products(path: Path, nodes: int = 4) -> None:
    """Write a chain of products in fp16, which rounds otherwise when it is optimized."""
    draw = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((draw.standard_normal((256, 256)) / 16).astype(np.float16), f"w{i}")
        for i in range(nodes)
    ]
    made = [helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"n{i}") for i in range(nodes)]
    _write(path, made, weights, TensorProto.FLOAT16, [1, 256])


def _write(path: Path, nodes: list[NodeProto], weights: list[TensorProto], dtype: int, shape: list[int]) -> None:
    ends = [helper.make_tensor_value_info(name, dtype, shape) for name in ("t0", f"t{len(nodes)}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
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


Ended = tuple["Scene", list[End]]
Act = Callable[[Path, random.Random, float], Ended]
"""Disturbs a run, given its place, dice, and how far the run is when it strikes, from 0 to 1."""


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
        misbehave = self.misbehave.replace("@MARK", self.mark).replace("@OUT", str(self.folder))
        body = CHECK.format(paid=str((self.seen_at or self.place) / "paid"), misbehave=misbehave)
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
        end = End(code, said.read_text(errors="replace"))
        said.unlink()
        return end

    def onward(self) -> subprocess.Popen[bytes]:
        """Start it, or go on as the run's last line says where it had begun."""
        return self.start(*([f"resume={self.folder}"] if self.folder.is_dir() else []))

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Wait for the end of the run, and let it go on if it has not answered."""
        return self.answered([self.end(process)])

    def answered(self, ends: list[End]) -> Ended:
        """Let it go on if it has not answered."""
        return self, ends if ends[-1].code == 0 else [*ends, self.end(self.onward())]

    # ---- while it runs

    def lines(self) -> int:
        """Count the verdicts that lie in journals by now."""
        files = self.folder.glob("*/*.jsonl" if self.sweep else "*.jsonl")
        return sum(path.read_bytes().count(b"\n") - 1 for path in files)

    def reaches(self, process: subprocess.Popen[bytes], line: int) -> bool:
        """Wait until so many verdicts lie in journals; False: the run has ended before."""
        while process.poll() is None:
            if self.lines() >= line:
                return True
            time.sleep(0.01)
        return False

    def processes(self) -> list[int]:
        """Return all living processes of the run, also those that cleared their environment and are called by it."""
        return [
            process.pid
            for process in psutil.process_iter(["cmdline", "environ"])
            if self.mark in (process.info["cmdline"] or []) or self.mark == (process.info["environ"] or {}).get(MARK)
        ]

    def process_of(self, job: int, script: str) -> psutil.Process | None:
        """Return a process below the job that runs a script."""
        with suppress(psutil.Error):
            for child in psutil.Process(job).children(recursive=True):
                if any(word.endswith(script) for word in child.cmdline()):
                    return child
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
        names = ("workers", "inputs", "values", "target", "feeds", LEFT)
        files = [path for name in names for path in self.folder.rglob(name)]
        found = [str(path) for path in [*files, *self.temporary.iterdir()]]
        return [*self.found_before, *(f"process {pid}" for pid in alive), *found]


def _hears() -> None:
    # a shell starts what runs in the background deaf to SIGINT, and children inherit that
    signal.signal(signal.SIGINT, signal.SIG_DFL)


LEFT = "left-by-a-check"
WORKER, GUARDIAN, CHECK_KINDS = "workers/worker_main.py", "guardian.py", "check.py"
_AS_ROOT = os.geteuid() == 0
#: rights by which root writes where nobody may
_CAPABILITIES = "-dac_override,-dac_read_search,-fowner"
#: MiB of each neighbor that eats memory: less than a job has
_SMALL = 20
REAL, INJECTED = "real", "injected"


@dataclass(frozen=True)
class Fault:
    """``act`` disturbs a run from its start to its end, and returns how each of its processes ended.

    ``twice``: checks that may be paid for again besides what a run hands over. ``clear``: a clear end is enough.
    ``usage``: the exit code of a mistake of the user's is right.
    ``full``: how often it is tried in the whole matrix. ``light``: it is tried once in the small one. ``needs``: what
    is not there to try it with.
    """

    name: str
    how: str
    act: Act
    twice: int = 1
    clear: bool = False
    usage: bool = False
    full: int = 10
    light: bool = False
    needs: str = ""


def _signal(*numbers: int, sweep: bool = False, at_random: bool = False) -> Act:
    """Send the job a signal at the n-th line of the journal, or at some moment; what is resumed gets the next one."""

    def act(place: Path, draw: random.Random, share: float) -> Ended:
        scene = Scene(place, sweep=sweep)
        ends: list[End] = []
        span = 22 if sweep else 14 if len(numbers) == 1 else 4  # those that come in turn all find it at work
        for number in numbers:
            process = scene.onward()
            if at_random and share < 0.25:
                time.sleep(6 * share * (1 + sweep))
                os.kill(process.pid, number)
            else:
                pause = draw.random() / 10 if at_random else 0.0
                if scene.reaches(process, max(1, int(share * span)) + len(ends) * 2):
                    time.sleep(pause)
                    os.kill(process.pid, number)
            ends.append(scene.end(process))
            if not scene.folder.exists():  # it came before the program that takes it
                scene.killed = (*scene.killed, -number)
        return scene.answered(ends)

    return act


def _kill_of(*scripts: str) -> Act:
    """Kill processes below the job, one after the other, as soon as such a one runs after so many lines."""

    def act(place: Path, draw: random.Random, share: float) -> Ended:
        # long enough to be found; what it says when asked again is about another process
        slow = "import time; time.sleep(0.05)" if "check.py" in scripts else ""
        scene = Scene(place, misbehave=slow, retried=len(scripts))
        process = scene.start()
        for number, script in enumerate(scripts):
            if not scene.reaches(process, -1 if script == WORKER else int(share * 12) + number):
                continue
            deadline = time.monotonic() + 5
            while (found := scene.process_of(process.pid, script)) is None and time.monotonic() < deadline:
                if process.poll() is not None:
                    break
                time.sleep(0.01)
            time.sleep(share * 0.5 if script == WORKER and found else 0.0)
            with suppress(psutil.Error):
                if found is not None:
                    found.kill()
        return scene.ended(process)

    return act


def _stopped(place: Path, draw: random.Random, share: float) -> Ended:
    """Stop the run and all that it has started for longer than a check may take, and let it go on."""
    scene = Scene(place, misbehave="import time; time.sleep(0.1)", overrides=("checker.timeout=1.5",))
    process = scene.start()
    if scene.reaches(process, 1 + int(share * 12)):
        found = scene.processes()
        for number, pause in ((signal.SIGSTOP, 2.5), (signal.SIGCONT, 0.0)):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(pause)
    return scene.ended(process)


def _small(place: Path, draw: random.Random, share: float) -> Ended:
    """A disk with so many kilobytes beyond what a run keeps free; there is room once the run has ended."""
    return _on_disk(place, f"{RESERVE // 1024 - 40 + int(share * 60) * 4}k", lambda scene: scene.start())


def _full(place: Path, draw: random.Random, share: float) -> Ended:
    """A disk that others fill while the run is at work, all but some kilobytes, until the run has ended."""

    def fill(scene: Scene) -> subprocess.Popen[bytes]:
        process = scene.start()
        if scene.reaches(process, 1 + int(share * 12)):
            free = os.statvfs(place / "disk")
            with (place / "disk" / "others").open("wb") as file, suppress(OSError):
                file.write(bytes(max(0, free.f_bfree * free.f_frsize - draw.randrange(64 << 10))))
        return process

    return _on_disk(place, f"{RESERVE * 3 // 2048}k", fill)


def _on_disk(place: Path, size: str, begin: Callable[[Scene], subprocess.Popen[bytes]]) -> Ended:
    """A run, and another that goes on once there is room, in a file system of their own."""
    disk = place / "disk"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)], check=True)
    try:
        scene = Scene(place, folder=disk / "out", environment={"TMPDIR": str(disk)})
        ends = [scene.end(begin(scene))]
        if ends[0].code:
            (disk / "others").unlink(missing_ok=True)
            subprocess.run(["mount", "-o", f"remount,size={RESERVE * 2 // 1024}k", str(disk)], check=True)
            ends.append(scene.end(scene.onward()))
        shutil.copytree(disk / "out", place / "out", dirs_exist_ok=True)
        left = scene.left()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    scene.folder = place / "out"
    scene.found_before = left
    return scene, ends


def _limited(place: Path, draw: random.Random, share: float) -> Ended:
    """No file may be larger than so many bytes, as on a disk that is full for those that grow."""
    size = 512 + int(share * 6000)
    limited = Scene(place, before=("bash", "-c", f'trap "" XFSZ; ulimit -f {max(1, size // 1024)}; exec "$@"', "-"))
    ends = [limited.end(limited.start())]
    return Scene(place).answered(ends)


def _read_only(place: Path, draw: random.Random, share: float) -> Ended:
    """Nothing may be written any more into the run's folder, from the start or from some line on."""
    line = int(share * 14)  # the first of all: before it starts
    before = ("setpriv", f"--bounding-set={_CAPABILITIES}", f"--inh-caps={_CAPABILITIES}") if _AS_ROOT else ()
    scene = Scene(place, before=before)
    scene.folder.mkdir()

    def chmod(mode: int) -> None:
        for path in [scene.folder, *scene.folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(mode)

    if not line:
        chmod(0o555)
    process = scene.start()
    if line and scene.reaches(process, line):
        chmod(0o555)
    ends = [scene.end(process)]
    chmod(0o755)
    return scene.answered(ends) if line or not ends[0].code else (scene, [*ends, scene.end(scene.start())])


def _no_tmp(place: Path, draw: random.Random, share: float) -> Ended:
    """No folder for temporary files can be written to; what is in them, Winnow itself perhaps, can still be read."""
    script = (
        'set -e; mount --bind "$0" /mnt; for place in /tmp /var/tmp /usr/tmp; do '
        "[ ! -d $place ] || [ -L $place ] || { mount --rbind $place $place; mount -o remount,ro,bind $place; }; done; "
        'cd /mnt; exec "$@"'
    )
    place.mkdir(parents=True, exist_ok=True)
    scene = Scene(place, before=("unshare", "-m", "bash", "-c", script, str(place)), seen_at=Path("/mnt"))
    scene.environment = {"TMPDIR": ""}
    return scene, [scene.end(scene.start())]


def _memory(place: Path, draw: random.Random, share: float) -> Ended:
    """Neighbors in the same group, each smaller than the job, eat the memory up: the kernel chooses whom it kills."""
    group = Path("/sys/fs/cgroup/memory") / f"winnow-fault-{os.getpid()}"
    group.mkdir()
    neighbors = (
        "import os, time\n"
        f"time.sleep({share})\n"
        "for _ in range(14):\n"
        "    if not os.fork():\n"
        f"        held = b'x' * ({_SMALL} << 20); time.sleep(30); os._exit(0)\n"
        "    time.sleep(0.05)\n"
    )
    try:
        (group / "memory.limit_in_bytes").write_text(str(14 * _SMALL + 20 << 20))
        script = f'echo $$ > {group}/cgroup.procs; python3 -c "$NEIGHBOURS" & exec "$@"'
        scene = Scene(place, before=("bash", "-c", script, "-"), environment={"NEIGHBOURS": neighbors})
        ends = [scene.end(scene.start())]
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.2)
    finally:
        group.rmdir()
    return Scene(place).answered(ends)


def _clock(place: Path, draw: random.Random, share: float) -> Ended:
    """The clock on the wall goes back by a day in mid-run."""
    folder = place / "clock"
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(
        "import time\nreal, calls = time.time, [0]\n"
        "def back():\n    calls[0] += 1\n"
        f"    return real() - 86400 * (calls[0] > {int(share * 200)})\ntime.time = back\n"
    )
    scene = Scene(place)
    scene.environment = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return scene, [scene.end(scene.start())]


def _misbehaving(what: str, *overrides: str) -> Act:
    def act(place: Path, draw: random.Random, share: float) -> Ended:
        scene = Scene(place, misbehave=what, overrides=overrides)
        ends = [scene.end(scene.start())]
        return scene.answered(ends) if ends[0].code == 1 else (scene, ends)

    return act


def _renamed(place: Path, draw: random.Random, share: float) -> Ended:
    """The run's folder has another name from some line on, and its own again once the run has ended."""
    scene = Scene(place)
    process = scene.start()
    if scene.reaches(process, 1 + int(share * 12)):
        scene.folder.rename(place / "elsewhere")
    ends = [scene.end(process)]
    if (place / "elsewhere").is_dir():
        shutil.rmtree(scene.folder, ignore_errors=True)  # where the run has said that its folder is gone
        (place / "elsewhere").rename(scene.folder)
    return scene.answered(ends)


def _no_streams(place: Path, draw: random.Random, share: float) -> Ended:
    """Descriptors 0 to 2 are closed."""
    scene = Scene(place, before=("bash", "-c", 'exec "$@" <&- >&- 2>&-', "-"))
    return scene, [scene.end(scene.start())]


_ROOT = "" if _AS_ROOT else "needs root"
_FORKS = "if not os.fork():\n    os.execvp('sleep', ['sleep', '300'])"
_DAEMON = "if not os.fork():\n    os.setsid()\n    os.execvp('sleep', ['sleep', '300'])"
_REWRITES = "open(path, 'wb').write(b'no model')"
_DELETES = "os.unlink(path)"
_EITHER = f"if zlib.crc32(data) % 2:\n    {_DELETES}\nelse:\n    {_REWRITES}"
_HIDES = "if not os.fork():\n    os.setsid()\n    os.execve('/bin/sleep', ['@MARK', '300'], {})"
_LEAVES = f"open(os.path.join(os.environ['WINNOW_DIR'], '{LEFT}'), 'wb').write(bytes(1 << 20))"
_BACKTRACKS = "print('a' * 5000 + 'b')"
_BETWEEN = """
print('line\\n' * 700000)
print('MISMATCH' if b"node-05" in data and b"node-09" in data else 'fine')
print('line\\n' * 700000)
sys.stdout.flush()
os._exit(0)
"""
_FORGETS = "\nonce = '@OUT/../once'\nif os.path.exists('@OUT/journal.jsonl') and not os.path.exists(once):\n"
_FORGETS += "    open(once, 'w').close()\n    os.unlink('@OUT/journal.jsonl')"
_WORD = _misbehaving(_BETWEEN, "checker.fail_regex=[MISMATCH]")
_ENDLESS = _misbehaving(_BACKTRACKS, "checker.fail_regex=['(a+)+$']")
_IN_TURN = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GROUPS = _ROOT or ("" if Path("/sys/fs/cgroup/memory").is_dir() else "needs control groups, version 1")
_FLOODS = "for _ in range(100):\n    print('x' * 100000)"

FAULTS: Sequence[Fault] = (
    Fault("kill -9 of the job, at a line", REAL, _signal(signal.SIGKILL), full=60),
    Fault("kill -9 of the job, at random", REAL, _signal(signal.SIGKILL, at_random=True), full=80),
    Fault("kill -9 of a sweep, at random", REAL, _signal(signal.SIGKILL, at_random=True, sweep=True), full=20),
    Fault("kill -9 of a worker", REAL, _kill_of(WORKER), full=20),
    Fault("kill -9 of the guardian", REAL, _kill_of(GUARDIAN), full=20),
    Fault("kill -9 of a check", REAL, _kill_of(CHECK_KINDS), full=20),
    Fault("kill -9 of worker, guardian, check", REAL, _kill_of(WORKER, GUARDIAN, CHECK_KINDS), full=3, light=True),
    Fault("SIGTERM", REAL, _signal(signal.SIGTERM, at_random=True), full=20),
    Fault("SIGINT", REAL, _signal(signal.SIGINT, at_random=True), full=20),
    Fault("SIGHUP", REAL, _signal(signal.SIGHUP, at_random=True), full=20),
    Fault("SIGUSR1", REAL, _signal(signal.SIGUSR1, at_random=True), full=20),
    Fault("SIGHUP of a sweep", REAL, _signal(signal.SIGHUP, at_random=True, sweep=True), full=10),
    Fault("kill -9, SIGINT, SIGTERM, SIGHUP in turn", REAL, _signal(*_IN_TURN), full=5, light=True),
    Fault("SIGSTOP, SIGCONT", REAL, _stopped, light=True),
    Fault("disk too small", f"{REAL}, a tmpfs of 20 sizes", _small, full=20, needs=_ROOT),
    Fault("disk filled by others", f"{REAL}, a tmpfs", _full, full=20, light=_AS_ROOT, needs=_ROOT),
    Fault("files that cannot grow", f"{REAL}, RLIMIT_FSIZE", _limited, light=not _AS_ROOT),
    Fault("read-only folder", REAL, _read_only, usage=True, light=True),
    Fault("no /tmp", f"{REAL}, a mount namespace", _no_tmp, full=2, light=True, needs=_ROOT),
    Fault("memory eaten by a neighbor", f"{REAL}, a control group", _memory, light=True, needs=_GROUPS),
    Fault("clock set back", f"{INJECTED}: time.time", _clock, full=5, light=True),
    Fault("check leaves a child", REAL, _misbehaving(_FORKS), full=3),
    Fault("check leaves a daemon", REAL, _misbehaving(_DAEMON), full=3),
    Fault("check floods its output", REAL, _misbehaving(_FLOODS), full=3),
    Fault("check forks, daemonizes, floods", REAL, _misbehaving(f"{_FORKS}\n{_DAEMON}\n{_FLOODS}"), full=3, light=True),
    Fault("check leaves what has no environment", REAL, _misbehaving(_HIDES), full=3, light=True),
    Fault("check leaves a megabyte in its folder", REAL, _misbehaving(_LEAVES), full=3, light=True),
    Fault("a word in the middle of 7 MB of output", REAL, _WORD, full=3, light=True),
    Fault("a pattern that backtracks for ever", REAL, _ENDLESS, full=2, clear=True, usage=True, light=True),
    Fault("check deletes the journal, once", REAL, _misbehaving(_FORGETS), twice=20, full=3, light=True),
    Fault("run folder renamed", REAL, _renamed, full=10, light=True),
    Fault("closed standard streams", REAL, _no_streams, full=2, light=True),
    Fault("check deletes the candidate", REAL, _misbehaving(_DELETES), full=3, clear=True),
    Fault("check rewrites the candidate", REAL, _misbehaving(_REWRITES), full=3, clear=True),
    Fault("check deletes or rewrites it", REAL, _misbehaving(_EITHER), full=3, clear=True, light=True),
)


STRACE = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=socket,socketpair")
_FAMILY = re.compile(r"socket(?:pair)?\((\w+)")


def sockets(place: Path) -> Counter[str]:
    """Run it; return how many sockets all its processes have opened, by family. It must find an answer."""
    place.mkdir(parents=True, exist_ok=True)
    products(place / "net.onnx")
    traced = place / "traced"
    exact = ["checker=compare", "checker.rtol=0", "checker.atol=0", "checker.flaky=never"]
    command = [sys.executable, "-m", "runner", "model=net.onnx", "strategy=reduce_bisect", *exact, "hydra.run.dir=out"]
    unguarded = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}  # a run sets it
    done = subprocess.run(
        [*STRACE, "-o", str(traced), *command],
        cwd=place,
        env={**unguarded, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Counter(_FAMILY.findall(traced.read_text()))


#: what a resumed run hands over is checked again: the reduced model and the smallest that passes
HANDED_OVER = 2
USAGE = 2


@dataclass(frozen=True)
class Undisturbed:
    """What a run answers and what it pays for, by whether it is a sweep of two."""

    answers: dict[bool, list[Any]]
    paid: dict[bool, Counter[str]]

    @staticmethod
    def of(place: Path, kinds: Iterable[bool]) -> Undisturbed:
        """Run it undisturbed."""
        normal = Undisturbed({}, {})
        for sweep in kinds:
            scene = Scene(place / f"undisturbed-{sweep}", sweep=sweep)
            end = scene.end(scene.start())
            normal.answers[sweep], normal.paid[sweep] = scene.answers(), scene.paid()
            assert end.code == 0 and None not in scene.answers(), end.output
        return normal


@dataclass(frozen=True)
class Trial:
    """What became of one trial, by the columns of the table; ``notes`` say why."""

    lost: bool
    wrong: bool
    left: bool
    twice: bool
    notes: tuple[str, ...]


def tried(fault: Fault, place: Path, normal: Undisturbed, draw: random.Random, share: float) -> Trial:
    """Try a fault once. ``share``: how far the run is when it strikes, from 0 to 1."""
    scene, ends = fault.act(place, draw, share)
    answers, good = scene.answers(), normal.answers[scene.sweep]
    codes = [end.code for end in ends]
    answered = codes[-1] in ANSWERED
    another = answered and answers != good
    struck = [end for end in ends if end.code == USAGE and not fault.usage]
    struck += [end for end in ends if not (end.clear or end.code in scene.killed)]
    lost = not answered and not (fault.clear and ends[-1].clear)
    paid = sum((scene.paid() - normal.paid[scene.sweep]).values()) if answered else 0
    allowed = (len(ends) - 1) * (fault.twice + HANDED_OVER * (1 + scene.sweep)) + scene.retried
    left = scene.left()
    notes = [f"exit codes {codes}: {end.output[-400:]}" for end in struck]
    if (another or lost) and not struck:
        notes.append(f"exit codes {codes}: {ends[-1].output[-400:]}")
    if another:
        notes.append(f"{answers} instead of {good}")
    notes += left
    if paid > allowed:
        notes.append(f"{paid} checks paid for again, {allowed} allowed")
    return Trial(lost, bool(struck) or another, bool(left), paid > allowed, tuple(notes))


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    fault: Fault
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        counts: list[object] = [self.fault.needs, *[""] * 4]
        if not self.fault.needs:
            figures = [sum(getattr(one, name) for one in self.trials) for name in ("lost", "wrong", "left", "twice")]
            counts = [len(self.trials), *figures]
        return f"| {self.fault.name} | {self.fault.how} | {' | '.join(map(str, counts))} |"

    @property
    def notes(self) -> list[str]:
        """Why the row is not all zeros."""
        return [note for one in self.trials for note in one.notes]


HEAD = "| fault | how | tried | lost | wrong | left behind | paid twice |\n|---|---|---|---|---|---|---|"


def row(fault: Fault, times: int, place: Path, normal: Undisturbed, seed: int = 1) -> Row:
    """Try a fault so many times, at moments that are spread over the run."""
    draw = random.Random(f"{seed} {fault.name}")
    trials = []
    for number in range(0 if fault.needs else times):
        where = place / f"{fault.name.replace('/', '').replace(' ', '-')}-{number}"
        share = (number + draw.random()) / times
        trials.append(tried(fault, where, normal, draw, share))
        if not trials[-1].notes:
            shutil.rmtree(where)
    return Row(fault, tuple(trials))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials of the whole matrix")
    parser.add_argument("--only", default="", help="faults with this in their names")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--light", action="store_true", help="the small matrix of the tests: each kind of fault once")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="winnow-faults-", dir=os.environ.get("TMPDIR")))
    normal = Undisturbed.of(place, (False,) if given.light else (False, True))
    print(HEAD)
    notes = []
    for fault in FAULTS:
        if given.only not in fault.name or (given.light and not fault.light):
            continue
        times = 1 if given.light else max(1, round(fault.full * given.share))
        found = row(fault, times, place, normal, given.seed)
        print(found, flush=True)
        notes += [f"{fault.name}: {note}" for note in found.notes]
    print("\n".join(["", *notes]) if notes else "")
    if shutil.which("strace"):
        print(f"sockets opened by a reduction with ONNX Runtime, under strace: {dict(sockets(place / 'sockets'))}")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print("CPU seconds:", *(round(one.ru_utime + one.ru_stime, 1) for one in used))
    print(f"what is not as it should be lies in {place}" if notes else "")


if __name__ == "__main__":
    main()
