"""Planted culprits on real architectures, judged by structure alone: how many checks, and is the answer exact?

    python -m benchmarks.structural ZOO [MODEL ...] [--strategy reduce] [--option key=value ...]

ZOO/MODEL holds model.onnx and culprits.json ({"single": [tensor], "chain": [..], "branch": [..]}: first outputs of the
culprit nodes). A model fails if all of them are there. Bound for single and chain: 2 * ceil(log2 N) + 2 k + 3.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.beside_peer import CHECK

COLUMNS = (
    *("model", "nodes", "case", "exact", "left", "search", "bound", "trust"),
    *("seconds", "checking", "recording", "job MB", "workers MB"),
)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("zoo", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--strategy", default="reduce")
    parser.add_argument("--option", action="append", default=[])
    given = parser.parse_args()
    zoo = given.zoo.resolve()
    names = given.models or sorted(path.parent.name for path in zoo.glob("*/culprits.json"))
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            planted = json.loads((zoo / name / "culprits.json").read_text())
            for case in ("single", "chain", "branch"):
                if case in planted:
                    bad += not _row(zoo / name, case, planted[case], Path(scratch), given)
    return 1 if bad else 0


def _row(folder: Path, case: str, culprits: list[str], scratch: Path, given: argparse.Namespace) -> bool:
    out = scratch / f"{folder.name}-{case}"
    argv = json.dumps([sys.executable, str(CHECK), "{model}", *culprits])
    subprocess.run(
        [
            *(sys.executable, "-m", "runner", f"strategy={given.strategy}", f"model={folder / 'model.onnx'}"),
            *("checker=command", f"checker.command={argv}", "checker.fail_codes=[1]"),
            *(f"hydra.run.dir={out}", "verbosity=warning", *given.option),
        ],
        capture_output=True,
        check=False,
    )
    result = json.loads((out / "result.json").read_text())
    nodes, checks, seconds, peak = result["nodes"], result["checks"], result["seconds"], result["peak_rss_mb"]
    exact = result["status"] == "found" and nodes["after"] == len(culprits)
    bound = 2 * math.ceil(math.log2(nodes["before"])) + 2 * len(culprits) + 3
    cells = [
        *(folder.name, nodes["before"], case, "yes" if exact else f"{result['status']} {result['message'][:80]}"),
        *(nodes["after"], checks["search"], bound if case != "branch" else "-", checks["trust"]),
        *(f"{seconds[key]:.1f}" for key in ("total", "checking", "recording")),
        *(f"{peak[key]:.0f}" for key in ("job", "workers")),
    ]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return exact and (case == "branch" or checks["search"] <= bound)


if __name__ == "__main__":
    sys.exit(main())
