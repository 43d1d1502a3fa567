"""Reduce real failures with known culprits and compare.

    python -m benchmarks.cases FOLDER_OF_CASES [CASE ...] [--option key=value ...]

Each case is a folder with model.onnx, inputs.npz, check.py (exit 1: the bug shows, 4: another failure, 2, 3, 5: no
answer) and truth.json (culprit_nodes, any_of). Prints a table: nodes before / after / truth, checks, whether the
culprits are exactly right.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def command(case: Path, out: Path, options: list[str]) -> list[str]:
    check = f"{sys.executable} {case / 'check.py'} {{model}} {{inputs}}"
    return [
        *(sys.executable, "-m", "runner", "strategy=reduce", f"model={case / 'model.onnx'}"),
        *("inputs=files", f"inputs.path={case / 'inputs.npz'}", "checker=command", f"checker.command='{check}'"),
        *("checker.fail_codes=[1]", "checker.different_codes=[4]", "checker.invalid_codes=[2,3,5]"),
        *(f"hydra.run.dir={out}", "verbosity=warning", *options),
    ]


def right(culprits: list[str], truth: dict[str, object]) -> bool:
    answers = truth.get("any_of") or [truth["culprit_nodes"]]
    assert isinstance(answers, list)
    return any(sorted(culprits) == sorted(answer) for answer in answers)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    given = parser.parse_args()
    folder = given.folder.resolve()
    names = given.cases or sorted(path.parent.name for path in folder.glob("*/truth.json"))
    print("| case | before | after | truth | search | trust | seconds | exit | culprits |")
    print("|---" * 9 + "|")
    wrong = 0
    for name in names:
        truth = json.loads((folder / name / "truth.json").read_text())
        with tempfile.TemporaryDirectory() as scratch:
            out = (given.keep or Path(scratch)) / name
            done = subprocess.run(
                command(folder / name, out, given.option), capture_output=True, text=True, check=False
            )
            result = json.loads((out / "result.json").read_text()) if (out / "result.json").exists() else None
        if result is None:
            print(f"| {name} | | | | | | | {done.returncode} | {done.stderr[-300:]} |")
            wrong += 1
            continue
        exact = right(result["culprits"], truth)
        wrong += not exact
        nodes, checks = result["nodes"], result["checks"]
        shown = "exact" if exact else "WRONG: " + ", ".join(result["culprits"]) + " " + result["message"]
        cells = [
            *(name, nodes["before"], nodes["after"], truth["minimal_nodes"], checks["search"], checks["trust"]),
            *(f"{result['seconds']['total']:.1f}", done.returncode, shown),
        ]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
