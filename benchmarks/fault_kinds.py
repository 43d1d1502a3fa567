"""The faults of the matrix: each is done to a run, and says how; some may end a run with nothing but a clear word."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from runner.disk_space import RESERVE

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
        """Return all living processes of the run, also those that cleared their environment and are called by it."""
        return [
            process.pid
            for process in psutil.process_iter(["cmdline", "environ"])
            if self.mark in (process.info["cmdline"] or []) or self.mark == (process.info["environ"] or {}).get(MARK)
        ]

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
    act: Callable[[Path, random.Random, float], tuple[Scene, list[End]]]
    twice: int = 1
    clear: bool = False
    usage: bool = False
    full: int = 10
    light: bool = False
    needs: str = ""


def _sent(
    scene: Scene, when: Callable[[Scene], bool] | float, send: Callable[[Scene, int], None]
) -> tuple[Scene, list[End]]:
    """Start a run, wait for a moment or for something to be so, and do something to it; go on until it has answered."""
    process = scene.start()
    _strike(scene, process, when, send)
    ends = [scene.end(process)]
    return scene, ends if ends[0].code == 0 else [*ends, scene.resume()]


def _strike(
    scene: Scene,
    process: subprocess.Popen[bytes],
    when: Callable[[Scene], bool] | float,
    send: Callable[[Scene, int], None],
) -> None:
    if isinstance(when, float):
        time.sleep(when)
    if isinstance(when, float) or scene.until(process, lambda: when(scene)):
        send(scene, process.pid)


def _signal(*numbers: int, sweep: bool = False, at_random: bool = False) -> Callable[..., tuple[Scene, list[End]]]:
    """Send the job a signal at the n-th line of the journal, or at some moment; what is resumed gets the next one."""

    def act(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
        scene = Scene(place, sweep=sweep)
        ends: list[End] = []
        for number in numbers:
            process = scene.start(*scene.onward) if ends else scene.start()
            if at_random and share < 0.25:
                _strike(scene, process, 6 * share * (1 + sweep), lambda _, job, number=number: os.kill(job, number))
            else:
                pause = draw.random() / 10 if at_random else 0.0
                span = 22 if sweep else 14 if len(numbers) == 1 else 4  # those that come in turn all find it at work
                line = max(1, int(share * span)) + len(ends) * 2

                def send(_: Scene, job: int, number: int = number, pause: float = pause) -> None:
                    time.sleep(pause)
                    os.kill(job, number)

                _strike(scene, process, lambda scene, line=line: scene.lines() >= line, send)
            ends.append(scene.end(process))
            if not scene.folder.exists():  # it came before the program that takes it
                scene.killed = (*scene.killed, -number)
        return scene, ends if ends[-1].code == 0 else [*ends, scene.resume()]

    return act


def _kill_of(*scripts: str) -> Callable[..., tuple[Scene, list[End]]]:
    """Kill processes below the job, one after the other, as soon as such a one runs after so many lines."""

    def act(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
        # long enough to be found; what it says when asked again is about another process
        slow = "import time; time.sleep(0.05)" if "check.py" in scripts else ""
        scene = Scene(place, misbehave=slow, retried=len(scripts))
        process = scene.start()
        for number, script in enumerate(scripts):
            line = -1 if script == WORKER else int(share * 12) + number

            def send(scene: Scene, job: int, script: str = script) -> None:
                deadline = time.monotonic() + 5
                while (found := scene.process_of(job, script)) is None and time.monotonic() < deadline:
                    if process.poll() is not None:
                        return
                    time.sleep(0.01)
                time.sleep(share * 0.5 if script == WORKER else 0.0)
                if found is not None:
                    with suppress(psutil.Error):
                        found.kill()

            _strike(scene, process, lambda scene, line=line: scene.lines() >= line, send)
        ends = [scene.end(process)]
        return scene, ends if ends[0].code == 0 else [*ends, scene.resume()]

    return act


def _stopped(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """Stop the run and all that it has started for longer than a check may take, and let it go on."""

    def send(scene: Scene, job: int) -> None:
        found = scene.processes()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(2.5)

    scene = Scene(place, misbehave="import time; time.sleep(0.1)", overrides=("checker.timeout=1.5",))
    return _sent(scene, lambda scene: scene.lines() >= 1 + int(share * 12), send)


def _small(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """A disk with so many kilobytes beyond what a run keeps free; there is room once the run has ended."""
    return _on_disk(place, f"{RESERVE // 1024 - 40 + int(share * 60) * 4}k", lambda scene: scene.start())


def _full(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """A disk that others fill while the run is at work, all but some kilobytes, until the run has ended."""

    def fill(scene: Scene) -> subprocess.Popen[bytes]:
        process = scene.start()
        if scene.until(process, lambda: scene.lines() >= 1 + int(share * 12)):
            free = os.statvfs(place / "disk")
            with (place / "disk" / "others").open("wb") as file, suppress(OSError):
                file.write(bytes(max(0, free.f_bfree * free.f_frsize - draw.randrange(64 << 10))))
        return process

    return _on_disk(place, f"{RESERVE * 3 // 2048}k", fill)


def _on_disk(place: Path, size: str, begin: Callable[[Scene], subprocess.Popen[bytes]]) -> tuple[Scene, list[End]]:
    """A run, and another that goes on once there is room, in a file system of their own."""
    disk = place / "disk"
    disk.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "none", str(disk))
    try:
        scene = Scene(place, folder=disk / "out", environment={"TMPDIR": str(disk)})
        ends = [scene.end(begin(scene))]
        if ends[0].code:
            (disk / "others").unlink(missing_ok=True)
            _mount("-o", f"remount,size={RESERVE * 2 // 1024}k", str(disk))
            ends.append(scene.resume())
        shutil.copytree(disk / "out", place / "out", dirs_exist_ok=True)
        left = scene.left()
    finally:
        _unmount(disk)
    scene.folder = place / "out"
    scene.found_before = left
    return scene, ends


def _limited(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """No file may be larger than so many bytes, as on a disk that is full for those that grow."""
    size = 512 + int(share * 6000)
    limited = Scene(place, before=("bash", "-c", f'trap "" XFSZ; ulimit -f {max(1, size // 1024)}; exec "$@"', "-"))
    ends = [limited.end(limited.start())]
    scene = Scene(place)
    return scene, ends if ends[0].code == 0 else [*ends, scene.resume()]


def _read_only(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """Nothing may be written any more into the run's folder, from the start or from some line on."""
    line = int(share * 14)
    before = ("setpriv", f"--bounding-set={_CAPABILITIES}", f"--inh-caps={_CAPABILITIES}") if _AS_ROOT else ()
    scene = Scene(place, before=before)
    scene.folder.mkdir()

    def chmod(scene: Scene, mode: int) -> None:
        for path in [scene.folder, *scene.folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(mode)

    if not line:
        chmod(scene, 0o555)
    process = scene.start()
    if scene.until(process, lambda: scene.lines() >= line > 0):
        chmod(scene, 0o555)
    ends = [scene.end(process)]
    chmod(scene, 0o755)
    return scene, ends if ends[0].code == 0 else [*ends, scene.resume() if line else scene.end(scene.start())]


def _no_tmp(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
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


def _memory(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
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
    undisturbed = Scene(place)
    return undisturbed, ends if ends[0].code == 0 else [*ends, undisturbed.resume()]


def _clock(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """The clock on the wall goes back by a day in mid-run."""
    folder = place / "clock"
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(
        "import time\nreal, calls = time.time, [0]\n"
        "def back():\n    calls[0] += 1\n"
        f"    return real() - 86400 * (calls[0] > {int(share * 200)})\ntime.time = back\n"
    )
    scene = Scene(place)
    scene.environment = {"PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[1]}"}
    return scene, [scene.end(scene.start())]


def _misbehaving(what: str, *overrides: str) -> Callable[..., tuple[Scene, list[End]]]:
    def act(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
        scene = Scene(place, misbehave=what, overrides=overrides)
        ends = [scene.end(scene.start())]
        return scene, ends if ends[0].code != 1 else [*ends, scene.resume()]

    return act


def _renamed(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """The run's folder has another name from some line on, and its own again once the run has ended."""

    def send(scene: Scene, _: int) -> None:
        scene.folder.rename(place / "elsewhere")

    scene = Scene(place)
    process = scene.start()
    _strike(scene, process, lambda scene: scene.lines() >= 1 + int(share * 12), send)
    ends = [scene.end(process)]
    if (place / "elsewhere").is_dir():
        shutil.rmtree(scene.folder, ignore_errors=True)  # where the run has said that its folder is gone
        (place / "elsewhere").rename(scene.folder)
    return scene, ends if ends[0].code == 0 else [*ends, scene.resume()]


def _no_streams(place: Path, draw: random.Random, share: float) -> tuple[Scene, list[End]]:
    """Descriptors 0 to 2 are closed."""
    scene = Scene(place, before=("bash", "-c", 'exec "$@" <&- >&- 2>&-', "-"))
    return scene, [scene.end(scene.start())]


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], check=True)


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
    Fault(
        "kill -9, SIGINT, SIGTERM, SIGHUP in turn",
        REAL,
        _signal(signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
        full=5,
        light=True,
    ),
    Fault("SIGSTOP, SIGCONT", REAL, _stopped, light=True),
    Fault("disk too small", f"{REAL}, a tmpfs of 20 sizes", _small, full=20, needs=_ROOT),
    Fault("disk filled by others", f"{REAL}, a tmpfs", _full, full=20, light=_AS_ROOT, needs=_ROOT),
    Fault("files that cannot grow", f"{REAL}, RLIMIT_FSIZE", _limited, light=not _AS_ROOT),
    Fault("read-only folder", REAL, _read_only, usage=True, light=True),
    Fault("no /tmp", f"{REAL}, a mount namespace", _no_tmp, full=2, light=True, needs=_ROOT),
    Fault(
        "memory eaten by a neighbor",
        f"{REAL}, a control group",
        _memory,
        light=True,
        needs=_ROOT or ("" if Path("/sys/fs/cgroup/memory").is_dir() else "needs control groups, version 1"),
    ),
    Fault("clock set back", f"{INJECTED}: time.time", _clock, full=5, light=True),
    Fault("check leaves a child", REAL, _misbehaving(_FORKS), full=3),
    Fault("check leaves a daemon", REAL, _misbehaving(_DAEMON), full=3),
    Fault("check floods its output", REAL, _misbehaving(_FLOODS), full=3),
    Fault("check forks, daemonizes, floods", REAL, _misbehaving(f"{_FORKS}\n{_DAEMON}\n{_FLOODS}"), full=3, light=True),
    Fault("check leaves what has no environment", REAL, _misbehaving(_HIDES), full=3, light=True),
    Fault("check leaves a megabyte in its folder", REAL, _misbehaving(_LEAVES), full=3, light=True),
    Fault(
        "a word in the middle of 7 MB of output",
        REAL,
        _misbehaving(_BETWEEN, "checker.fail_regex=[MISMATCH]"),
        full=3,
        light=True,
    ),
    Fault(
        "a pattern that backtracks for ever",
        REAL,
        _misbehaving(_BACKTRACKS, "checker.fail_regex=['(a+)+$']"),
        full=2,
        clear=True,
        usage=True,
        light=True,
    ),
    Fault("check deletes the journal, once", REAL, _misbehaving(_FORGETS), twice=20, full=3, light=True),
    Fault("run folder renamed", REAL, _renamed, full=10, light=True),
    Fault("closed standard streams", REAL, _no_streams, full=2, light=True),
    Fault("check deletes the candidate", REAL, _misbehaving(_DELETES), full=3, clear=True),
    Fault("check rewrites the candidate", REAL, _misbehaving(_REWRITES), full=3, clear=True),
    Fault("check deletes or rewrites it", REAL, _misbehaving(_EITHER), full=3, clear=True, light=True),
)
