"""A process and its descendants: waiting for the end within limits of time and memory, and killing them all."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from runner import machine
from runner.workers.guardian import LONG_SECONDS, kill_group, processes_since
from runner.workers.process_death import TimeLimit, has_ended, now, open_pidfd
from runner.workers.process_log import BoundedLog
from runner.workers.reply import OUT_OF_MEMORY

_MIB = 1024.0 * 1024.0
_LIMITED_SECONDS = 0.02
_UNLIMITED_SECONDS = 0.25
# how often a process is asked for its end where the system has no descriptor that tells it
_SLICE_SECONDS = 0.01
# a look lists all processes of the machine: on a crowded one looks become rarer, so that they never cost more than this
# share
_SHARE = 0.1
# what is taken of the machine is not asked for the sake of less than this
_SMALL_MB = 256.0


class ProcessTree:
    """The process ``pid``, which leads a session of its own, and every descendant that was ever seen of it.

    Where memory runs out, the kernel is to kill them before the job.

    ``started``: when the root was, on the clock of `now`. ``parent``: the process that reaps the root, where that is a
    child of this process and the root is not.

    Memory is watched by polling and not by a limit of the address space, since CUDA reserves far more of that than it
    uses.
    """

    def __init__(self, pid: int, memory_mb: int | None, started: float = -math.inf, parent: int | None = None) -> None:
        self.pid = pid
        self._ours = parent or pid
        self._started = started
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
        pidfd, poller = open_pidfd(self._ours), select.poll()
        for fd in (pidfd, reader):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        longest = math.inf if pidfd >= 0 else _SLICE_SECONDS
        look = now() + self._interval
        try:
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
                    look = now() + self._interval
                limit.sleep(poller, min(look, limit.end, now() + longest))
        finally:
            if pidfd >= 0:
                os.close(pidfd)

    @property
    def _interval(self) -> float:
        """Seconds to wait until the next look: short ones first, also where there is no limit to watch."""
        longest = _LIMITED_SECONDS if self.memory_mb is not None else _UNLIMITED_SECONDS
        return max(min(_LIMITED_SECONDS * (1 + self._looks), longest), self._cost / _SHARE)

    def look(self) -> str:
        """Measure the tree's resident memory; return "" or the death that it is to die.

        Pages that are shared after a fork count for each process, against a limit that the user gave. Against the one
        that holds by default they count once, and files that are mapped into memory do not.
        """
        start = time.perf_counter()
        total = 0.0
        self._looks += 1
        try:
            root = psutil.Process(self.pid)
            members = [root, *self._descendants(root)]
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

    def _descendants(self, root: psutil.Process) -> list[psutil.Process]:
        """Return what a process has started. While it is young only what is younger is asked: most checks are short."""
        young = processes_since(self.pid) if now() - self._started <= LONG_SECONDS else []
        if not young:
            return root.children(recursive=True)
        children: dict[int, list[psutil.Process]] = {}
        for pid in young:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                children.setdefault(process.ppid(), []).append(process)
        found, waiting = list[psutil.Process](), [self.pid]
        while waiting:
            below = children.pop(waiting.pop(), [])
            found += below
            waiting += [process.pid for process in below]
        return found

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
