"""Benchmarks: side by side in one run, costs counted in checks first and seconds second; where results are kept."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
_PACKAGES = ("winnow-onnx", "onnx", "onnxruntime", "numpy", "protobuf", "hydra-core")


def result_folder() -> Path:
    """Return benchmarks/results/DATE-VERSION, made where it is not there."""
    date = datetime.now(timezone.utc).date().isoformat()
    folder = ROOT / "benchmarks" / "results" / f"{date}-{metadata.version('winnow-onnx')}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def measured_with() -> dict[str, str]:
    """Return versions, the machine and how busy it is now."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    names = (line.partition(":")[2].strip() for line in _processors() if line.startswith("model name"))
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES},
        "commit": commit.stdout.strip(),
        "system": platform.platform(),
        "processor": next(names, platform.machine()),
        "CPUs": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "load average": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processors() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.is_file() else []
