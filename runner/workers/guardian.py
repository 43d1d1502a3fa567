"""Kills what a job leaves behind, even when the job itself was killed.

The job tells a tiny process of its own which process groups it has started (``+pgid`` and ``-pgid`` lines on a pipe).
When the pipe closes, or the job is gone, that process kills the groups that are left. A process can leave its group,
and a job can be killed between the start of a command and the line about it; so each command also has a mark of its
own in its environment, which all that it starts inherits. All processes with that mark are killed when the command has
ended (`kill_marked`), and the guardian does the same for all marks of the job when that is gone.

This file is both: the job's side (``Guardian``) and the script that is started by path, which needs the standard
library only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping

_LOOK_SECONDS = 1.0
MARK = "WINNOW_JOB"
# looks at what was started meanwhile; a limit, so that a fork bomb does not block us
_ROUNDS = 50
# from a fork to the exec of a command
_START_SECONDS = 0.2
# how long to wait for a process that is in the middle of an exec, which reads the program's file
_EXEC_SECONDS = 1.0
# bytes; Linux gives arguments and environment a quarter of the stack, 2 MiB unless that was changed
_LONGEST_ENVIRONMENT = 1 << 21
# fields of /proc/PID/stat, counted from the one after the name
_VSIZE, _START_CODE, _ENV_START, _ENV_END = 20, 23, 47, 48
# nothing that Winnow starts sends anything to anybody, unless the user's own environment says that it may: ONNX
# Runtime, Hugging Face's libraries, and whoever heeds https://consoledonottrack.com
_QUIET = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}


def kill_group(pgid: int) -> None:
    """Kill a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


def marked(matches: Callable[[bytes], bool]) -> list[int]:
    """Return the processes whose mark ``matches``. Works on Linux only; no process is found elsewhere."""
    return [pid for pid in _processes() if _has(pid, matches)]


def _has(pid: int, matches: Callable[[bytes], bool]) -> bool:
    wanted = f"{MARK}=".encode()
    if pid == os.getpid():
        return False
    try:
        entries = _environment(pid).split(b"\0")
    except OSError:
        return False
    return any(entry.startswith(wanted) and matches(entry[len(wanted) :]) for entry in entries)


def _environment(pid: int) -> bytes:
    """Return a process's environment; OSError where there is none to read.

    In the middle of an exec it looks empty for a moment, which is waited for: such a process is not without a mark.
    """
    end = time.monotonic() + _EXEC_SECONDS
    while True:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as environ:  # noqa: PTH123
            # in one call: an exec between two would cut it off
            content = environ.read(_LONGEST_ENVIRONMENT)
        if content or _has_none(pid) or time.monotonic() > end:
            return content
        time.sleep(0.0005)


def _has_none(pid: int) -> bool:
    """Whether a process has no memory (it has ended) or was given no environment: `proc(5)`, ``stat``.

    During an exec the kernel fills in the place of the environment first and that of the program's code last.
    """
    with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(b")")[2].split()
    return fields[_VSIZE] == b"0" or (fields[_START_CODE] != b"0" and fields[_ENV_START] == fields[_ENV_END])


def _processes() -> list[int]:
    """Return all processes; none where there is no /proc."""
    try:
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]  # noqa: PTH208 - a Path costs too much
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_marked(matches: Callable[[bytes], bool]) -> None:
    """Kill all processes whose mark ``matches``, also in other sessions.

    One that starts another and ends during a look is not found, and the other one is not in that look: so looks go on
    until none is new.
    """
    known: set[int] = set()
    for _ in range(_ROUNDS):
        new = set(_processes()) - known
        if not new:
            return
        known |= new
        for pid in new:
            if _has(pid, matches):
                _kill(pid)


def _below(pids: Iterable[int]) -> list[int]:
    """Return the descendants of some processes: children that cleared their environment are among them."""
    children: dict[int, list[int]] = {}
    for pid in _processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
            children.setdefault(int(stat.read().rpartition(b")")[2].split()[1]), []).append(pid)
    found, waiting = [], list(pids)
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


class Guardian(contextlib.AbstractContextManager["Guardian"]):
    """The job's side. Thread-safe; a context manager; starts its process before the first command.

    ``mark``: what the marks of all commands of this job begin with, see ``marked``. ``kills``: how often ``kill`` was
    called, for those who wait to start something.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.kills = 0
        self.mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._commands = itertools.count(1)

    def __exit__(self, *_: object) -> None:
        self.close()

    def marked(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for a command that is about to be started, with a mark of its own (``MARK``).

        From now on the guardian is there.
        """
        with self._lock:
            if self._process is None and not self._closed:
                self._start()
            number = next(self._commands)
        return {**_QUIET, **env, MARK: f"{self.mark}.{number}"}

    @staticmethod
    def sweep(mark: str) -> None:
        """Kill what a command that has ended, and is not reaped yet, has left: all that bears its ``mark``."""
        kill_marked(mark.encode().__eq__)

    def add(self, pgid: int) -> None:
        """Watch a process group."""
        with self._lock:
            self._groups.add(pgid)
            self._tell(f"+{pgid}\n")

    def remove(self, pgid: int) -> None:
        """Forget a group that has ended; call it before the leader is reaped, while the number cannot be another's."""
        with self._lock:
            self._groups.discard(pgid)
            if self._process is not None:
                self._tell(f"-{pgid}\n")

    def kill(self) -> None:
        """Kill all groups that are watched; whoever waits for one of them sees the death and reaps it."""
        with self._lock:  # so none of them is reaped, and its number another's, meanwhile
            self.kills += 1
            for pgid in self._groups:
                kill_group(pgid)

    def close(self) -> None:
        """Kill the groups that are left and end the process."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tell(self, line: str) -> None:
        if self._closed:
            return
        if self._process is None:
            self._start()
            return
        try:
            self._write(line)
        except OSError:
            # somebody killed the guardian: another one takes over all groups
            self._process.kill()
            self._process.wait()
            with contextlib.suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            # a job inside a job: this process outlives the outer one, to end what the inner one has started
            env={name: value for name, value in os.environ.items() if name != MARK},
            bufsize=0,
            start_new_session=True,
        )
        for pgid in self._groups:
            self._write(f"+{pgid}\n")

    def _write(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line.encode())


def watch(fd: int, job: int, mark: str) -> None:
    """Read lines from ``fd`` until it closes or ``job`` is no longer the parent; then kill what is left."""
    groups: set[int] = set()
    rest = b""
    while True:
        readable, _, _ = select.select([fd], [], [], _LOOK_SECONDS)
        if readable:
            chunk = os.read(fd, 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
        elif os.getppid() != job:
            break

    def ours(found: bytes) -> bool:
        return found.startswith(mark.encode() + b".")

    # first what bears no mark: as soon as what starts commands is gone, nothing tells whose it was
    for pid in _below(marked(ours)):
        _kill(pid)
    for pgid in groups:
        kill_group(pgid)
    kill_marked(ours)
    if os.getppid() != job:
        # the job was killed, perhaps while it started a command, which bears the mark once it has begun
        time.sleep(_START_SECONDS)
        kill_marked(ours)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watch(0, int(sys.argv[1]), sys.argv[2])
