"""Processes: their tree, their death, their log.

A process and its descendants: waiting for the end within limits of time and memory, and killing them all.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from runner import machine
from runner.workers.guardian import Guardian, kill_group
from runner.workers.reply import OUT_OF_MEMORY

# How a process ended: the names of deaths, and waiting for an end without reaping it.

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


def start(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    log: int | IO[bytes],
    fds: Sequence[int] = (),
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, which prints to ``log``, reads nothing and inherits ``fds``."""
    return subprocess.Popen(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=fds,
        start_new_session=True,
    )


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

    def worked(self) -> None:
        """Note that this process itself did something since the last look: that time is not missed."""
        self._looked, self._slept = now(), 0.0

    def spent(self) -> float:
        """Return the seconds since the start, without what was missed."""
        return now() - self._start - self._missed

    def sleep(self, poller: select.poll, until: float) -> None:
        """Wait until then, or until the poller has something."""
        self._slept = max(0.0, min(until - now(), 3600.0))
        poller.poll(self._slept * 1000.0)


def now() -> float:
    """Return seconds on the clock that all deadlines here use."""
    return time.monotonic()


# The file that a process prints to, kept within bounds while it runs.

HEAD_BYTES = 1 << 20
TAIL_BYTES = 3 << 20
JUDGED_BYTES = 31 << 20
"""The tail of what a command prints, as long as it has not been judged."""
# no line is cut in two, where its half could be taken for the whole, unless it is longer
_LONGEST_LINE = 64 << 10
# a file may take this much disk before its middle is given back
_FULL_BYTES = 32 << 20
# FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE of Linux
_PUNCH = 0x01 | 0x02


class BoundedLog:
    """An append-only descriptor whose file keeps the head and the tail of what is written to it.

    The writers share the descriptor (a file and not a pipe, so that a grandchild that keeps it open blocks nobody).
    While they run, ``check`` gives the disk space of the middle back, without ever touching the end that they write to;
    where the system cannot do that, the file is shortened when they are gone. ``tail``: bytes of the end that stay.
    """

    def __init__(self, fd: int, tail: int = TAIL_BYTES) -> None:
        self.fd, self._tail = fd, tail
        self._freed = HEAD_BYTES

    def reset(self) -> None:
        """Forget all that was written."""
        self._freed = HEAD_BYTES
        if os.fstat(self.fd).st_size:
            os.ftruncate(self.fd, 0)

    def check(self) -> None:
        """Give back the space of the middle if the file has grown much since the last time."""
        end = os.fstat(self.fd).st_size - self._tail
        if end - self._freed < _FULL_BYTES:
            return
        fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
        if fallocate is not None:
            fallocate(self.fd, _PUNCH, ctypes.c_int64(self._freed), ctypes.c_int64(end - self._freed))
        self._freed = end

    def text(self, before: int = 0) -> bytes:
        """Return the head and the tail, with a line between that says how much is left out.

        ``before``: how much of that was left out already.
        """
        size = os.fstat(self.fd).st_size
        if size <= HEAD_BYTES + self._tail:
            return os.pread(self.fd, size, 0)
        head, tail = os.pread(self.fd, HEAD_BYTES, 0), os.pread(self.fd, self._tail, size - self._tail)
        if (line := head.rfind(b"\n")) > HEAD_BYTES - _LONGEST_LINE:
            head = head[:line]
        tail = tail[tail.find(b"\n", 0, _LONGEST_LINE) + 1 :]
        return head + b"\n[... %d bytes left out ...]\n" % (before + size - len(head) - len(tail)) + tail

    def trim(self, before: int = 0) -> int:
        """Rewrite the file as ``text`` and return how much is left out; call it once the writers are gone."""
        size = os.fstat(self.fd).st_size
        left_out = size - HEAD_BYTES - self._tail
        if left_out <= 0:
            return 0
        view = memoryview(self.text(before))
        os.ftruncate(self.fd, 0)
        while view:
            view = view[os.write(self.fd, view) :]
        return left_out


_MIB = 1024.0 * 1024.0
_LIMITED_SECONDS = 0.02
_UNLIMITED_SECONDS = 0.25
# how often a process is asked for its end where no descriptor tells it
_SLICE_SECONDS = 0.01
# a look lists all processes of the machine: on a crowded one looks become rarer, so that they never cost more than this
# share
_SHARE = 0.1
# what is taken of the machine is not asked for the sake of less than this
_SMALL_MB = 256.0


class ProcessTree:
    """The process ``pid``, which leads a session of its own, and every descendant that was ever seen of it.

    Where memory runs out, the kernel is to kill them before the job.

    ``parent``: the process that reaps the root, where that is a child of this process and the root is not.

    Memory is watched by polling and not by a limit of the address space, since CUDA reserves far more of that than it
    uses.
    """

    def __init__(self, pid: int, memory_mb: int | None, parent: int | None = None) -> None:
        self.pid = pid
        self._ours = parent or pid
        self.memory_mb = memory_mb
        self.peak_mb = 0.0
        self._seen: dict[int, psutil.Process] = {}
        self._cost = 0.0
        self._looks = 0

    def wait(
        self, limit: TimeLimit, log: BoundedLog, reader: int = -1, answered: Callable[[], bool] = lambda: False
    ) -> str:
        """Wait until the root (or its parent) has ended, or has ``answered``; return "" or why it has to be stopped.

        ``reader``: a descriptor that can be read when it may have answered. The root is not reaped.
        """
        poller, longest = select.poll(), _SLICE_SECONDS
        if reader >= 0:  # which is closed at its end, if nothing else
            poller.register(reader, select.POLLIN)
            longest = math.inf
        look = now() + self._interval
        while True:
            # asked before the answer is read: what an ended process wrote can be read by then
            ended = has_ended(self._ours)
            if answered() or ended:
                return ""
            time = limit.look()
            if time >= limit.end:
                return "timeout"
            if time >= look:
                if death := self.look():
                    return death
                log.check()
                limit.worked()
                look = now() + self._interval
            limit.sleep(poller, min(look, limit.end, now() + longest))

    @property
    def _interval(self) -> float:
        """Seconds to wait until the next look: short ones first, also where there is no limit to watch."""
        longest = _LIMITED_SECONDS if self.memory_mb is not None else _UNLIMITED_SECONDS
        return max(min(_LIMITED_SECONDS * (1 + self._looks), longest), self._cost / _SHARE)

    def look(self, *, alone: bool = False) -> str:
        """Measure the tree's resident memory; return "" or the death that it is to die.

        ``alone``: the root was just started and has no descendants, of which all processes of the machine are asked.
        Pages that are shared after a fork count for each process, against a limit that the user gave. Against the one
        that holds by default they count once, and files that are mapped into memory do not.
        """
        start = time.perf_counter()
        total = 0.0
        self._looks += 1
        try:
            root = psutil.Process(self.pid)
            members = [root] if alone else [root, *root.children(recursive=True)]
        except psutil.Error:
            return ""
        for process in members:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss / _MIB
                if process.pid not in self._seen:
                    self._seen[process.pid] = process
                    machine.make_oom_victim(process.pid)
        self.peak_mb = max(self.peak_mb, total)
        death = "memory" if self.memory_mb is not None and total > self.memory_mb else ""
        if self.memory_mb is None and total > _SMALL_MB and total > (share := machine.share_mb()):
            death = OUT_OF_MEMORY if sum(map(_own_mb, members)) > share else ""
        self._cost = time.perf_counter() - start
        return death

    def kill(self) -> None:
        """Kill the root's group, and its descendants wherever they have gone. The root stays to be reaped."""
        if not has_ended(self._ours):
            self.look()
        kill_group(self.pid)
        for process in self._seen.values():
            # psutil makes sure that the number still is this process
            with contextlib.suppress(psutil.Error):
                if process.pid != self.pid:
                    process.kill()


def _own_mb(process: psutil.Process) -> float:
    """Return MiB that would be free without this process: a share of what it shares, and no pages of files."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        with contextlib.suppress(psutil.Error):
            return process.memory_info().rss / _MIB
        return 0.0
    sizes = {line.partition(":")[0]: int(line.split()[1]) for line in lines[1:]}
    if "Pss_Anon" in sizes:
        return (sizes["Pss_Anon"] + sizes.get("Pss_Shmem", 0)) / 1024.0
    return min(sizes.get("Pss", 0), sizes.get("Anonymous", 0)) / 1024.0


# SIGKILLs that this job has not sent: memory may have run out because of others, so what was killed is tried again.


class Kills:
    """Counts the kills of one call or one command, over all its tries."""

    def __init__(self, guardian: Guardian) -> None:
        self._guardian, self._ours = guardian, guardian.kills
        self._before = -1  # how often the kernel had killed for want of memory before the second try; -1: none yet

    @property
    def foreign(self) -> bool:
        """Whether nothing was killed by this job itself meanwhile."""
        return self._guardian.kills == self._ours

    def again(self) -> bool:
        """Note a kill; return whether to try once more, which is so for the first."""
        if self._before >= 0:
            return False
        self._before = machine.oom_kills()
        return True

    @property
    def for_memory(self) -> bool:
        """Whether the kernel has killed for want of memory since the first kill was noted."""
        return machine.oom_kills() > self._before
