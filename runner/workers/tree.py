"""A process and its descendants: how much memory they use, and killing them all."""

from __future__ import annotations

import contextlib
import time

import psutil

from runner.workers.guardian import kill_group

_MIB = 1024.0 * 1024.0
_LIMITED_SECONDS = 0.02
_UNLIMITED_SECONDS = 0.25
# a look lists all processes of the machine: on a crowded one looks become rarer, so that they never cost more than this
# share
_SHARE = 0.1


class ProcessTree:
    """The process ``pid``, which leads a session of its own, and every descendant that was ever seen of it.

    Memory is watched by polling and not by a limit of the address space, since CUDA reserves far more of that than it
    uses.
    """

    def __init__(self, pid: int, memory_mb: int | None) -> None:
        self.pid = pid
        self.memory_mb = memory_mb
        self.peak_mb = 0.0
        self._seen: dict[int, psutil.Process] = {}
        self._cost = 0.0
        self._looks = 0

    @property
    def interval(self) -> float:
        """Seconds to wait until the next look: short ones first, also where there is no limit to watch."""
        longest = _LIMITED_SECONDS if self.memory_mb is not None else _UNLIMITED_SECONDS
        return max(min(_LIMITED_SECONDS * (1 + self._looks), longest), self._cost / _SHARE)

    def look(self) -> bool:
        """Measure the tree's resident memory (pages shared after a fork count for each); return if it is too much."""
        start = time.perf_counter()
        total = 0.0
        self._looks += 1
        try:
            root = psutil.Process(self.pid)
            members = [root, *root.children(recursive=True)]
        except psutil.Error:
            return False
        for process in members:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss / _MIB
                self._seen.setdefault(process.pid, process)
        self.peak_mb = max(self.peak_mb, total)
        self._cost = time.perf_counter() - start
        return self.memory_mb is not None and total > self.memory_mb

    def kill(self) -> None:
        """Kill the tree: its group, its session, and descendants that left both. The root stays to be reaped."""
        self.look()
        kill_group(self.pid)
        for process in self._seen.values():
            # psutil makes sure that the number still is this process
            with contextlib.suppress(psutil.Error):
                if process.pid != self.pid:
                    process.kill()
