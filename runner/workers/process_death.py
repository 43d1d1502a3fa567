"""How a process ended: the names of deaths, and waiting for an end without reaping it."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import psutil

# one bug (a bad write) shows as any of these, depending on what lies where: they are one failure
MEMORY_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT})
# a look that comes so much later than it should: this process did not run
_MISSED_SECONDS = 0.25


def death_of(returncode: int) -> str | None:
    """Name the death that a negative return code stands for; None for an ordinary exit."""
    if returncode >= 0:
        return None
    try:
        number = signal.Signals(-returncode)
    except ValueError:
        return f"death {-returncode}"
    return "death MEMORY" if number in MEMORY_SIGNALS else f"death {number.name[3:]}"


def has_ended(pid: int) -> bool:
    """Whether the child ``pid`` has ended. It stays unreaped, so its number and its group's cannot be reused yet."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return True
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def open_pidfd(pid: int) -> int:
    """Return a descriptor that turns readable when ``pid`` ends; -1 where the system has none."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


class TimeLimit:
    """How long a wait may last: ``seconds`` from ``start`` on (None: for ever).

    A process that is stopped (SIGSTOP, a frozen container) does not see what happened meanwhile, and what it waits for
    may have been stopped as well. So the end moves by what was missed: what passed between two looks beyond the sleep
    between them.
    """

    def __init__(self, start: float, seconds: float | None) -> None:
        self.end = float("inf") if seconds is None else start + seconds
        self._start, self._missed = start, 0.0
        self._looked, self._slept = start, 0.0

    def look(self) -> float:
        """Return the time."""
        time = now()
        beyond = time - self._looked - self._slept
        if beyond > _MISSED_SECONDS:
            self._missed += beyond
            self.end += beyond
        self._looked, self._slept = time, 0.0
        return time

    def spent(self) -> float:
        """Return the seconds since the start, without what was missed."""
        return now() - self._start - self._missed

    def sleep(self, poller: select.poll, until: float) -> None:
        """Wait until then, or until the poller has something."""
        self._slept = max(0.0, min(until - now(), 3600.0))
        poller.poll(self._slept * 1000.0)


def start_of(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine did; None if it is gone."""
    try:
        # after the command's name, which may hold anything: state, ppid, ... the 20th is the start
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def still_runs(pid: int, start: int) -> bool:
    """Whether the process that began at ``start`` can still execute anything.

    A lock is freed while its holder exits: it may be listed then, but its memory is gone.
    """
    try:
        return start_of(pid) == start and bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def now() -> float:
    """Return seconds on the clock that all deadlines here use."""
    return time.monotonic()
