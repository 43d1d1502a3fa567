"""Pages of real runs, of each kind."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model

from runner.report.page.html import page_text
from tests.harness import ROOT, Run, by_command, check_script, interrupted, winnow
from tests.model.models import model_of
from tests.report.page.pages import page_in, rows_of

OVERFLOW = ("reduce_bisect", str(ROOT / "examples" / "overflow.onnx"), "target=onnx_reference", "checker.flaky=never")
CULPRIT = "/bert/encoder/layer.5/output/dense/MatMul"
HOSTILE = "<img src=x onerror=alert(1)>|`]]>"


def small(folder: Path, *, bad: str = "Log") -> Path:
    """Three nodes whose middle one makes NaN of what is negative; one has a name that is markup."""
    path = folder / "net.onnx"
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name=HOSTILE),
        helper.make_node(bad, ["a"], ["b"], name="bad"),
        helper.make_node("Relu", ["b"], ["y"], name="after"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    onnx.save(model_of(nodes, ends[:1], ends[1:], ir=9), str(path))
    return path


def net(folder: Path, text: str) -> Path:
    """A model in ONNX's own text form."""
    path = folder / "net.onnx"
    onnx.save(parse_model(f'<ir_version: 9, opset_import: ["": 17]> net {text}'), str(path))
    return path


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return winnow(*OVERFLOW, folder=tmp_path_factory.mktemp("overflow") / "run")


def test_a_reduction_shows_both_graphs_the_path_and_the_answer(reduced: Run) -> None:
    page = page_in(reduced.folder)
    assert page.kind == "run" and page.status == "found" and CULPRIT in page.verdict
    whole, part = page.whole, page.reduced
    assert whole and part and [whole["names"][one] for one in whole["culprits"]] == [CULPRIT] == part["names"]
    assert "" not in whole["types"], "what was recorded has a shape"
    place = whole["block"][whole["culprits"][0]]
    assert whole["blocks"][place] == "bert/encoder/layer.5/output/dense"
    trials = page.trials
    assert page.elements == "nodes" and len(trials) == sum(reduced.result["outcomes"].values())
    narrow = next(one for one in trials if one["label"] == "keep 339..339")
    assert narrow["kept"] == [[428, 428]] and narrow["outcome"] == "fail" and "has an Inf" in narrow["log"]
    assert {one["phase"] for one in trials} >= {"pre-flight", "earliest end", "latest start", "shrink", "re-check"}
    assert "from random inputs" in page.labels and "interrupted" not in page.labels


def test_good_and_wrong_values_are_beside_each_other_and_their_run_is_no_check(reduced: Run) -> None:
    page = page_in(reduced.folder)
    output = next(one for one in page.tensors if one["name"] == f"{CULPRIT}_output_0")
    assert output["good"] and output["wrong"] and output["wrong"]["inf"] > 0 and output["differing"] is not None
    assert output["wrong"]["shape"] == [1, 12, 32] and sum(output["wrong"]["counts"]) + output["wrong"]["inf"] == 384
    fed = next(one for one in page.tensors if one["name"] != output["name"])
    assert fed["good"] and fed["wrong"] is None
    checks = reduced.result["checks"]
    made = sum(checks[name] for name in ("search", "trust", "refine", "cause"))
    assert made == sum(one["seconds"] > 0 for one in page.trials)
    assert any("from extra runs for this page" in value for name, value in page.facts if name == "values on this page")


def test_its_commands_are_exact_and_its_sections_those_of_the_report(reduced: Run) -> None:
    page = page_in(reduced.folder)
    commands = [command for _, command in page.commands]
    near = reduced.folder.name  # the run began beside it; where that lies is nobody's business
    assert f"python -m runner {near}/replay.yaml" in commands
    assert f"cd {near} && python repro.py" in commands
    assert str(reduced.folder.parent) not in repr(replace(page, whole=None, reduced=None))
    report = (reduced.folder / "REPORT.md").read_text()
    assert page.title == report.partition("\n")[0][2:].replace("`", "")
    titles = [one.title for one in page.sections]
    assert {"Versions"} <= {*titles} and all(f"## {title}" in report for title in titles)
    versions = next(one for one in page.sections if one.title == "Versions")
    assert ("onnx", onnx.__version__) in rows_of(versions)


def test_a_check_of_the_users_has_no_wrong_values_and_names_stay_text(tmp_path: Path) -> None:
    model = small(tmp_path)
    check = check_script(tmp_path, "print('<b>looked</b>')\nsys.exit(1 if 'bad' in nodes else 0)")
    run = winnow("reduce", str(model), *by_command(check), folder=tmp_path / "run")
    page = page_in(run.folder)
    assert page.whole and page.whole["names"][0] == HOSTILE and page.reduced
    assert page.tensors and all(one["wrong"] is None for one in page.tensors)
    assert any("<b>looked</b>" in one["log"] for one in page.trials)
    assert "<img" not in (run.folder / "report.html").read_text()


@pytest.mark.slow
def test_inner_tensors_are_shown_where_looking_at_them_hides_nothing(tmp_path: Path) -> None:
    """Kept as wholes: the failure needs both nodes, so a tensor lies between them."""
    path = net(
        tmp_path, "(float16[4] x) => (float16[4] y) { [up] a = Mul(x, x) [down] c = Sub(a, a) [last] y = Abs(c) }"
    )
    np.savez(tmp_path / "in.npz", x=np.full((4,), 300, np.float16))
    words = ("target=onnx_reference", "checker=finite", "checker.inf=ignore", "checker.flaky=never")
    inputs = ("inputs=files", f"inputs.path={tmp_path / 'in.npz'}", "strategy.reduce_inputs=false")
    run = winnow("reduce", str(path), *words, *inputs, folder=tmp_path / "run")
    page = page_in(run.folder)
    assert run.code == 0 and page.reduced and len(page.reduced["names"]) == 2, run.output
    outer = [page.reduced["tensors"][one] for key in ("feeds", "results") for one in page.reduced[key]]
    (inner,) = [one for one in page.tensors if one["name"] not in outer]
    assert inner["wrong"] and inner["wrong"]["inf"] == 4 and inner["good"]
    assert "from random inputs" not in page.labels


def test_a_run_without_an_answer_has_a_page(tmp_path: Path) -> None:
    model = small(tmp_path, bad="Abs")
    nothing = winnow("reduce", str(model), "checker=finite", "checker.flaky=never", folder=tmp_path / "nothing")
    page = page_in(nothing.folder)
    assert page.status == "nothing_to_find" and page.reduced is None and page.whole and page.trials


@pytest.mark.slow
def test_repeats_inspections_extracts_and_checks_that_fail_everything(tmp_path: Path) -> None:
    model = small(tmp_path)
    always = check_script(tmp_path, "sys.exit(1)")
    page = page_in(winnow("reduce", str(model), *by_command(always), folder=tmp_path / "blind").folder)
    assert page.status == "could_not_judge" and page.reduced is None and not page.tensors
    coin = check_script(
        tmp_path, f"n = {str(tmp_path / 'n')!r}\nopen(n, 'a').write('x')\nsys.exit(len(open(n).read()) % 2)"
    )
    argv = json.loads(by_command(coin)[1].partition("=")[2])
    flaky = ("repeat", str(model), "checker=command", f"checker.command={json.dumps(argv)}", "strategy.until=4")
    page = page_in(winnow(*flaky, folder=tmp_path / "repeat").folder)
    assert page.elements == "iterations" and [one["outcome"] for one in page.trials] == ["fail", "pass"] * 2
    assert page.labels == ["flaky check"]
    page = page_in(winnow("inspect", str(model), folder=tmp_path / "inspect").folder)
    assert page.whole and page.labels == [] and any(one.title == "The file" for one in page.sections)
    words = ("extract", str(model), "strategy.nodes=[bad]", "checker=finite")
    page = page_in(winnow(*words, folder=tmp_path / "extract").folder)
    assert page.reduced and page.reduced["names"] == ["bad"] and page.commands


@pytest.mark.slow
def test_a_precision_search_has_a_curve_and_layers(tmp_path: Path) -> None:
    nodes = "{ [up] a = Mul(x, big) [down] b = Div(a, big) [last] y = Tanh(b) }"
    path = net(tmp_path, f"(float[4] x) => (float[4] y) <float big = {{60000}}> {nodes}")
    words = ("precision", str(path), "inputs.ranges={x: [2, 3]}")
    page = page_in(winnow(*words, folder=tmp_path / "run").folder)
    assert [page.whole["names"][one] for one in page.whole["culprits"]] == ["up", "down"]  # type: ignore[index]
    assert [one["raised"] for one in page.curve if one["chosen"]] == [2] and page.elements == "candidate nodes"
    assert {one["node"]: one["error"] for one in page.layers}["up"] == "inf" and page.reduced is None
    assert {one["node"]: one["tensor"] for one in page.layers}["up"] == "a"
    assert "low precision emulated" in page.labels
    made = next(one for one in page.tensors if one["name"] == "a")
    assert made["where"] == "the whole model" and made["good"] and float(made["good"]["high"]) > 65504
    named = next(one for one in page.sections if one.title == "The candidate nodes by number")
    assert ("0", "up") in rows_of(named)


@pytest.mark.slow
def test_a_triage_links_its_steps_and_shows_the_answer(tmp_path: Path) -> None:
    run = winnow("triage", *OVERFLOW[1:3], "strategy.steps=[layerwise,reduce]", folder=tmp_path / "run")
    page = page_in(run.folder)
    steps = {one["number"].partition("-")[2]: one for one in page.jobs}
    assert {"layerwise", "reduce"} <= {*steps} and all((run.folder / one["page"]).is_file() for one in page.jobs)
    assert page.reduced and page.reduced["names"] == [CULPRIT] and page.layers
    output = next(one for one in page.tensors if one["name"] == f"{CULPRIT}_output_0")
    assert output["good"] and output["wrong"]
    assert page.whole and page.whole["types"].count("") < 100
    for one in steps.values():
        page_in(run.folder / one["number"])


@pytest.mark.slow
def test_all_answers_are_linked_and_lit_in_the_original(tmp_path: Path) -> None:
    model = small(tmp_path, bad="Abs")
    check = check_script(tmp_path, "print('seen')\nsys.exit(1 if {'bad', 'after'} & nodes else 0)")
    run = winnow("reduce", str(model), *by_command(check), "strategy.find=all", folder=tmp_path / "run")
    page = page_in(run.folder)
    assert page.whole and page.whole["culprits"] == [1, 2] and len(page.jobs) == 2, run.output
    assert page.jobs[1]["page"] == "answers/2/report.html"
    shown = page_text(page)
    assert '<h2 id="jobs-title">Answers</h2>' in shown and not any(one["asked"] == 0 for one in page.jobs)
    assert all(one["trust"] and one["overrides"] == [] for one in page.jobs)
    further = [one for one in page.trials if one["label"].startswith("keep")]
    assert further and all(one["kept"] for one in further), "a search for another answer is about the same nodes"
    other = page_in(run.folder / "answers" / "2")
    assert any(one["log"] for one in other.trials) == any(one["log"] for one in page.trials)
    assert other.reduced and page.reduced and other.reduced["names"] != page.reduced["names"]


@pytest.mark.slow
def test_a_flaky_check_and_one_that_somebody_stops_are_labelled(tmp_path: Path) -> None:
    model = small(tmp_path, bad="Abs")
    body = f"n = {str(tmp_path / 'n')!r}\nopen(n, 'a').write('x')\nturn = len(open(n).read()) % 4"
    coin = check_script(tmp_path, f"{body}\nsys.exit(1 if 'bad' in nodes and turn else 0)")
    page = page_in(winnow("reduce", str(model), *by_command(coin)[:2], folder=tmp_path / "flaky").folder)
    assert "flaky check" in page.labels
    ready = tmp_path / "ready"
    body = f"import time\nif nodes == {{'bad'}}:\n    open({str(ready)!r}, 'w').close()\n    time.sleep(60)"
    slow = check_script(tmp_path, f"{body}\nsys.exit(1 if 'bad' in nodes else 0)", "slow.py")
    words = ("reduce", str(model), *by_command(slow))
    assert interrupted(*words, folder=tmp_path / "stopped", ready=ready, number=signal.SIGINT, pause=0.3) == 130
    page = page_in(tmp_path / "stopped")
    assert page.labels == ["interrupted"] and page.trials
    onward = dict(page.commands)["Go on where it stopped"]
    assert onward == "python -m runner resume stopped"


@pytest.mark.slow
def test_a_node_inside_another_is_the_answer_and_is_told_where_it_lies(tmp_path: Path) -> None:
    text = """(float[3] x) => (float[3] y) <bool c = {1}> {
        [A] a = Abs(x)
        [IF] y = If(c) <
            then_branch = then () => (float[3] u) { [R] t = Relu(a) [T] u = Tanh(t) },
            else_branch = else () => (float[3] v) { [N] v = Neg(a) }
        >
    }"""
    path = net(tmp_path, text)
    check = check_script(tmp_path, "sys.exit(1 if b'Tanh' in bytes(whole) else 0)")
    run = winnow("reduce", str(path), *by_command(check), folder=tmp_path / "run")
    page = page_in(run.folder)
    assert page.whole and [page.whole["names"][one] for one in page.whole["culprits"]] == ["T"], run.output
    assert page.reduced and page.reduced["culprits"]
    assert [one["path"] for one in page.whole["bodies"]] == ["IF.then_branch", "IF.else_branch"]
    assert any(one["label"].startswith("IF.then_branch: keep") for one in page.trials)
    inside = [one for one in page.trials if not one["kept"] and one["size"]]
    assert inside, "what is asked inside a node is not of the original's nodes"
