"""What comparing two recorded outputs costs: memory beside the files, as bytes an element, and CPU seconds.

    python -m benchmarks.compare_memory [millions of elements, 64] [folder for the two files of each case]

Each comparison runs in a process of its own. Memory is the largest amount that is the process's own (pages of mapped
files are not: the system takes them back when it needs them), less what it had before the comparison.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from runner.checkers.compare_values import compare
from runner.model.values import recorded
from runner.schema.checker import CompareChecker, Metric, Statistic, Tolerance

CASES = {
    "scale": CompareChecker(metric=Metric.scale),
    "elementwise": CompareChecker(metric=Metric.elementwise),
    "cosine": CompareChecker(metric=Metric.cosine),
    "fraction": CompareChecker(metric=Metric.fraction),
    "scale, median": CompareChecker(metric=Metric.scale, statistic=Statistic.median),
    "elementwise, quantile, auto": CompareChecker(
        metric=Metric.elementwise, statistic=Statistic.quantile, tolerance=Tolerance.auto
    ),
}
DTYPES = ("float32", "float16", "int64")
_CHUNK = 1 << 20


def main(millions: str = "64", folder: str | None = None) -> None:
    """Print a line for each type and rule."""
    count = int(float(millions) * 1e6)
    print(f"{count:,} elements; memory beside the files in bytes an element and in MB, CPU seconds")
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _write(dtype, count, Path(place))
            for name in CASES if dtype == "float32" else ("scale",):
                most, seconds = _measure(name, Path(place))
                print(f"{dtype:8} {name:28} {most / count:8.2f} {most / 1e6:10.1f} MB {seconds:8.2f} s", flush=True)


def _write(dtype: str, count: int, folder: Path) -> None:
    generator = np.random.default_rng(0)
    right = (generator.standard_normal(count, np.float32) * 100).astype(dtype)
    recorded.write(right, "x", folder / "right.pb")
    for start in range(0, count, _CHUNK):
        part = right[start : start + _CHUNK]
        part *= (1 + 1e-4 * generator.standard_normal(part.size, np.float32)).astype(dtype)
    recorded.write(right, "x", folder / "wrong.pb")


def _measure(name: str, folder: Path) -> tuple[int, float]:
    """Return the bytes that a comparison takes at most, and its CPU seconds."""
    argv = [sys.executable, "-m", "benchmarks.compare_memory", "--one", name, str(folder)]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        before = most = _own(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        while process.poll() is None:
            try:
                most = max(most, _own(process.pid))
            except psutil.Error:  # it has just ended
                break
            time.sleep(0.002)
        return most - before, float(process.stdout.readline())


def _own(pid: int) -> int:
    memory = psutil.Process(pid).memory_info()
    return int(memory.rss - memory.shared)


def _one(name: str, folder: Path) -> None:
    files = [recorded.TensorFile("x", folder / f"{which}.pb", 1, ()) for which in ("wrong", "right")]
    small = recorded.write(np.ones(9, np.float32), "x", folder / "small.pb")
    compare(small, small, CASES[name])
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.process_time()
    compare(files[0], files[1], CASES[name])
    print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    _one(sys.argv[2], Path(sys.argv[3])) if sys.argv[1:2] == ["--one"] else main(*sys.argv[1:])
