"""Try workarounds on real failures with known culprits, and print those that hold.

    python -m benchmarks.workarounds FOLDER_OF_CASES [CASE ...] [--files] [--keep FOLDER] [--option key=value ...]

Cases as in `benchmarks.cases`, with checker=auto under the interpreters that make_venvs.sh built. What is tried: the
rewrites around the culprits of truth.json, the optimizations of ``HEALS`` off, the interpreter with the release that
truth.json names as control. The inputs are drawn in the shapes of the case, whole numbers in its range, so that there
are fresh ones; ``--files``: those of the case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnx

from benchmarks.cases import VENVS, judged_by_auto

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


def command(case: Path, out: Path, options: list[str], *, files: bool) -> list[str]:
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
    start = [sys.executable, "-m", "runner", "strategy=workaround", f"model={case / 'model.onnx'}"]
    return [*start, f"hydra.run.dir={out}", "verbosity=warning", *(judged_by_auto(case) or ()), *given, *options]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    parser.add_argument("--option", action="append", default=[])
    given = parser.parse_args()
    folder = given.folder.resolve()
    print("| case | kind | what | inputs | before ms | after ms | ratio | why not |\n|---|---|---|---|---|---|---|---|")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.cases or [one for one in HEALS if (folder / one).is_dir()]:
            out = (given.keep or Path(scratch)) / name
            argv = command(folder / name, out, given.option, files=given.files)
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            result = json.loads((out / "result.json").read_text()) if (out / "result.json").exists() else {}
            for one in result.get("workarounds", []):
                samples, cost = one["samples"], one["latency"] or {}
                shown = f"{samples['passed']} of {samples['of']} {samples['kind']}" if one["passes"] else "no"
                times = [cost.get(key) or "" for key in ("before_ms", "after_ms", "ratio")]
                print(
                    "|", " | ".join(map(str, (name, one["kind"], one["what"], shown, *times, one["why_not"][:80]))), "|"
                )
            checks, seconds = result.get("checks", {}), result.get("seconds", {})
            told = f"{sum(checks.get(key, 0) for key in ('search', 'trust'))} checks, {seconds.get('total')} s"
            print(
                f"| {name} | exit {done.returncode} | {result.get('message') or done.stderr[-400:]} | {told} | | | | |",
                flush=True,
            )
            wrong += done.returncode != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
