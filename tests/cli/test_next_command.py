"""The command that is printed last: it is copied and run, and has to hold."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from onnx import save
from onnx.parser import parse_model

from runner.cli.next_command import next_command
from runner.report.diagnosis_sections import LEFT
from runner.report.summary import summary_of
from tests.chain_models import chain
from tests.fork_server import run_forked
from tests.harness import ROOT, Run, by_command, check_script, winnow
from tests.jobs.optimizer_defect import defective, loads

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
ONCE = ("result.find_min_good=false", "strategy.find=one")


def following(run: Run, folder: Path) -> Run:
    """Run what a run's screen says to type next."""
    line = next(line for line in run.screen if line.startswith("  next "))
    words = shlex.split(line.removeprefix("  next "))
    assert words[:3] == ["python", "-m", "runner"], line
    return winnow(*words[3:], folder=folder)


@pytest.mark.slow
def test_what_optimizations_break_is_asked_about_by_passes_and_then_what_helps(tmp_path: Path) -> None:
    model = defective(tmp_path / "net.onnx")
    if loads(model):
        pytest.skip("this ONNX Runtime has the defect no longer")
    first = winnow("strategy=reduce", f"model={model}", "checker.flaky=never", *ONCE, folder=tmp_path / "reduce")
    second = following(first, tmp_path / "passes")
    assert (second.code, second.result["strategy"]) == (0, "passes"), second.output
    assert "not as recorded" not in second.output and max(map(len, second.output.splitlines())) < 900
    assert "reduced.onnx passes" in second.output and "whole model" not in (second.folder / "REPORT.md").read_text()
    third = following(second, tmp_path / "workaround")
    assert (third.code, third.result["strategy"]) == (0, "workaround"), third.output
    assert third.result["input_model"] == str(model) and "about this model" not in third.output


@pytest.mark.slow
def test_what_rounding_breaks_is_checked_again_as_it_was(tmp_path: Path) -> None:
    given = ("strategy=reduce", f"model={ROOT / 'examples' / 'overflow.onnx'}", "target.rounding=on", *ONCE)
    first = winnow(*given, folder=tmp_path / "reduce")
    second = following(first, tmp_path / "again")
    assert (second.code, second.result["strategy"]) == (0, "recheck") and "all as expected" in second.output


@pytest.mark.slow
def test_what_passes_is_looked_at_with_more_inputs_until_that_is_enough(tmp_path: Path) -> None:
    chain(tmp_path / "net.onnx", 3)
    run = winnow("strategy=passes", f"model={tmp_path / 'net.onnx'}", "inputs.samples=10", folder=tmp_path / "run")
    again = following(run, tmp_path / "again")
    assert (run.code, again.code, again.result["status"]) == (4, 4, "nothing_to_find"), again.output
    assert "inputs.samples=100\n" in run.output and not any(line.startswith("  next ") for line in again.screen)


def softmaxes(folder: Path) -> tuple[str, ...]:
    """At a sequence of one step a softmax over it is 1, whatever it is made of."""
    for name, weight in (("net", 5.0), ("original", 2.0)):
        text = f"(float[batch,seq] x) => (float[batch,seq] y) <float w = {{{weight}}}>"
        nodes = "{ s = Mul (x, w) [soft] y = Softmax <axis = 1> (s) }"
        save(parse_model(f"{HEAD} {text} {nodes}"), folder / f"{name}.onnx")
    return f"model={folder / 'net.onnx'}", f"reference.model={folder / 'original.onnx'}", "checker.flaky=never"


def test_sizes_that_are_assumed_are_made_larger_before_more_inputs_are_tried(tmp_path: Path) -> None:
    first = winnow("strategy=reduce", *softmaxes(tmp_path), folder=tmp_path / "run")
    larger = "inputs.shapes={x: [2, 7]}"
    assert first.code == 4 and larger in first.result["message"] and larger in first.result["warnings"][-2], (
        first.output
    )
    again = following(first, tmp_path / "again")
    assert (again.code, again.result["whose"]) == (0, "conversion"), again.output


@pytest.mark.slow
def test_so_are_those_of_a_triage(tmp_path: Path) -> None:
    larger = "inputs.shapes={x: [2, 7]}"
    triage = winnow("strategy=triage", *softmaxes(tmp_path), "strategy.steps=[stands]", folder=tmp_path / "triage")
    assert triage.code == 4 and f"to try next: larger sizes ({larger}); real inputs" in triage.output, triage.output
    assert f"replay.yaml '{larger}'" in triage.output, triage.output


@pytest.mark.slow
def test_no_smaller_sizes_than_those_that_the_reference_needs_are_proposed(tmp_path: Path) -> None:
    pool = "{ y = AveragePool <kernel_shape = [8, 8]> (x) }"
    save(parse_model(f"{HEAD} (float[1,1,h,w] x) => (float[1,1,a,b] y) {pool}"), tmp_path / "pool.onnx")
    run = winnow("strategy=triage", f"model={tmp_path / 'pool.onnx'}", folder=tmp_path / "run")
    assert run.code == 4 and "so that the reference runs: h=8, w=8" in run.output, run.output
    assert "larger sizes" not in run.output and "inputs.samples=10" in run.screen[-2], run.output
    assert "h=1" not in run.output, "sizes that the reference refuses are not told"


def test_sizes_at_which_no_output_tells_anything_are_made_larger(tmp_path: Path) -> None:
    text = "(float[batch,seq,4] x) => (float[batch,seq,4] y) { e = Exp (x) [soft] y = Softmax <axis = 1> (e) }"
    save(parse_model(HEAD + text), tmp_path / "net.onnx")
    given = ("strategy=extract", "strategy.nodes=[soft]", f"model={tmp_path / 'net.onnx'}")
    first = winnow(*given, folder=tmp_path / "run")
    assert first.code == 3 and "the only output, 'y', is constant, so no fault could show" in first.output, first.output
    assert "run/replay.yaml 'inputs.shapes={x: [2, 7, 4]}'" in first.screen[-2], first.output


def test_where_nothing_can_be_turned_off_the_model_is_reduced_first(tmp_path: Path) -> None:
    """With all passes off it fails otherwise. A flaky check is repeated; one of the user's has no such model."""
    (tmp_path / "replay.yaml").touch()
    told = {"status": "could_not_judge", "strategy": "passes", "checker": "runs", "signature": {"stage": "load"}}
    flaky = {"reliability": {"whole_model": {"failed": 3, "of": 20}}}
    for more, words in (({}, "strategy=reduce"), (flaky, "strategy=repeat"), ({"checker": "command"}, "")):
        typed, _ = next_command(summary_of({**told, **more}), tmp_path)
        assert words in typed and bool(typed) is bool(words), typed


@pytest.mark.parametrize("strategy", ["precision", "layerwise"])
def test_what_compares_nothing_of_a_model_that_does_not_load_proposes_a_reduction(
    strategy: str, tmp_path: Path
) -> None:
    reads = "(float[2,3] x, float[4,5] w) => (float[2,5] y) { [relu] r = Relu(x) [product] y = MatMul(r, w) }"
    save(parse_model(HEAD + reads), tmp_path / "net.onnx")
    run = winnow(strategy, str(tmp_path / "net.onnx"), folder=tmp_path / "run")
    assert run.code == 3 and "strategy=reduce" in run.screen[-2], run.output
    again = following(run, tmp_path / "again")
    assert (again.code, again.result["culprits"]) == (0, ["product"]), again.output


def test_what_an_answer_lacks_is_a_new_run(tmp_path: Path) -> None:
    """The kept verdicts hold for the settings that they were found with, and a run that goes on is refused others."""
    (tmp_path / "replay.yaml").touch()
    (tmp_path / ".hydra").mkdir()
    other = "checker.measure_better=higher"
    told = {"status": "found", "culprits": ["n"], "cause": {"status": "untested"}, "lacks": [other]}
    assert next_command(summary_of(told), tmp_path)[0] == f"winnow {tmp_path}/replay.yaml {other}"
    unknown = {"status": "could_not_judge", "lacks": ["--inputs x.npz"]}
    assert next_command(summary_of(unknown), tmp_path)[0] == f"winnow resume {tmp_path} --inputs x.npz"


def test_where_the_model_has_more_faults_all_of_them_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "replay.yaml").touch()
    told = {"status": "found", "strategy": "reduce", "culprits": ["n"], "model": "reduced.onnx", "whose": "conversion"}
    left = {"status": "proven", "reason": f"{LEFT}: with right outputs there the error is still 3"}
    for cause, words in (
        ({"status": "proven"}, ""),
        (left, "find=all"),
        ({"status": "proven", "inside": left}, "find=all"),
    ):
        typed, _ = next_command(summary_of({**told, "cause": cause}), tmp_path)
        assert words in typed and bool(typed) is bool(words), typed


def test_of_an_answer_in_doubt_the_tensor_without_a_partner_is_asked_for(tmp_path: Path) -> None:
    replay, why = tmp_path / "replay.yaml", "no good value is known for 'a/b_1': it has no partner, and so on"
    replay.write_text("reference: {model: net.onnx, map: null}")
    told = {"status": "suspected", "strategy": "reduce", "culprits": ["n"], "unresolved": {why: 3, "other": 1}}
    typed, _ = next_command(summary_of(told), tmp_path)
    assert typed == f"winnow {replay} 'reference.map={{a/b_1: TENSOR_OF_THE_ORIGINAL}}'"
    assert "map" not in next_command(summary_of({**told, "status": "found"}), tmp_path)[0]
    replay.write_text("reference: {model: net.onnx, map: {a: b}}")  # which would be lost
    assert "map" not in next_command(summary_of(told), tmp_path)[0]


def test_after_kept_results_that_could_not_be_judged_these_are_asked_about_again(tmp_path: Path) -> None:
    """A replay of such a run names no model, which another strategy could be asked about."""
    (tmp_path / "replay.yaml").touch()
    (tmp_path / ".hydra").mkdir()
    told = {"status": "could_not_judge", "strategy": "recheck"}
    row = {"folder": "7", "expect": "still broken", "outcome": "not judged", "said": "its check names check.py"}
    for more in ({"rechecked": [row]}, {"strategy": "bugs", "outcomes": {"unresolved": 1}}):
        typed, what = next_command(summary_of({**told, **more}), tmp_path)
        assert typed == f"winnow resume {tmp_path}" and "after a fix, repeats checks without a verdict" in what
    fixed = {**told, "strategy": "bugs", "outcomes": {"pass": 1}}
    assert next_command(summary_of(fixed), tmp_path)[0] == ""


@pytest.mark.parametrize("looked", [{"kind": "model", "why": "IR version 99"}, {"kind": "engine"}])
def test_after_an_inspection_that_has_the_answer_no_other_question_follows(
    tmp_path: Path, looked: dict[str, str]
) -> None:
    told = {"status": "found", "strategy": "inspect", "input_model": "net.onnx"}
    assert next_command(summary_of({**told, "inspection": looked}), tmp_path) == ("", "")


@pytest.mark.slow
def test_what_could_not_be_judged_is_asked_again_once_that_is_mended(tmp_path: Path) -> None:
    chain(tmp_path / "net.onnx", 6)
    here = tmp_path / "here"
    body = f"import os\nif not os.path.exists({str(here)!r}):\n    import module_of_nobody\nsys.exit('n3' in nodes)"
    check = by_command(check_script(tmp_path, body))
    run = winnow("strategy=reduce", f"model={tmp_path / 'net.onnx'}", *check, *ONCE, folder=tmp_path / "run")
    assert run.code == 3 and "  next     python -m runner resume run" in run.output, run.output
    here.touch()
    again = following(run, tmp_path / "run")
    assert (again.code, again.result["culprits"]) == (0, ["n3"]), again.output
    shown = run_forked([sys.executable, "-m", "runner", "resume", "run"], cwd=tmp_path, timeout=60)
    assert shown.returncode == 0 and "This run has ended" in shown.stdout
