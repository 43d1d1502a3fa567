"""Kept results, moved and committed, against what runs them now: run as a user does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model

from runner.exit_codes import UsageError
from runner.sweeps.recheck import expected, folders
from tests.chain_models import chain
from tests.harness import ROOT, Run, by_command, check_script, winnow

MODEL = f"model={ROOT / 'examples' / 'overflow.onnx'}"
NODE = "n3"
HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reduction by a command that knows the node, in a folder that was moved away from where it was made."""
    folder = tmp_path_factory.mktemp("made")
    check = check_script(folder, f"sys.exit(1 if {NODE!r} in nodes else 0)")
    model = f"model={chain(folder / 'net.onnx', 6)}"
    run = winnow(model, *by_command(check), f"cwd={folder}", "strategy.find=one", folder=folder / "run")
    assert run.code == 0, run.output
    moved = tmp_path_factory.mktemp("committed") / "7"
    shutil.copytree(run.folder, moved)
    shutil.copy(check, moved)
    shutil.rmtree(folder)
    for own in (*moved.glob("journal*"), moved / "checks", moved / "artifacts"):
        shutil.rmtree(own) if own.is_dir() else own.unlink()
    return moved


def recheck(folder: Path, *words: str) -> Run:
    return winnow("strategy=recheck", *words, folder=folder)


def outcomes(run: Run) -> list[tuple[str, str]]:
    return [(row["expect"], row["outcome"]) for row in run.result["rechecked"]]


def test_what_is_still_broken_is_as_expected_wherever_it_lies(tmp_path: Path, kept: Path) -> None:
    run = recheck(tmp_path / "run", f"strategy.results=[{kept.parent}/*/replay.yaml]")
    assert run.code == 0 and outcomes(run) == [("still broken", "still broken")], run.output
    assert (run.folder / run.result["rechecked"][0]["folder"]).resolve() == kept
    assert (run.folder / "REPORT.md").read_text().startswith("# recheck: found\n")
    again = recheck(tmp_path / "run", f"strategy.results=[{kept}]", f"resume={tmp_path / 'run'}")
    assert [one.name for one in folders([str(kept), str(run.folder)])] == ["7"], "what was said of it is no failure"
    assert again.code == 0 and again.result["checks"]["trust"] == 0 and again.result["checks"]["reused"] == 1


@pytest.mark.slow
def test_a_part_of_a_converted_model_is_judged_by_the_values_that_were_kept(tmp_path: Path) -> None:
    """Its inputs are none of the original's."""
    for name, factor in (("original", 2.0), ("converted", 3.0)):
        text = f"(float[4] x) => (float[4] y) <float w = {{{factor}}}>"
        nodes = "{ [abs] a = Abs (x) [scale] m = Mul (a, w) [neg] y = Neg (m) }"
        onnx.save(parse_model(f"{HEAD} {text} {nodes}"), tmp_path / f"{name}.onnx")
    given = (f"model={tmp_path / 'converted.onnx'}", f"reference.model={tmp_path / 'original.onnx'}")
    assert winnow(*given, folder=tmp_path / "7").result["culprits"] == ["scale"]
    run = recheck(tmp_path / "run", f"strategy.results=[{tmp_path / '7'}]")
    assert run.code == 0 and outcomes(run) == [("still broken", "still broken")], run.output


@pytest.mark.slow
@pytest.mark.parametrize(("code", "outcome"), [(0, "fixed"), (2, "broken otherwise")])
def test_what_is_not_as_expected_is_told_and_what_is_expected_can_be_said(
    tmp_path: Path, kept: Path, code: int, outcome: str
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(kept, mine)
    check_script(mine, f"sys.exit({code} if {NODE!r} in nodes else 0)")
    run = recheck(tmp_path / "run", f"strategy.results=[{mine}]")
    assert run.code == 7 and outcomes(run) == [("still broken", outcome)], run.output
    (mine / "expect").write_text(f"{outcome}\n")
    run = recheck(tmp_path / "told", f"strategy.results=[{mine}]")
    assert run.code == 0 and outcomes(run) == [(outcome, outcome)], run.output


def test_what_cannot_be_judged_is_told_apart_and_counts_less_than_a_surprise(tmp_path: Path, kept: Path) -> None:
    lost, fixed = tmp_path / "lost", tmp_path / "fixed"
    for folder in (lost, fixed):
        shutil.copytree(kept, folder)
    (lost / "check.py").unlink()
    (fixed / "expect").write_text("fixed")
    run = recheck(tmp_path / "run", f"strategy.results=[{lost}, {fixed}]")
    assert run.code == 7 and outcomes(run) == [("still broken", "not judged"), ("fixed", "still broken")], run.output
    assert f"Put it beside {lost / 'replay.yaml'}" in run.result["rechecked"][0]["said"]


def test_a_stranger_s_folder_names_nothing_outside_it(tmp_path: Path, kept: Path) -> None:
    for number, name in enumerate(("../../secret.onnx", "/etc/passwd", "link.onnx")):
        folder = tmp_path / str(number)
        shutil.copytree(kept, folder)
        (folder / "link.onnx").symlink_to(kept / "reduced.onnx")
        told = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps({**told, "model": name}))
    shutil.copytree(kept, tmp_path / "3")
    with (tmp_path / "3" / "replay.yaml").open("a") as file:
        file.write("hydra: {callbacks: {evil: {_target_: os.system}}}\n")
    for number, name, key in ((4, "result.json", '"model": "'), (5, "replay.yaml", "cwd: /")):
        shutil.copytree(kept, tmp_path / str(number))
        file = tmp_path / str(number) / name
        file.write_text(file.read_text().replace(key, key + 5000 * "a"))
    run = recheck(tmp_path / "run", f"strategy.results=['{tmp_path}/[0-5]']")
    assert run.code == 3 and {row["outcome"] for row in run.result["rechecked"]} == {"not judged"}, run.output
    said = [row["said"] for row in run.result["rechecked"]]
    assert all("no file in its folder" in one for one in said[:3]) and "a file may not set this" in said[3], said
    assert all("File name too long" in one for one in said[4:]), said


def test_wrong_names_and_words_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kept result is there"):
        folders([str(tmp_path / "gone")])
    (tmp_path / "expect").write_text("brocken")
    with pytest.raises(UsageError, match="write one of these: still broken, fixed, broken otherwise"):
        expected(tmp_path)


def relu_kept(kept: Path, replay: str = "checker: compare\n") -> Path:
    """A kept result by hand: an output that is zero where it is right."""
    (kept / "test_data_set_0").mkdir(parents=True)
    onnx.save(parse_model(f"{HEAD} (float[2] x) => (float[2] y) {{ y = Relu (x) }}"), str(kept / "reduced.onnx"))
    for name, value in (("input_0", -1.0), ("output_0", 0.0)):
        tensor = helper.make_tensor("x" if value else "y", TensorProto.FLOAT, [2], [value] * 2)
        (kept / "test_data_set_0" / f"{name}.pb").write_bytes(tensor.SerializeToString())
    (kept / "replay.yaml").write_text(replay)
    signature = {"stage": "compare", "kind": "mismatch", "detail": ""}
    (kept / "result.json").write_text(json.dumps({"signature": signature, "model": "reduced.onnx"}))
    return kept


def test_where_values_are_gone_nothing_is_judged(tmp_path: Path) -> None:
    found = {"none": relu_kept(tmp_path / "0"), "fewer": relu_kept(tmp_path / "1")}
    shutil.rmtree(found["none"] / "test_data_set_0")
    with (found["fewer"] / "replay.yaml").open("a") as file:
        file.write("recorded: {data_sets: 3}\n")
    for one in found.values():
        (one / "expect").write_text("fixed")
    run = recheck(tmp_path / "run", f"strategy.results=[{','.join(map(str, found.values()))}]", "verbosity=warning")
    assert run.code == 3 and {one for _, one in outcomes(run)} == {"not judged"}, run.output
    assert [row["said"] for row in run.result["rechecked"]] == [
        "of its 1 set of values (test_data_set_*) only 0 are there",
        "of its 3 sets of values (test_data_set_*) only 1 are there",
    ]
    assert run.output.count("not judged (expected: fixed); of its 1 set") == 1, "what is not as expected is always told"


@pytest.mark.slow
def test_what_is_not_read_is_refused_and_what_was_typed_is_replayed(tmp_path: Path) -> None:
    kept = relu_kept(tmp_path / "kept")
    mine = tmp_path / "mine.yaml"
    for text, group in (
        ("target: {threads: 2}", "target"),
        ("checker: finite", "checker"),
        ("cut: {record: all}", "cut"),
    ):
        mine.write_text(f"strategy: {{name: recheck, results: [{kept}]}}\n{text}\n")
        run = winnow(str(mine), folder=tmp_path / "file")
        assert run.code == 2 and f"{group}: is not read here" in run.output, run.output
    for word in ("inputs.seed=2", f"model={kept}/reduced.onnx", "cut.record=all"):
        run = recheck(tmp_path / "word", f"strategy.results=[{kept}]", word)
        assert run.code == 2 and f"{word} is not read here" in run.output, run.output
    run = recheck(tmp_path / "typed", f"strategy.results=[{kept}]", "target.python=/gone/python")
    assert run.code == 3 and "/gone/python" in run.result["rechecked"][0]["said"], run.output
    again = winnow(str(run.folder / "replay.yaml"), folder=tmp_path / "again")
    assert again.result["rechecked"][0]["said"] == run.result["rechecked"][0]["said"], again.output


@pytest.mark.slow
def test_no_run_is_written_over_a_result_that_it_is_about(tmp_path: Path) -> None:
    kept = relu_kept(tmp_path / "kept")
    wrote = ["reduced.onnx", "replay.yaml", "result.json", "test_data_set_0"]
    (kept / ".winnow.json").write_text(json.dumps({"winnow": 1, "running": False, "wrote": wrote}))
    for strategy in ("recheck", "bugs"):
        for folder in (kept, kept / "again"):
            run = winnow(f"strategy={strategy}", f"strategy.results=[{kept}]", folder=folder)
            assert run.code == 2 and "this run would write over it" in run.output, run.output
    assert "signature" in json.loads((kept / "result.json").read_text()) and not (kept / "REPORT.md").exists()


@pytest.mark.slow
def test_budgets_and_plans_hold(tmp_path: Path, kept: Path) -> None:
    run = recheck(tmp_path / "run", f"strategy.results=[{kept}]", "budget.checks=0")
    assert run.code == 3 and "budget" in run.result["rechecked"][0]["said"], run.output
    assert "resume run budget.checks=null budget.seconds=null" in run.screen[-2], run.output
    run = recheck(tmp_path / "plan", f"strategy.results=[{kept}]", "plan=true")
    assert run.code == 0 and run.result["checks"]["trust"] == 0 and run.result["status"] == "planned", run.output


@pytest.mark.slow
def test_a_failure_that_the_reference_shares_is_judged_as_it_was_kept(tmp_path: Path) -> None:
    run = winnow(f"{ROOT / 'examples' / 'overflow.yaml'}", MODEL, folder=tmp_path / "kept")
    assert run.code == 0, run.output
    again = recheck(tmp_path / "run", f"strategy.results=[{run.folder}]")
    assert again.code == 0 and outcomes(again) == [("still broken", "still broken")], again.output


@pytest.mark.slow
def test_an_output_that_is_zero_where_it_is_right_shows_that_it_is_fixed(tmp_path: Path) -> None:
    kept = relu_kept(tmp_path / "kept")
    run = recheck(tmp_path / "run", f"strategy.results=[{kept}]")
    assert run.code == 7 and outcomes(run) == [("still broken", "fixed")], run.output
    page = (run.folder / "REPORT.md").read_text()
    assert page.startswith("# recheck: not as expected") and "no claim" not in page and "to search" not in page


@pytest.mark.slow
def test_a_flaky_failure_that_is_seen_once_is_still_there(tmp_path: Path, kept: Path) -> None:
    mine, counter = tmp_path / "mine", tmp_path / "counter"
    shutil.copytree(kept, mine)
    told = json.loads((mine / "result.json").read_text())
    (mine / "result.json").write_text(json.dumps({**told, "reliability": {"repeats": {"most": 5}}}))
    counts = f"open({str(counter)!r}, 'a').write('.')\nsys.exit(1 if len(open({str(counter)!r}).read()) == 3 else 0)"
    check_script(mine, counts)
    run = recheck(tmp_path / "run", f"strategy.results=[{mine}]")
    assert run.code == 0 and run.result["checks"]["trust"] == 3, run.output
    assert run.result["rechecked"][0]["said"].startswith("fail in 1 of 3 checks")
    again = recheck(tmp_path / "again", f"strategy.results=[{mine}]")
    assert again.code == 7 and again.result["rechecked"][0]["said"].startswith("pass in 5 of 5 checks"), again.output
