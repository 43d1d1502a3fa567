"""python -m benchmarks.workers [--nodes 500] [--seconds 1] [--culprits N ...]: what more workers gain.

Each check sleeps and then looks for one node in a chain, so that many run at once on any machine. Printed are the wall
time, the rounds (times at which one check or more were under way, without a break), the checks that were paid for, and
the ratio to one worker; the answers have to be the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import onnx
from onnx import TensorProto, helper

CHECK = """import sys, time
began = time.time()
time.sleep(float(sys.argv[1]))
with open(sys.argv[4], "a") as log:
    log.write(f"{began} {time.time()}\\n")
sys.exit(sys.argv[2].encode() in open(sys.argv[3], "rb").read())
"""
WORKERS = (1, 2, 4)


def chain(nodes: int) -> onnx.ModelProto:
    """Return a chain of Neg nodes; the names of their outputs are of one length, so that none is part of another."""
    made = [
        helper.make_node("Neg", [f"t{number:06}" if number else "x"], [f"t{number + 1:06}"], name=f"node{number:06}")
        for number in range(nodes)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", f"t{nodes:06}")]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def rounds(log: str) -> int:
    """Return how often a check began while no other was under way."""
    count, busy = 0, 0.0
    for began, ended in sorted(tuple(map(float, line.split())) for line in log.splitlines()):
        count += began > busy
        busy = max(busy, ended)
    return count


def run(folder: Path, culprit: str, workers: int, seconds: float) -> tuple[float, int, dict[str, Any]]:
    """Run Winnow; return its wall time, its rounds and its result."""
    check, log = [sys.executable, "-S", "-E", str(folder / "check.py")], folder / "log"
    command = json.dumps([*check, str(seconds), culprit, "{model}", str(log)])
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        argv = [sys.executable, "-m", "runner", f"model={folder / 'chain.onnx'}", "checker=command"]
        argv += [f"checker.command={command}", f"workers.count={workers}", f"hydra.run.dir={out}"]
        started = time.monotonic()
        subprocess.run(argv, capture_output=True, check=True)
        wall = time.monotonic() - started
        return wall, rounds(log.read_text()), json.loads((Path(out) / "result.json").read_text())


def main() -> None:
    """Print a row for each culprit and number of workers, and the medians of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--culprits", type=int, nargs="*", default=[71, 250, 402])
    given = parser.parse_args()
    ratios: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    print("| culprit | workers | wall s | rounds | ratio | search | trust | answer |\n" + "|---" * 8 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        onnx.save(chain(given.nodes), folder / "chain.onnx")
        (folder / "check.py").write_text(CHECK)
        for culprit in given.culprits:
            name, alone = f"node{culprit:06}", 0.0
            for workers in WORKERS:
                wall, taken, result = run(folder, name, workers, given.seconds)
                alone = alone or wall
                ratios[workers].append(wall / alone)
                checks = result["checks"]
                cells = [culprit, workers, f"{wall:.1f}", taken, f"{wall / alone:.2f}"]
                cells += [checks["search"], checks["trust"], "right" if result["culprits"] == [name] else "wrong"]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    print("\nmedian ratio: " + ", ".join(f"{workers}: {median(found):.2f}" for workers, found in ratios.items()))


if __name__ == "__main__":
    main()
