"""What this process may use of the machine: CPUs and memory, as the system and the container's limits say.

A container sees all CPUs and all memory of its host; what it may use stands in its control group, in one of two
layouts (https://docs.kernel.org/admin-guide/cgroup-v2.html, .../cgroup-v1/). A limit holds for all groups below it, and
the least one counts.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_MIB = 2.0**20
#: the share of the memory that one check may take where no limit was given
SHARE = 0.8


def cpus() -> int:
    """Return how many CPUs this process may keep busy, at least one; a quota that is no whole number is rounded up."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    for group in _groups("cpu"):
        given = _numbers(group / "cpu.max")
        given = given or [*_numbers(group / "cpu.cfs_quota_us"), *_numbers(group / "cpu.cfs_period_us")]
        # minus one, or infinity: none
        if len(given) == 2 and 0 < given[0] < math.inf and given[1] > 0:
            found = min(found, given[0] / given[1])
    return max(1, math.ceil(found))


def memory_mb() -> float:
    """Return MiB of memory that this process and its children may have together."""
    found = float(psutil.virtual_memory().total)
    for group in _groups("memory"):
        found = min([found, *_limits(group)])
    return found / _MIB


def free_mb() -> float:
    """Return MiB that are left of that, on the machine and under each limit.

    What a group has of files that were read counts as left, as it does on the machine: the kernel drops it.
    """
    found = float(psutil.virtual_memory().available)
    for group in _groups("memory"):
        used = _numbers(group / "memory.current") or _numbers(group / "memory.usage_in_bytes")
        taken = max(sum(used) - _droppable(group), 0.0)
        found = min([found, *(limit - taken for limit in _limits(group))])
    return max(found, 0.0) / _MIB


def share_mb() -> int:
    """Return MiB that one check may take where no limit was given."""
    return int(memory_mb() * SHARE)


def limit_mb() -> int | None:
    """Return MiB that each process may take by its own limits (``ulimit -v``, ``-d``); None: it has none."""
    given = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((int(limit / _MIB) for limit in given if limit != resource.RLIM_INFINITY), default=None)


def oom_kills() -> int:
    """Return how often the kernel has killed for want of memory in our group; on a machine without groups, at all."""
    # the group's own count comes first: it holds what was killed for the limits above it, too
    places = [group / name for group in _groups("memory") for name in ("memory.events", "memory.oom_control")]
    for path in (*places, _PROC / "vmstat"):
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def make_oom_victim(pid: int) -> None:
    """Have the kernel kill ``pid``, and what it starts from now on, before this process when memory runs out."""
    with contextlib.suppress(OSError, ValueError):
        own = int((_PROC / "self" / "oom_score_adj").read_text())
        path, wanted = _PROC / str(pid) / "oom_score_adj", own + (1000 - own) // 2
        if int(path.read_text()) < wanted:
            path.write_text(str(wanted))


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of our control group and of those above it, in either layout, the innermost first."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        names, _, inner = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        if not names and number != "0":
            continue
        for root in (_CGROUPS / names, _CGROUPS / controller) if names else (_CGROUPS, _CGROUPS / "unified"):
            if not root.is_dir():
                continue
            # inside a container the path may be the host's: the container's own group is the root then
            place = root / inner.strip("/")
            for folder in (place, *place.parents):
                if not folder.is_relative_to(root):
                    break
                if folder.is_dir():
                    yield folder
            break


def _limits(group: Path) -> list[float]:
    """Return the bytes that a group may have; none where no limit is set."""
    return _numbers(group / "memory.max") or _numbers(group / "memory.limit_in_bytes")


def _droppable(group: Path) -> float:
    """Return the bytes of files that a group has read, of late or not: a cache, which goes when memory is wanted."""
    with contextlib.suppress(OSError, ValueError):
        told = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
        # in the first layout the sum over the groups below has a name of its own
        names = ("inactive_file", "active_file")
        return sum(float(told.get(f"total_{name}") or told.get(name) or 0) for name in names)
    return 0.0


def _numbers(path: Path) -> list[float]:
    """Return the numbers in a file, ``max`` being infinite; none if it is not there."""
    with contextlib.suppress(OSError, ValueError):
        return [math.inf if word == "max" else float(word) for word in path.read_text().split()]
    return []
