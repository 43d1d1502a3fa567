"""What tests of all rooms share."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LOADS = "from runner.backends.trt.library import load; print(load('tensorrt_rtx'))"


@pytest.fixture(scope="session")
def rtx_python() -> str:
    """An interpreter with TensorRT for RTX, whose builder needs no GPU: $WINNOW_RTX_PYTHON, or this one."""
    python = os.environ.get("WINNOW_RTX_PYTHON", sys.executable)
    loaded = subprocess.run([python, "-c", _LOADS], capture_output=True, text=True, check=False)
    if loaded.returncode:
        pytest.skip("TensorRT for RTX is not installed: pip install '.[tensorrt-rtx]', or set WINNOW_RTX_PYTHON")
    return python


@pytest.fixture(scope="session")
def older_rtx_python(rtx_python: str) -> str:
    """An interpreter with another version of TensorRT for RTX: $WINNOW_RTX_OLDER_PYTHON."""
    python = os.environ.get("WINNOW_RTX_OLDER_PYTHON")
    if not python:
        pytest.skip("a second version of TensorRT for RTX is needed: set WINNOW_RTX_OLDER_PYTHON")
    return python


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the fault matrix, from whichever processes ran its rows."""
    reports = [one for kind in ("passed", "failed", "skipped", "xfailed") for one in terminalreporter.getreports(kind)]
    rows = [str(value) for one in reports for name, value in one.user_properties if name == "fault"]
    if rows:
        from benchmarks.faults import HEAD  # noqa: PLC0415 - only where it was tried

        terminalreporter.write_line("\n".join([HEAD, *rows]))
