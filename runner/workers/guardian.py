"""Kills what a job leaves behind, even when the job itself was killed.

The job tells a tiny process of its own which process groups it has started (``+pgid`` and ``-pgid`` lines on a pipe).
When the pipe closes, or the job is gone, that process kills the groups that are left. Between the start of a command
and the line that tells of it there is a moment; so each command also carries a mark in its environment, and where the
job went without saying goodbye everything that bears it is killed.

This file is both: the job's side (``Guardian``) and the script that is started by path, which needs the standard
library only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

_LOOK_SECONDS = 1.0
_MARK = "WINNOW_JOB"
_GOODBYE = b"bye"


def kill_group(pgid: int, whole_session: bool = True) -> None:
    """Kill a process group whose leader leads a session, and where the system lists it the whole session."""
    # a listing taken first: members that are killed late could start others meanwhile, so the group goes first and
    # again last
    for _ in range(2 if whole_session else 1):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, signal.SIGKILL)
        if whole_session:
            for pid in _session(pgid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    """Return the living processes of the session that ``leader`` leads (Linux; elsewhere none)."""
    members = []
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - a Path for each entry would cost more than the look itself
    except OSError:
        return []
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        # after the command's name: state, ppid, pgrp, session
        if len(fields) > 3 and fields[0] not in (b"Z", b"X") and int(fields[3]) == leader:
            members.append(int(name))
    return members


def bearing(name: str, matches: Callable[[bytes], bool]) -> list[int]:
    """Return the living processes that were started with a variable ``name`` whose value ``matches``.

    That is: Linux; elsewhere none are found.
    """
    wanted = f"{name}=".encode()
    found = []
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - as above
    except OSError:
        return []
    for pid in names:
        with contextlib.suppress(OSError):
            if pid.isdigit() and int(pid) != os.getpid():
                with open(f"/proc/{pid}/environ", "rb") as environ:  # noqa: PTH123
                    entries = environ.read().split(b"\0")
                if any(entry.startswith(wanted) and matches(entry[len(wanted) :]) for entry in entries):
                    found.append(int(pid))
    return found


class Guardian:
    """The job's side. Thread-safe; a context manager; starts its process before the first command.

    ``mark``: what commands of this job carry in their environment, see ``marked``. ``kills``: how often ``kill`` was
    called, for those who wait to start something.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.kills = 0
        self.mark = f"{os.getpid()}-{secrets.token_hex(8)}"

    def __enter__(self) -> Guardian:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def marked(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for a command that is about to be started; from now on the guardian is there."""
        with self._lock:
            if self._process is None and not self._closed:
                self._start()
        return {**env, _MARK: self.mark}

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
            process.stdin.write(_GOODBYE + b"\n")
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
            env={name: value for name, value in os.environ.items() if name != _MARK},
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
    goodbye = False
    rest = b""
    while True:
        readable, _, _ = select.select([fd], [], [], _LOOK_SECONDS)
        if readable:
            chunk = os.read(fd, 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line == _GOODBYE:
                    goodbye = True
                    continue
                (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
        elif os.getppid() != job:
            break
    for pgid in groups:
        kill_group(pgid)
    for _ in range(0 if goodbye else 2):  # twice, for what was being started meanwhile
        for pid in bearing(_MARK, mark.encode().__eq__):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watch(0, int(sys.argv[1]), sys.argv[2])
