"""Checks that do not judge, scripts that go missing, and messages that change: what a run says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import parsed
from tests.jobs.reduce.test_hard_failures import X, plain, saved

ROOT = parsed("""g (float[2,3] x) => (float[2,3] t3) { [root] root = Sqrt(x) [Abs_0] t0 = Abs(root)
    [Neg_1] t1 = Neg(t0) [Cos_2] t2 = Cos(t1) [Sin_3] t3 = Sin(t2) }""")


@pytest.mark.slow
def test_why_verdicts_are_not_known_is_said_everywhere(tmp_path: Path) -> None:
    body = (
        "if 'Cos_4' in nodes and len(nodes) in (1, 10): sys.exit(1)\n"
        "if 'Cos_4' in nodes: raise IndexError('no such output')\n"
    )
    check = check_script(tmp_path, body)
    run = winnow(*plain(tmp_path), *by_command(check), folder=tmp_path / "run")
    assert run.code == 3, run.output  # what it cannot be judged without is no culprit
    line = check.read_text()[: check.read_text().index("raise IndexError")].count("\n") + 1
    reason = f"the check ended in an exception of its own: IndexError at check.py:{line}: no such output"
    assert "UNRESOLVED in" in run.log and f"({reason})" in run.log
    unknown = run.result["unresolved"]
    assert list(unknown) == [reason] and unknown[reason] == run.result["outcomes"]["unresolved"]
    report = (run.folder / "REPORT.md").read_text()
    assert "## What is not known" in report and "no such output" in report
    assert "no such output" in (run.folder / "journal.jsonl").read_text()
    last = run.screen[0]
    assert "checks of the search gave no answer" in last and "checker.same_failure=any" in last


@pytest.mark.slow
def test_a_candidate_that_cannot_be_made_is_in_the_journal_and_no_verdict(tmp_path: Path) -> None:
    body = "sys.exit(1 if 'Cos_4' in nodes else 0)"

    given = saved(ROOT, tmp_path, x=X - 2)
    check = by_command(check_script(tmp_path, body.replace("Cos_4", "Cos_2")), "{inputs}")
    run = winnow(*given, *check, folder=tmp_path / "run")
    assert run.code == 0, run.output
    lines = [json.loads(line) for line in (run.folder / "journal.jsonl").read_text().splitlines()]
    told = [line["invalid"] for line in lines if "invalid" in line]
    assert told and "is not finite" in told[0]
    assert sum(count for reason, count in run.result["unresolved"].items() if "is not finite" in reason) >= len(told)
    again = winnow(*given, *check, f"resume={run.folder}", folder=tmp_path / "run")
    assert again.result["culprits"] == run.result["culprits"] and again.result["checks"]["search"] == 0
    after = (run.folder / "journal.jsonl").read_text().splitlines()
    assert sum("invalid" in json.loads(line) for line in after) == len(told)


FEWER = "1 of 2 samples left out, whose values hold NaN or Inf"


def of_two_samples(tmp_path: Path, at: int, body: str) -> Run:
    """A model whose first node makes a NaN of the sample number ``at``."""
    given = saved(ROOT, tmp_path, x=X)
    (tmp_path / "two").mkdir()
    for number in range(2):
        np.savez(tmp_path / "two" / f"{number}.npz", x=X - 2 if number == at else X + 2)
    check = by_command(check_script(tmp_path, body), "{inputs}")
    return winnow(*given, f"inputs.path={tmp_path / 'two'}", *check, folder=tmp_path / "run")


@pytest.mark.variants
@pytest.mark.parametrize("at", [0, 1])
def test_a_part_is_judged_by_the_samples_whose_values_can_judge_it(tmp_path: Path, at: int) -> None:
    run = of_two_samples(tmp_path, at, "sys.exit(1 if 'Cos_2' in nodes else 0)")
    assert (run.code, run.result["culprits"]) == (0, ["Cos_2"]), run.output
    assert f"reduced, as handed over, {FEWER} (1 node): FAIL" in run.log
    assert [one.name for one in run.folder.glob("test_data_set_*")] == ["test_data_set_0"]
    assert f"the answer: {FEWER}" in run.result["warnings"]


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1])
def test_a_part_that_passes_by_some_of_the_samples_is_not_known_to_pass(tmp_path: Path, at: int) -> None:
    """It fails by the sample alone that cannot judge a part without the first node."""
    body = "import numpy\nwith numpy.load(sys.argv[2]) as given: bad = 'x' in given and (given['x'] < 0).any()\n"
    body += "sys.exit(1 if 'Cos_2' in nodes and bad else 0)"
    run = of_two_samples(tmp_path, at, body)
    assert f"(it passes, {FEWER})" in run.log and "root" in run.result["culprits"], run.output


@pytest.mark.slow
def test_a_check_that_reads_no_values_is_asked_about_every_candidate(tmp_path: Path) -> None:
    body = "sys.exit(1 if 'Cos_2' in nodes else 0)"
    given = saved(ROOT, tmp_path, x=X - 2)
    run = winnow(*given, *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["unresolved"]) == (0, ["Cos_2"], {}), run.output
    assert run.result["cause"]["status"] == "proven"


@pytest.mark.slow
def test_a_script_that_goes_missing_ends_the_run_and_resume_goes_on(tmp_path: Path) -> None:
    body = (
        "import os\n"
        "if os.path.exists('go') and any(nodes) and len(nodes) < 3: os.rename(sys.argv[0], 'moved.py')\n"
        "sys.exit(1 if 'Cos_4' in nodes else 0)"
    )
    check = check_script(tmp_path, body)
    given = (*plain(tmp_path), *by_command(check))
    (tmp_path / "go").touch()
    run = winnow(*given, folder=tmp_path / "run")
    assert (run.code, run.result["status"]) == (3, "could_not_judge"), run.output
    assert "is no longer there" in run.result["message"] and f"resume={run.folder}" in run.result["message"]
    (tmp_path / "go").unlink()
    (tmp_path / "moved.py").rename(check)
    paid = run.result["checks"]
    again = winnow(*given, f"resume={run.folder}", folder=tmp_path / "run")
    assert again.result["culprits"] == ["Cos_4"], again.output
    assert again.result["checks"]["reused"] >= paid["search"] > 0


@pytest.mark.slow
def test_strict_follows_a_message_that_names_what_is_left(tmp_path: Path) -> None:
    body = (
        "outputs = ' '.join(outputs)\n"
        "if 'Cos_4' in nodes: sys.exit(f'outputs {outputs} of {len(nodes)} nodes are wrong')\n"
    )
    given = (*plain(tmp_path), *by_command(check_script(tmp_path, body)), "checker.same_failure=strict")
    run = winnow(*given, folder=tmp_path / "run")
    assert run.result["culprits"] == ["Cos_4"], run.output
    assert "fails like the whole model" in run.result["message"]


def test_an_assertion_of_a_function(tmp_path: Path) -> None:
    check = tmp_path / "mine.py"
    check.write_text(
        "import onnx\n"
        "def check(model, inputs, expected):\n"
        "    nodes = {node.name for node in onnx.load(model).graph.node}\n"
        "    assert 'Cos_4' not in nodes, 'it is off'\n"
    )
    run = winnow(
        *plain(tmp_path), "checker=python", f"checker.file={check}", "checker.flaky=never", folder=tmp_path / "run"
    )
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["Cos_4"]
    assert run.result["signature"]["kind"] == "raised"
    assert run.result["signature"]["raised"] == "AssertionError at mine.py:4"
    assert "# AssertionError at mine.py" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_nodes_that_only_the_check_needs_are_no_answer(tmp_path: Path) -> None:
    """Once the first input is cut, the function dies of a key that it looks for by itself."""
    check = tmp_path / "mine.py"
    check.write_text(
        "import onnx\n"
        "def check(model, inputs, expected):\n"
        "    nodes = {node.name for node in onnx.load(model).graph.node}\n"
        "    assert inputs[0]['x'].size and 'Cos_4' not in nodes, 'it is off'\n"
    )
    given = (*plain(tmp_path), "checker=python", f"checker.file={check}", "checker.flaky=never")
    # the whole model's own input is what is kept
    run = winnow(*given, "strategy.reduce_inputs=true", folder=tmp_path / "run")
    assert run.code == 3, run.output
    assert "KeyError at mine.py:4: 'x'" in run.result["message"]
    assert "strategy.reduce_inputs=false" in run.result["message"]
    kept = winnow(*given, "strategy.reduce_inputs=false", folder=tmp_path / "kept")
    assert (kept.code, kept.result["culprits"][-1]) == (0, "Cos_4"), kept.output


def test_a_branch_that_no_sample_takes_is_named_where_all_passes(tmp_path: Path) -> None:
    branches = "then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] q) { q = Exp(x) }"
    text = f"g (float[2] x, bool flag) => (float[2] y) {{ [choice] z = If <{branches}> (flag) [y] y = Tanh(z) }}"
    onnx.save(parsed(text), str(tmp_path / "net.onnx"))
    for flag, taken in ((True, "else"), (False, "then")):
        np.savez(tmp_path / "x.npz", x=np.float32([1, 2]), flag=np.bool_(flag))
        given = ("reduce", str(tmp_path / "net.onnx"), "--inputs", str(tmp_path / "x.npz"), "checker.flaky=never")
        run = winnow(*given, folder=tmp_path / f"run{taken}")
        said = f"no sample takes choice.{taken}_branch, so nothing in it was judged"
        assert run.code == 4 and run.result["warnings"] == [said] and said in run.output, run.output
