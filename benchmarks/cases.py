"""Reduce real failures with known culprits and compare.

    python -m benchmarks.cases FOLDER_OF_CASES [CASE ...] [--times N] [--auto] [--option key=value ...]

Each case is a folder with model.onnx, inputs.npz, check.py (exit 1: the bug shows, 4: another failure, 2, 3, 5: no
answer) and truth.json (culprit_nodes, any_of). Prints a table: nodes before / after / truth, what is known about the
cause with the outcome of its experiments, checks, whether the culprits are exactly right. ``--times``: runs of each
case. ``--auto``: those cases that ``checker=auto`` can judge, with it in place of check.py, under the interpreters that
make_venvs.sh built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import onnx

from benchmarks import print_head, print_row, winnow

VENVS = Path(os.environ.get("CASE_VENVS", Path.home() / ".cache" / "failing-cases" / "venvs"))
_TAKEN = re.compile("^CFG = .*'venv': '(?P<venv>[^']+)', 'mode': '(?P<mode>[^']+)'", re.MULTILINE)
_NOT_AUTO = ("tool", "flaky")
"""What checker=auto cannot judge: what another program makes of a model, and a check that throws dice."""


def judged_by_auto(case: Path) -> list[str] | None:
    """Return the options with which checker=auto judges a case; None: it cannot."""
    found = _TAKEN.search((case / "check.py").read_text())
    if found is None or found["mode"] in _NOT_AUTO or "'flaky'" in (case / "check.py").read_text():
        return None
    python = VENVS / found["venv"] / "bin" / "python"
    options = ["checker=auto", f"target.python={python}", f"reference.python={python}"]
    if found["mode"] == "ref":
        options += ["target=onnx_reference"]
    return options + (["checker.timeout=5"] if found["mode"] == "hang" else [])


def judged_by_script(case: Path) -> list[str]:
    """Return the options with which the check beside a case judges it."""
    check = f"{sys.executable} {case / 'check.py'} {{model}} {{inputs}}"
    codes = ["checker.fail_codes=[1]", "checker.different_codes=[4]", "checker.invalid_codes=[2,3,5]"]
    return ["checker=command", f"checker.command='{check}'", *codes]


def right(culprits: list[str], truth: dict[str, Any], model: Path) -> str:
    """Return "exact", or "exact, another instance" for as many nodes of the same operators; "" for anything else."""
    answers = truth.get("any_of") or [truth["culprit_nodes"]]
    if any(sorted(culprits) == sorted(answer) for answer in answers):
        return "exact"
    graph = onnx.load(str(model), load_external_data=False).graph
    operators = {name: node.op_type for node in graph.node for name in (node.name, node.output[0])}

    def pattern(names: list[str]) -> Counter[str]:
        return Counter(operators.get(name, name) for name in names)

    return "exact, another instance" if any(pattern(culprits) == pattern(answer) for answer in answers) else ""


def experiments(result: dict[str, Any]) -> list[str]:
    """Return the cells of the cause: status, whole, (a), (b)."""
    cause = result.get("cause")
    if not cause:
        return ["", "", "", ""]
    main = next((one for one in cause["answers"] if one["is_cause"]), cause["answers"][0])

    def shown(one: dict[str, Any] | None) -> str:
        return "" if one is None else one["outcome"] + (f" {one['measure']:.3g}" if one["measure"] is not None else "")

    copies = f", {len(main['instances'])} instances" if len(main["instances"]) > 1 else ""
    return [cause["status"] + copies, shown(cause["whole"]), shown(main["good_outputs"]), shown(main["good_inputs"])]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--auto", action="store_true")
    given = parser.parse_args()
    folder = given.folder.resolve()
    names = given.cases or sorted(path.parent.name for path in folder.glob("*/truth.json"))
    if given.auto:
        names = [name for name in names if judged_by_auto(folder / name)]
    titles = ("case", "before", "after", "truth", "cause", "whole", "(a)", "(b)", "search", "cause", "trust", "seconds")
    print_head(*titles, "exit", "culprits")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            for time in range(given.times):
                out = (given.keep or Path(scratch)) / (f"{name}_{time}" if given.times > 1 else name)
                counts[f"{name}: {run(folder / name, out, given.option, auto=given.auto)}"] += 1
    if given.times > 1:
        print("\n".join(f"{what} {count} times" for what, count in sorted(counts.items())))
    return 1 if any(what.endswith("WRONG") for what in counts) else 0


def run(case: Path, out: Path, options: list[str], *, auto: bool = False) -> str:
    """Run one case and print its row; return whether it was exact."""
    truth = json.loads((case / "truth.json").read_text())
    given = [f"model={case / 'model.onnx'}", "inputs=files", f"inputs.path={case / 'inputs.npz'}", "verbosity=warning"]
    judged = judged_by_auto(case) or () if auto else judged_by_script(case)
    done, result = winnow(out, "strategy=reduce", *given, *judged, *options)
    if not result:
        print_row(case.name, *[""] * 11, done.returncode, done.stderr[-300:])
        return "WRONG"
    exact = right(result["culprits"], truth, case / "model.onnx")
    nodes, checks = result["nodes"], result["checks"]
    print_row(
        *(case.name, nodes["before"], nodes["after"], truth["minimal_nodes"], *experiments(result)),
        *(checks["search"], checks["cause"], checks["trust"], f"{result['seconds']['total']:.1f}", done.returncode),
        exact or "WRONG: " + ", ".join(result["culprits"]) + " " + result["message"],
    )
    return exact or "WRONG"


if __name__ == "__main__":
    sys.exit(main())
