"""Failures as bugs: run as a user does, on defects of the installed ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx.parser import parse_model

from runner.sweeps.table import write_bugs
from tests.harness import winnow
from tests.jobs.optimizer_defect import loads

pytestmark = pytest.mark.slow


HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
#: what a defect of ONNX Runtime takes, from x to y
BUGS = {
    # FuseReluClip does not know double (microsoft/onnxruntime#11836)
    "double_clip": """<double low = {0.0}, double high = {6.0}> {
        d = Cast <to = 11> (x) r = Relu (d) c = Clip (r, low, high) y = Cast <to = 1> (c)""",
    # CastElimination with DivMulFusion: an edge is lost (microsoft/onnxruntime#32416)
    "cast_and_scale": """<float[1,1] one = {1.0}, float unit = {1.0}> {
        a = Abs (x) m = ReduceMax <axes = [0, 1], keepdims = 1> (a) l = Add (m, one)
        w = Cast <to = 1> (x) s = Div (unit, l) y = Mul (w, s)""",
}


def planted(path: Path, bug: str, depth: int) -> bool:
    """Write a model with a defect in it; return whether ONNX Runtime still has that."""
    ends = (f"{name} = Tanh ({source})" for source, name in (("in", "x"), ("y", "t0")))
    more = (f"t{at + 1} = Tanh (t{at})" for at in range(depth))
    size = 4 + depth
    text = f"(float[{size},{size}] in) => (float[{size},{size}] t{depth}) {BUGS[bug]} {' '.join((*ends, *more))} }}"
    onnx.save(parse_model(HEAD + text), str(path))
    return not loads(path)


def diagnosed(tmp_path: Path, name: str, bug: str, depth: int) -> Path:
    """Return the folder that a triage leaves: a reduction, and the passes of what is left."""
    model, folder = tmp_path / f"{name}.onnx", tmp_path / "sweep" / name
    if not planted(model, bug, depth):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} no longer has this defect")
    folder.mkdir(parents=True)
    bare = ("checker=runs", "checker.flaky=never")
    reduced = winnow(f"model={model}", *bare, folder=folder / "reduce")
    passes = winnow("strategy=passes", f"model={folder / 'reduce' / 'reduced.onnx'}", *bare, folder=folder / "passes")
    assert (reduced.code, passes.code) == (0, 0), reduced.output + passes.output
    told = {**reduced.result, "strategy": "triage", "model": "reduce/reduced.onnx", "passes": passes.result["passes"]}
    (folder / "result.json").write_text(json.dumps(told))
    return folder


def test_a_sweep_s_failures_are_bugs(tmp_path: Path) -> None:
    found = [
        diagnosed(tmp_path, "0", "cast_and_scale", 1),
        diagnosed(tmp_path, "1", "double_clip", 2),
        diagnosed(tmp_path, "2", "cast_and_scale", 3),
    ]
    other = json.loads((found[2] / "result.json").read_text())
    other["passes"] |= {"heals": [], "overrides": []}  # so that it has to be asked
    (found[2] / "result.json").write_text(json.dumps(other))
    sweep = tmp_path / "sweep"
    (sweep / "multirun.yaml").touch()
    assert write_bugs(sweep, [*found, sweep / "gone"], silent=True) == sweep / "bugs.md"
    first, second = json.loads((sweep / "bugs" / "result.json").read_text())["bugs"]
    assert first["failures"] == ["../0", "../2"] and second["failures"] == ["../1"]
    assert first["culprit_operators"] == ["Cast", "Div", "Mul"] and second["culprit_operators"] == ["Clip", "Relu"]
    assert [one["how"] for one in first["evidence"]] == ["the first of its kind", "checked"]
    page = (sweep / "bugs.md").read_text()
    assert page.startswith("# 2 bugs in 3 failures\n") and "Smallest example: `0/reduce/reduced.onnx`" in page
    # the first one is like nothing
    assert "- `2`: " in page and "- `0`: " not in page, page
    again = winnow("strategy=bugs", f"strategy.results=[{sweep}]", "plan=true", folder=tmp_path / "plan")
    assert again.code == 0 and "3 failures would be grouped" in again.result["message"], again.output
    healed = diagnosed(tmp_path, "3", "double_clip", 1) / "reduce" / "replay.yaml"
    text = healed.read_text()
    healed.write_text(text.replace("disabled_optimizers: []", "disabled_optimizers: [FuseReluClip]", 1))
    run = winnow("strategy=bugs", f"strategy.results=[{found[1]}, {healed.parents[1]}]", folder=tmp_path / "again")
    assert run.code == 0 and [one["count"] for one in run.result["bugs"]] == [1], run.output
    assert run.result["warnings"] == ["../sweep/3: fixed"] and "; apart from these: 1 fixed: see" in run.output
    assert "## Apart from these" in (run.folder / "bugs.md").read_text()


def test_a_multirun_of_triages_ends_in_bugs(tmp_path: Path) -> None:
    """The jobs here are reductions that say they are triages, so what heals them is not known."""
    models = tmp_path / "failures"
    models.mkdir()
    for number, bug in enumerate(("double_clip", "cast_and_scale", "double_clip")):
        if not planted(models / f"{number},{bug}.onnx", bug, number + 1):
            pytest.skip(f"ONNX Runtime {onnxruntime.__version__} no longer has this defect")
    found = ",".join(f"'{path}'" for path in sorted(models.glob("*.onnx")))
    words = ["-m", f"model={found}", "checker=runs", "checker.flaky=never", "strategy.shrink=false"]
    sweep = tmp_path / "sweep"
    first = winnow(*words, f"hydra.sweep.dir={sweep}", folder=tmp_path / "unused")
    assert first.code == 0 and not (sweep / "bugs.md").exists(), first.output
    for result in sweep.glob("[0-2]/result.json"):
        result.write_text(json.dumps({**json.loads(result.read_text()), "strategy": "triage"}))
    again = winnow(*words, f"resume={sweep}", folder=tmp_path / "unused")
    assert again.code == 0 and f"failures grouped into bugs: {sweep / 'bugs.md'}" in again.output, again.output
    page = (sweep / "bugs.md").read_text()
    assert page.startswith("# 2 bugs in 3 failures\n") and "- 2 failures: `0`, `2`" in page and "by likeness" in page
