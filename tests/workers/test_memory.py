"""Memory: whom the kernel kills first, and what is a failure only where the user has said so."""

from __future__ import annotations

import json
import mmap
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from runner import machine
from runner.workers.reply import OUT_OF_MEMORY, refused_memory, shortage
from tests.harness import ROOT, command
from tests.workers.test_command import Runner, guardian, run

__all__ = ["guardian", "run"]

Ask = Callable[..., Any]
EATS = "import time; data = b'x' * (400 << 20); time.sleep(600)"


def test_workers_and_checks_go_before_the_job(run: Runner, ask: Ask) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    wanted = own + (1000 - own) // 2
    # a shell and its child, as soon as somebody has looked at them
    wait = f"until grep -qx {wanted} /proc/$$/oom_score_adj; do sleep 0.01; done"
    assert run("sh", "-c", f"sh -c '{wait}'; {wait}", timeout=30.0).returncode == 0
    assert ask("oom_score").value["result"] == {"outcome": True, "score": wanted}


def test_beyond_a_share_of_what_there_is_nothing_is_judged(
    run: Runner, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "share_mb", lambda: 300)
    end = run.python(EATS)
    assert end.death == OUT_OF_MEMORY and end.returncode is None
    assert ask("eats_in_a_child").death == OUT_OF_MEMORY
    assert run.python(EATS, memory_mb=200).death == "memory"  # the user has said so


RAN = "RUNTIME_EXCEPTION: Non-zero status code returned while running Reshape node. Name:'{}' Status Message: {}"
DIED = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"


def test_what_is_an_error_for_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = "bfc_arena.cc:360 AllocateRawInternal(size_t) Failed to allocate memory for requested buffer of size 9"
    said = ["std::bad_alloc", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1.0 TiB for (1, 2), f4"]
    said += ["MemoryError", "MyelinHostBuffer::allocate::206] Error Code 2: OutOfMemory (Requested size was 9 bytes.)"]
    said += ["OSError: [Errno 12] Cannot allocate memory", "sh: fork: Cannot allocate memory\n"]
    said += [RAN.format("e", arena), RAN.format("e", "std::bad_alloc") + " (it stands between 'x', 'y' and 'z')"]
    said += [DIED, f"{DIED}\nFatal Python error: Aborted\n" + "  File x.py, line 1 in f\n" * 50]
    said += ["Traceback (most recent call last):\n  File x.py\nMemoryError\n"]
    other = ["SHAPES_ERROR: bad shape", "OutOfMemory was fine", ""]
    shapes = "reshape_helper.h:84 (int) (size % 2) == 0 was false. Input shape:{1,4}, requested shape:{7,-1}"
    for name in ("Failed to allocate/bad_alloc", "x: std::bad_alloc", "MemoryError", ") Cannot allocate memory"):
        other += [RAN.format(name, shapes), RAN.format(name, "no memory of it"), f"INVALID_ARGUMENT: input '{name}' is"]
        other += [f"FAIL: Load model from m.onnx failed:Node ({name}) Op (Gemm) [ShapeInferenceError] first dimension"]
        other += [f"10: not found: [a.cpp::b::1] Error Code 10: Internal Error (no tactic for {name}.)"]
    other += ["10: Internal Error: (no tactic for Error Code 2: OutOfMemory (x))"]
    other += ["cannot allocate 2 MB pages, falling back\nFatal Python error: Aborted\n"]
    other += [DIED + "went on\n" * 30 + "Segmentation fault\n"]
    monkeypatch.setattr(machine, "limit_mb", lambda: 64)
    assert [refused_memory(text) for text in [*said, *other]] == [True] * len(said) + [False] * len(other)
    assert "64 MiB here (ulimit -v, -d)" in shortage()
    monkeypatch.setattr(machine, "limit_mb", lambda: None)
    assert not any(map(refused_memory, said))


@pytest.mark.slow
def test_an_error_for_want_of_memory_is_no_answer_where_a_limit_keeps_it_away(tmp_path: Path) -> None:
    """Without a limit it says that the check asks for what there cannot be; where the user named one, it fails."""
    (tmp_path / "check.py").write_text("def check(*_):\n    bytearray(1 << 60)\n")
    own = ("checker=python", f"checker.file={tmp_path / 'check.py'}")
    argv = json.dumps([sys.executable, "-S", "-c", "bytearray(1 << 60)"])
    for name, check in {"python": own, "command": ("checker=command", f"checker.command={argv}")}.items():
        for limit, memory in (("unlimited", "null"), ("8000000", "null"), ("8000000", "9999")):
            folder = tmp_path / f"{name}_{limit}_{memory}"
            given = (f"model={ROOT / 'examples' / 'overflow.onnx'}", *check, f"checker.memory_mb={memory}")
            line = shlex.join(command(*given, folder=folder))
            subprocess.run(["bash", "-c", f"ulimit -v {limit}; exec {line}"], cwd=ROOT, check=False)
            message = json.loads((folder / "result.json").read_text())["message"]
            assert ("it got no more memory" in message) is ((limit, memory) == ("8000000", "null")), message


@pytest.mark.slow
def test_files_in_memory_and_pages_that_are_shared_do_not_count_against_a_share(
    run: Runner, on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large model's weights are mapped, and a loader's processes share their parent's pages."""
    monkeypatch.setattr(machine, "share_mb", lambda: 300)
    weights = on_disk / "weights"
    with weights.open("wb") as file:
        file.truncate(400 << 20)
    mapped = (
        "import mmap, sys, time\n"
        f"with open({str(weights)!r}, 'rb') as file:\n"
        "    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        f"sum(data[at] for at in range(0, len(data), {mmap.PAGESIZE}))\n"
        "time.sleep(0.3)\n"
    )
    assert run.python(mapped).returncode == 0
    forked = "import os, time\ndata = b'x' * (150 << 20)\nfor _ in range(2): os.fork()\ntime.sleep(0.5)\n"
    end = run.python(forked)
    assert end.returncode == 0 and end.peak_rss_mb > 400


def test_a_kill_for_want_of_memory_is_no_answer(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = count()
    monkeypatch.setattr(machine, "oom_kills", lambda: next(kills))
    assert ask("killed", str(tmp_path / "calls"), fresh=True).death == OUT_OF_MEMORY
    assert ask("killed", str(tmp_path / "calls")).death == OUT_OF_MEMORY


@pytest.fixture
def small() -> Iterator[Path]:
    """A control group with little memory, where this process may make one."""
    for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        folder = root / f"winnow-test-{os.getpid()}"
        limit = folder / ("memory.limit_in_bytes" if root.name == "memory" else "memory.max")
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            limit.write_text(str(600 << 20))
        except OSError:
            folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("no control group with a limit of memory can be made here")


_JOB = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2]]
(Path(sys.argv[1]) / "cgroup.procs").write_text(str(os.getpid()))
from runner import machine
machine.share_mb, share = (lambda: 1 << 20), machine.share_mb()  # so that the kernel comes first
from runner.workers.commands import run_command
from runner.workers.guardian import Guardian
before = machine.oom_kills()
with Guardian() as guardian:
    eats = "data = [bytearray(b'x' * (1 << 20)) for _ in range(1000)]"
    end = run_command([sys.executable, "-c", eats], cwd=Path("/"), env=dict(os.environ), timeout=60, memory_mb=None,
                      log=Path(sys.argv[3]), guardian=guardian)
print(share, end.death, machine.oom_kills() > before)
"""


def test_the_kernel_takes_the_check_and_says_so(small: Path, tmp_path: Path) -> None:
    root = str(Path(machine.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", _JOB, str(small), root, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["480", "death", "KILL", "True"]
