"""Benchmarks: side by side in one run, costs counted in checks first and seconds second; where results are kept."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
_PACKAGES = ("winnow-onnx", "onnx", "onnxruntime", "numpy", "protobuf", "hydra-core")


def result_folder() -> Path:
    """Return benchmarks/results/DATE-VERSION, made where it is not there."""
    date = datetime.now(timezone.utc).date().isoformat()
    folder = ROOT / "benchmarks" / "results" / f"{date}-{metadata.version('winnow-onnx')}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def winnow(folder: Path, *words: str, **how: Any) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run Winnow as a user does, into ``folder``; return how it ended, and its result.json ({}: there is none)."""
    argv = [sys.executable, "-m", "runner", *words, f"hydra.run.dir={folder}"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **how)
    result = folder / "result.json"
    return done, json.loads(result.read_text()) if result.is_file() else {}


def session(model: Any, level: int = 0) -> Any:
    """Return a session of plain ONNX Runtime with one thread, of a model or a file; ``level``: 99 optimizes all."""
    import onnxruntime  # noqa: PLC0415 - few benchmarks need it

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(level)
    content = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def varint(number: int) -> bytes:
    """Return a whole number as protobuf writes it."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def print_row(*cells: object) -> None:
    """Print a row of a table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_head(*titles: str) -> None:
    """Print the first two lines of a table."""
    print_row(*titles)
    print("|---" * len(titles) + "|", flush=True)


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
