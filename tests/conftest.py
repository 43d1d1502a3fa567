"""What tests of all rooms share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from runner.workers.pool import Pool

CI = "WINNOW_CI"
"""Set where all that the tests need has to be there: what would skip for want of it fails."""
LEAST = "WINNOW_LEAST_TESTS"
"""How many tests have to pass for a run of them to count."""
SAMPLE = "WINNOW_SAMPLE"
"""``10:1``: of the tests that are slow each tenth one runs, from the second on."""
_LOADS = "from runner.backends.trt.library import load; print(load('tensorrt_rtx'))"
_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30


def pytest_configure() -> None:
    """Put the tests' folders into memory where that has room: a journal waits for the disk after each verdict.

    A process that imports numpy starts as many threads as there are CPUs, which small products of matrices do not need.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # a shell starts what runs in the background deaf to SIGINT, and each process of a test would inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # a runtime that tests themselves import writes nothing into the home of who runs them; runs take care of theirs
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # these change what a terminal shows, and a runner of tests in the cloud sets some of them
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        os.environ.pop(name, None)
    # hundreds of processes would compile the same modules
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _MEMORY.is_dir():
        there = os.statvfs(_MEMORY)
        runs_scripts = not there.f_flag & getattr(os, "ST_NOEXEC", 8)
        if runs_scripts and min(there.f_bavail * there.f_frsize, psutil.virtual_memory().available) > _ROOM:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return how many processes ``-n auto`` starts: half as many again as there are cores.

    A fifth of its time a test waits: for clocks, for the disk, and for the ends of processes.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = psutil.cpu_count(logical=False) or 1
    return cores + (cores + 1) // 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark builds of engines and further cases of a test as slow; take a sample of what is slow where one is wanted."""
    seen: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if "rtx_python" in getattr(item, "fixturenames", ()) or (item.get_closest_marker("variants") and test in seen):
            item.add_marker(pytest.mark.slow)
        seen.add(test)
    if wanted := os.environ.get(SAMPLE):
        every, first = map(int, wanted.split(":"))
        slow = [item for item in items if item.get_closest_marker("slow")]
        left_out = {id(item) for at, item in enumerate(slow) if at % every != first}
        items[:] = [item for item in items if id(item) not in left_out]


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder for what has to be a file on a disk: one that lies in memory and is mapped is memory of the process."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Workers for the tests of a module that run models."""
    pytest.importorskip("onnxruntime")
    from runner.workers.pool import Pool  # noqa: PLC0415 - after the variables above are set

    with Pool(tmp_path_factory.mktemp("workers")) as pool:
        yield pool


@pytest.fixture(scope="session")
def chromium() -> str:
    """A Chromium to look at pages with: $WINNOW_CHROMIUM, or the one on PATH."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    program = os.environ.get("WINNOW_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if program is None:
        missing = "no Chromium is installed: install the package chromium, or set WINNOW_CHROMIUM"
        (pytest.fail if os.environ.get(CI) else pytest.skip)(missing)
    return program


@pytest.fixture(scope="session")
def rtx_python() -> str:
    """An interpreter with TensorRT for RTX, whose builder needs no GPU: $WINNOW_RTX_PYTHON, or this one."""
    python = os.environ.get("WINNOW_RTX_PYTHON", sys.executable)
    loaded = subprocess.run([python, "-c", _LOADS], capture_output=True, text=True, check=False)
    if loaded.returncode:
        missing = "TensorRT for RTX is not installed: pip install '.[tensorrt-rtx]', or set WINNOW_RTX_PYTHON"
        (pytest.fail if os.environ.get(CI) else pytest.skip)(missing)
    return python


@pytest.fixture(scope="session")
def older_rtx_python(rtx_python: str) -> str:
    """An interpreter with another version of TensorRT for RTX: $WINNOW_RTX_OLDER_PYTHON."""
    python = os.environ.get("WINNOW_RTX_OLDER_PYTHON")
    if not python:
        pytest.skip("a second version of TensorRT for RTX is needed: set WINNOW_RTX_OLDER_PYTHON")
    return python


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run of fewer tests than there have to be, whatever became of the others."""
    if hasattr(session.config, "workerinput"):  # one of several processes, which has a part of them only
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    passed, least = len(reporter.stats.get("passed", ())), int(os.environ.get(LEAST, "0"))
    if exitstatus == 0 and passed < least:
        reporter.write_line(f"\n{passed} tests passed, but {LEAST}={least}: which are missing, and why?", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the fault matrix, from whichever processes ran its rows."""
    reports = [one for kind in ("passed", "failed", "skipped", "xfailed") for one in terminalreporter.getreports(kind)]
    rows = [str(value) for one in reports for name, value in one.user_properties if name == "fault"]
    if rows:
        from benchmarks.faults import HEAD  # noqa: PLC0415 - only where it was tried

        terminalreporter.write_line("\n".join([HEAD, *rows]))
