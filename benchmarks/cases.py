"""Reduce real failures with known culprits and compare.

    python -m benchmarks.cases FOLDER_OF_CASES [CASE ...] [--times N] [--auto] [--option key=value ...]
    python -m benchmarks.cases FOLDER_OF_CASES [CASE ...] --workarounds [--files] [--option key=value ...]

Each case is a folder with model.onnx, inputs.npz, check.py (exit 1: the bug shows, 4: another failure, 2, 3, 5: no
answer) and truth.json (culprit_nodes, any_of). Prints a table: nodes before / after / truth, what is known about the
cause with the outcome of its experiments, checks, whether the culprits are exactly right. ``--times``: runs of each
case. ``--auto``: those cases that ``checker=auto`` can judge, with it in place of check.py, under the interpreters that
make_venvs.sh built.

``--workarounds``: try workarounds instead, judged by ``checker=auto``, and print those that hold: the rewrites around
the culprits of truth.json, the optimizations of ``HEALS`` off, the interpreter with the release that truth.json names
as control. The inputs are drawn in the shapes of the case, whole numbers in its range, so that there are fresh ones;
``--files``: those of the case.
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

import numpy
import onnx

from benchmarks import print_head, print_row, winnow

VENVS = Path(os.environ.get("CASE_VENVS", Path.home() / ".cache" / "failing-cases" / "venvs"))
_TAKEN = re.compile("^CFG = .*'venv': '(?P<venv>[^']+)', 'mode': '(?P<mode>[^']+)'", re.MULTILINE)
_NOT_AUTO = ("tool", "flaky")
"""What checker=auto cannot judge: what another program makes of a model, and a check that throws dice."""

HEALS = {
    "swin_divmul_cast": [["CastElimination"], ["DivMulFusion"]],
    "mixer_gemm_idtranspose": [["GemmTransposeFusion"]],
    "inception_pad_avgpool": [["Pad_Fusion"]],
    "mlp_double_reluclip": [["FuseReluClip"]],
    "t5_rms_keepdims0": [["SimplifiedLayerNormFusion"]],
    "bert_skipln_gamma3d": [["SkipLayerNormFusion"]],
    "bert_fp16_sln": [["SimplifiedLayerNormFusion"]],
}
"""The optimizations that strategy=passes names on each case."""


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


def command(case: Path, options: list[str], *, auto: bool = False) -> list[str]:
    given = [f"model={case / 'model.onnx'}", "inputs=files", f"inputs.path={case / 'inputs.npz'}", "verbosity=warning"]
    start = ["strategy=reduce", *given]
    if auto:
        return [*start, *(judged_by_auto(case) or ()), *options]
    check = f"{sys.executable} {case / 'check.py'} {{model}} {{inputs}}"
    codes = ["checker.fail_codes=[1]", "checker.different_codes=[4]", "checker.invalid_codes=[2,3,5]"]
    return [*start, "checker=command", f"checker.command='{check}'", *codes, *options]


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


def workaround_command(case: Path, options: list[str], *, files: bool) -> list[str]:
    truth = json.loads((case / "truth.json").read_text())
    python = VENVS / str(truth["control_venv"]) / "bin" / "python"
    given = [f"strategy.nodes={json.dumps(truth['culprit_nodes'])}"]
    given += [f"strategy.disabled_optimizers={json.dumps(HEALS.get(case.name, []))}"]
    given += [f"strategy.interpreters=[{python}]"] if python.exists() else []
    given += [f"strategy.raised={json.dumps(truth['culprit_nodes'])}"] if "fp16" in case.name else []
    if files:
        given += ["inputs=files", f"inputs.path={case / 'inputs.npz'}"]
    else:
        held = numpy.load(case / "inputs.npz")
        wanted = {value.name for value in onnx.load(case / "model.onnx", load_external_data=False).graph.input}
        for name in wanted.intersection(held.files):
            given += [f"++inputs.shapes.{name}={list(held[name].shape)}"]
            whole = numpy.issubdtype(held[name].dtype, numpy.integer)
            given += [f"++inputs.ranges.{name}=[{held[name].min()},{held[name].max() + 1}]"] if whole else []
    start = ["strategy=workaround", f"model={case / 'model.onnx'}", "verbosity=warning"]
    return [*start, *(judged_by_auto(case) or ()), *given, *options]


def show_workarounds(case: Path, out: Path, options: list[str], *, files: bool) -> bool:
    """Try workarounds on one case, print those that hold, and return whether any does."""
    done, result = winnow(out, *workaround_command(case, options, files=files))
    for one in result.get("workarounds", []):
        samples, cost = one["samples"], one["latency"] or {}
        shown = f"{samples['passed']} of {samples['of']} {samples['kind']}" if one["passes"] else "no"
        times = [cost.get(key) or "" for key in ("before_ms", "after_ms", "ratio")]
        print_row(case.name, one["kind"], one["what"], shown, *times, one["why_not"][:80])
    checks, seconds = result.get("checks", {}), result.get("seconds", {})
    told = f"{sum(checks.get(key, 0) for key in ('search', 'trust'))} checks, {seconds.get('total')} s"
    message = result.get("message") or done.stderr[-400:]
    print_row(case.name, f"exit {done.returncode}", message, told, *[""] * 4)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--auto", action="store_true")
    parser.add_argument("--workarounds", action="store_true")
    parser.add_argument("--files", action="store_true")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.workarounds:
        print_head("case", "kind", "what", "inputs", "before ms", "after ms", "ratio", "why not")
        cases = [folder / name for name in given.cases or HEALS if (folder / name).is_dir()]
        with tempfile.TemporaryDirectory() as scratch:
            kept = given.keep or Path(scratch)
            held = [show_workarounds(case, kept / case.name, given.option, files=given.files) for case in cases]
        return 0 if all(held) else 1
    names = given.cases or sorted(path.parent.name for path in folder.glob("*/truth.json"))
    if given.auto:
        names = [name for name in names if judged_by_auto(folder / name)]
    print_head(
        *("case", "before", "after", "truth", "cause", "whole", "(a)", "(b)", "search", "cause", "trust", "seconds"),
        *("exit", "culprits"),
    )
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
    done, result = winnow(out, *command(case, options, auto=auto))
    if not result:
        print_row(case.name, *[""] * 11, done.returncode, done.stderr[-300:])
        return "WRONG"
    exact = right(result["culprits"], truth, case / "model.onnx")
    nodes, checks = result["nodes"], result["checks"]
    shown = exact or "WRONG: " + ", ".join(result["culprits"]) + " " + result["message"]
    print_row(
        *(case.name, nodes["before"], nodes["after"], truth["minimal_nodes"], *experiments(result)),
        *(checks["search"], checks["cause"], checks["trust"]),
        *(f"{result['seconds']['total']:.1f}", done.returncode, shown),
    )
    return exact or "WRONG"


if __name__ == "__main__":
    sys.exit(main())
