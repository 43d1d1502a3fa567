"""The log of holders: who held which lease, written by the holders themselves.

``WINNOW_LEASE_LOG`` names a file, to which each process that gets a lease adds one line before it does anything else. A
holder that is killed cannot say that it is gone; so whoever comes next says who of those before still runs. Imported
in workers too: the standard library of Python 3.8 only.
"""

# ruff: noqa: PTH123 - as in child.py
from __future__ import annotations

import json
import os
import time
from typing import Any

LOG = "WINNOW_LEASE_LOG"


def begin(name: str, pid: int) -> None:
    """Write down that ``pid`` now holds the lease ``name``, and which earlier holders still run (there is to be none).

    Call it while the lease is held. Does nothing unless the log is asked for; raises nothing.
    """
    path = os.environ.get(LOG)
    if not path:
        return
    try:
        beside = [one["pid"] for one in read(path) if one["lease"] == name and runs(one["pid"], one["start"])]
        line = {"lease": name, "pid": pid, "start": start_of(pid), "time": time.monotonic(), "beside": beside}
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, json.dumps(line).encode() + b"\n")  # in one piece: lines of several writers stay whole
        finally:
            os.close(fd)
    except OSError:
        pass  # a log that cannot be written must not cost the check


def read(path: str) -> list[dict[str, Any]]:
    """Return the lines: ``lease``, ``pid`` with its ``start`` (clock ticks), ``time`` (s), ``beside`` (pids)."""
    try:
        with open(path) as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def runs(pid: int, start: int | None) -> bool:
    """Whether the process that began at ``start`` can still execute anything.

    A lock is freed while its holder exits: it may be listed then, but its memory is gone.
    """
    if start is None or start_of(pid) != start:
        return False
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def start_of(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine did; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # after the command's name, which may hold anything: state, ppid, ... the 20th is the start
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
