"""CPUs and memory as control groups limit them, in both layouts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from runner import machine

TWO = "0::/pod/ours\n"
ONE = "9:name=systemd:/\n4:memory:/pod/ours\n2:cpu,cpuacct:/pod/ours\n0::/\n"
MANY = 64


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(MANY)), raising=False)
    return tmp_path


def write(folder: Path, groups: str, **files: str) -> None:
    """Write /proc/self/cgroup, and files of groups whose paths have __ for / and _DOT_ for a dot."""
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = folder / "cgroup" / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("groups", "files", "cpus"),
    [
        (TWO, {"pod__ours__cpu_DOT_max": "200000 100000\n"}, 2),
        (TWO, {"pod__ours__cpu_DOT_max": "max 100000\n", "pod__cpu_DOT_max": "350000 100000\n"}, 4),
        (TWO, {"pod__ours__cpu_DOT_max": "10000 100000\n"}, 1),
        (TWO, {"pod__ours__cpu_DOT_max": "nonsense\n"}, MANY),
        ("0::/\n", {"cpu_DOT_max": "250000 100000\n"}, 3),  # a container's own group is the root of what it sees
        ("0::/../else\n", {"cpu_DOT_max": "250000 100000\n"}, 3),
        (
            ONE,
            {"cpu,cpuacct__cpu_DOT_cfs_quota_us": "200000\n", "cpu,cpuacct__cpu_DOT_cfs_period_us": "100000\n"},
            2,  # the host's path is not there
        ),
        (ONE, {"cpu__cpu_DOT_cfs_quota_us": "-1\n", "cpu__cpu_DOT_cfs_period_us": "100000\n"}, MANY),
        ("", {}, MANY),
    ],
)
def test_cpus(written: Path, groups: str, files: dict[str, str], cpus: int) -> None:
    write(written, groups, **files)
    assert machine.cpus() == cpus


@pytest.mark.parametrize(
    ("groups", "files", "mb"),
    [
        (TWO, {"pod__ours__memory_DOT_max": "max\n", "pod__memory_DOT_max": f"{64 << 20}\n"}, 64),
        (ONE, {"memory__pod__ours__memory_DOT_limit_in_bytes": f"{64 << 20}\n"}, 64),
        (ONE, {"memory__pod__ours__memory_DOT_limit_in_bytes": "9223372036854771712\n"}, None),
        ("", {}, None),
    ],
)
def test_memory(written: Path, groups: str, files: dict[str, str], mb: int | None) -> None:
    write(written, groups, **files)
    assert machine.memory_mb() == (mb or psutil.virtual_memory().total / 2**20)
    assert machine.share_mb() == int(machine.memory_mb() * machine.SHARE)


USED, CACHED = 48, 40  # MiB; of what is used so much are files that were read, which the kernel drops


@pytest.mark.parametrize(
    ("groups", "files", "mb"),
    [
        (TWO, {"pod__memory_DOT_max": f"{64 << 20}\n", "pod__memory_DOT_current": f"{USED << 20}\n"}, 16),
        (
            TWO,
            {
                "pod__memory_DOT_max": f"{64 << 20}\n",
                "pod__memory_DOT_current": f"{USED << 20}\n",
                "pod__memory_DOT_stat": f"anon 1\ninactive_file {10 << 20}\nactive_file {CACHED - 10 << 20}\n",
                "pod__ours__memory_DOT_max": "max\n",
                "pod__ours__memory_DOT_current": f"{1 << 50}\n",
            },
            56,
        ),
        (
            ONE,
            {
                "memory__pod__ours__memory_DOT_limit_in_bytes": f"{64 << 20}\n",
                "memory__pod__ours__memory_DOT_usage_in_bytes": f"{USED << 20}\n",
                "memory__pod__ours__memory_DOT_stat": f"active_file 0\ninactive_file 0\n"
                f"total_inactive_file {10 << 20}\ntotal_active_file {CACHED - 10 << 20}\n",
            },
            56,
        ),
        (TWO, {"pod__memory_DOT_max": f"{64 << 20}\n", "pod__memory_DOT_current": f"{90 << 20}\n"}, 0),
        (TWO, {"pod__memory_DOT_max": f"{64 << 20}\n", "pod__memory_DOT_stat": "nonsense\n"}, 64),
    ],
)
def test_what_is_left_of_the_memory(written: Path, groups: str, files: dict[str, str], mb: int) -> None:
    write(written, groups, **files)
    assert machine.free_mb() == mb and machine.memory_mb() == 64


def test_without_groups_what_is_left_is_the_machines(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(available=3 << 20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: there)
    assert machine.free_mb() == 3
    write(written, TWO, pod__memory_DOT_max=f"{64 << 20}\n")
    assert machine.free_mb() == 3


def test_kills_for_want_of_memory(written: Path) -> None:
    assert machine.oom_kills() == 0
    events = "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n"
    write(written, TWO, pod__ours__memory_DOT_events=events, pod__memory_DOT_events=events.replace("2", "9"))
    (written / "proc" / "vmstat").write_text("nr_free_pages 1\noom_kill 7\n")
    assert machine.oom_kills() == 2
    (written / "proc" / "self" / "cgroup").write_text("0::/\n")  # the root of all has no count of its own
    assert machine.oom_kills() == 7
    (written / "proc" / "self" / "cgroup").write_text(ONE)
    control = written / "cgroup" / "memory" / "pod" / "ours" / "memory.oom_control"
    control.parent.mkdir(parents=True)
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert machine.oom_kills() == 5
