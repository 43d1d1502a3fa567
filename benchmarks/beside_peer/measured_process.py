"""What a command costs: seconds, CPU, memory of its process and of the whole tree, room on the disk. Linux only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PAUSE = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """A command that has ended.

    ``cpu``: of it and all that it waited for. ``job_mb``: the peak of its own process; ``tree_mb``: the largest sum
    over its processes at any look, 20 times a second; shared pages count in each. ``stopped``: the limit it ran into.
    """

    code: int
    wall: float
    cpu: float
    job_mb: float
    tree_mb: float
    stopped: str = ""


@dataclass(frozen=True)
class Limits:
    """What a command may take before it is killed, with all that it started."""

    seconds: float
    memory_mb: float = float("inf")

    def passed(self, seconds: float, memory: int) -> str:
        """Return which limit is passed, as words; empty: none."""
        if seconds > self.seconds:
            return f"{self.seconds:,.0f} s"
        return f"{self.memory_mb:,.0f} MB" if memory > self.memory_mb * 1e6 else ""


def measure(argv: Sequence[str], folder: Path, environment: Mapping[str, str], limits: Limits, log: Path) -> Cost:
    """Run a command in a folder, with its output in ``log``."""
    with log.open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    job = tree = 0
    stopped = ""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        job = max(job, _high_water(process.pid))
        processes = _tree(process.pid)
        now = sum(map(_resident, processes))
        tree = max(tree, now)
        stopped = stopped or limits.passed(time.monotonic() - started, now)
        for one in processes if stopped else ():
            _kill(one)
        time.sleep(_PAUSE)
    wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen waits for it no more
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(process.returncode, wall, cpu, job / 1e6, max(tree, job) / 1e6, stopped)


def room(folder: Path) -> float:
    """Return the megabytes that a folder takes on the disk; a file with several names counts once."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return sum(found.values()) / 1e6


def _tree(root: int) -> list[int]:
    """Return a process and all that descend from it, the oldest first."""
    found = [root]
    for pid in found:
        with suppress(ProcessLookupError):  # a thread may end while its folder is looked into
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in _read(children).split()]
    return found


def _resident(pid: int) -> int:
    words = _read(Path(f"/proc/{pid}/statm")).split()
    return int(words[1]) * _PAGE if words else 0


def _high_water(pid: int) -> int:
    line = next((line for line in _read(Path(f"/proc/{pid}/status")).splitlines() if line.startswith("VmHWM")), "")
    return int(line.split()[1]) << 10 if line else 0


def _read(path: Path) -> str:
    """Return a file of /proc, which is gone as soon as its process is."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
