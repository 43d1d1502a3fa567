"""All disjoint culprits: none is missed silently, and what breaks the search off is said."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from runner.engine.repeated_checks import Reliability
from runner.judgment import CannotJudge
from runner.schema.checker import Flaky
from strategies.search import Outcome, Trial
from tests.engine.test_repeated_checks import flaky
from tests.engine.test_session import FAIL, PASS, Hands, session
from tests.harness import by_command, check_script, goes_on, interrupted, winnow
from tests.jobs.reduce.test_hard_failures import QUICK, X, plain, saved
from tests.model.models import model_of

ALL = "strategy.find=all"


@pytest.mark.slow
def test_what_only_gets_nan_from_an_answer_hides_no_other_one(tmp_path: Path) -> None:
    """Log and Sqrt of negative numbers, in branches that have consumers."""
    made = [("Abs", "x", "p"), ("Neg", "p", "m"), ("Log", "m", "a"), ("Tanh", "a", "y1"), ("Sqrt", "m", "b"),
            ("Sigmoid", "b", "y2"), ("Relu", "p", "y3")]  # fmt: skip
    nodes = [helper.make_node(op, [read], [gives], name=op) for op, read, gives in made]
    given = saved(model_of(nodes, ["x"], ["y1", "y2", "y3"]), tmp_path, x=X)
    run = winnow(*given, "checker=finite", "checker.flaky=never", ALL, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert [answer["culprits"] for answer in run.result["answers"]] == [["Log"], ["Sqrt"]], run.output
    second = run.folder / "answers" / "2"
    looked = [json.loads((folder / "result.json").read_text())["first_look"] for folder in (run.folder, second)]
    assert looked[0] and not looked[1], "the first look was of the whole model"
    assert ["where the search began" in (folder / "REPORT.md").read_text() for folder in (run.folder, second)] == [
        True,
        False,
    ]
    assert (
        "the rest of the model passes, except for nodes that only get NaN or Inf and were not judged: Tanh, Sigmoid"
        in run.result["message"]
    )
    journals = "".join(path.read_text() for path in run.folder.glob("journal*.jsonl"))  # the file has its own
    assert counted(run.result) == journals.count('"verdict"'), "a set of which no candidate can be made costs no check"


@pytest.mark.slow
def test_verdicts_on_one_failure_say_nothing_about_another_one(tmp_path: Path) -> None:
    """An overflow is studied first: what only loses digits passes then, and is the second answer all the same."""
    half = onnx.TensorProto.FLOAT16
    big = [numpy_helper.from_array(np.array(v, np.float16), n) for n, v in (("far", 60000), ("wide", 2048))]
    nodes = [
        helper.make_node("Add", ["x", "wide"], ["up"], name="up"),
        helper.make_node("Sub", ["up", "wide"], ["y2"], name="down"),
        helper.make_node("Mul", ["x", "far"], ["over"], name="over"),
        helper.make_node("Div", ["over", "far"], ["y1"], name="back"),
    ]
    ends = [[helper.make_tensor_value_info(n, half, [4]) for n in names] for names in (["x"], ["y1", "y2"])]
    graph = helper.make_graph(nodes, "halves", *ends, big)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = saved(model, tmp_path, x=np.array([1.3, 1.7, 1.9, 2.1], np.float16))
    run = winnow(*given, "target=onnx_reference", QUICK, ALL, folder=tmp_path / "run")
    assert run.code == 0, run.output
    found = [(answer["culprits"], answer["signature"]["kind"]) for answer in run.result["answers"]]
    assert found == [(["over"], "inf"), (["up", "down"], "mismatch")], run.output


def test_a_good_value_beyond_the_type_hides_no_other_overflow(tmp_path: Path) -> None:
    """The square's good value cannot be fed to what reads it: the search for the other square ended there."""
    for name, dtype in (("half", np.float16), ("full", np.float32)):
        gains = [numpy_helper.from_array(np.array(v, dtype), n) for n, v in (("far", 300), ("farther", 400))]
        nodes = [
            helper.make_node(op, [read, other], [gives], name=gives)
            for op, read, other, gives in (
                *(("Mul", "x", "far", "a"), ("Mul", "a", "a", "aa"), ("Div", "aa", "far", "y1")),
                *(("Mul", "x", "farther", "b"), ("Mul", "b", "b", "bb"), ("Div", "bb", "farther", "y2")),
            )
        ]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        ends = [[helper.make_tensor_value_info(n, kind, [4]) for n in names] for names in (["x"], ["y1", "y2"])]
        graph = helper.make_graph(nodes, name, *ends, gains)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / name)
    given = (f"model={tmp_path / 'half'}", f"reference.model={tmp_path / 'full'}", "target=onnx_reference", ALL, QUICK)
    run = winnow(*given, "inputs.ranges={x: [1, 2]}", folder=tmp_path / "run")
    assert (run.code, [one["culprits"] for one in run.result["answers"]]) == (0, [["bb"], ["aa"]]), run.output


def counted(result) -> int:
    return sum(result["checks"][purpose] for purpose in ("search", "trust", "refine", "cause"))


def test_one_answer_and_the_rest_passes(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'Cos_4' in nodes else 0)"))
    run = winnow(*plain(tmp_path), *check, "strategy.trim=false", ALL, folder=tmp_path / "run")
    assert (run.result["culprits"], run.result["answers"]) == (["Cos_4"], []), run.output
    assert "the rest of the model passes" in run.result["message"]
    lines = [json.loads(line) for path in run.folder.glob("journal*") for line in path.read_text().splitlines()]
    assert counted(run.result) == sum("key" in line for line in lines)


def test_a_rest_that_cannot_be_judged_is_no_rest_that_passes(tmp_path: Path) -> None:
    body = "sys.exit(1 if 'Cos_4' in nodes else 125 if 'Abs_1' in nodes and 'Exp_7' in nodes else 0)"
    check = (*by_command(check_script(tmp_path, body)), "checker.invalid_codes=[125]")
    run = winnow(*plain(tmp_path), *check, ALL, folder=tmp_path / "run")
    assert (run.code, run.result["status"], run.result["culprits"]) == (3, "could_not_judge", ["Cos_4"]), run.output
    assert "the search for more was stopped" in run.result["message"]
    assert (run.folder / "reduced.onnx").exists()


def test_a_budget_that_ends_the_search_for_more_is_said(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, "sys.exit(1 if {'Cos_4', 'Abs_1'} & nodes else 0)"))
    run = winnow(*plain(tmp_path), *check, ALL, "budget.checks=2", folder=tmp_path / "run")
    assert "the budget was reached before the search ended" in run.output
    assert "what else fails was not looked for" in run.output
    assert (run.code, run.result["answers"]) == (0, []) and not (run.folder / "answers").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_of_the_search_for_more(tmp_path: Path, number: signal.Signals, code: int) -> None:
    hanging, hang = tmp_path / "hanging", tmp_path / "hang"
    hang.touch()
    body = (
        "import os, time\n"
        f"if 'Cos_4' not in nodes and 'Abs_1' in nodes and 'Exp_7' in nodes and os.path.exists({str(hang)!r}):\n"
        f"    open({str(hanging)!r}, 'w').close()\n"
        "    time.sleep(600)\n"
        "sys.exit(1 if {'Cos_4', 'Abs_1'} & nodes else 0)"
    )
    given, folder = (*plain(tmp_path), *by_command(check_script(tmp_path, body)), ALL), tmp_path / "run"
    assert interrupted(*given, folder=folder, ready=hanging, number=number) == code
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["exit_code"], result["culprits"]) == ("interrupted", code, ["Cos_4"])
    assert result["answers"] == []
    assert goes_on(folder)
    hang.unlink()
    run = winnow(*given, f"resume={folder}", folder=folder)
    assert run.code == 0, run.output
    assert [answer["culprits"] for answer in run.result["answers"]] == [["Cos_4"], ["Abs_1"]]


@pytest.mark.variants
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("first", "second"), [(0.5, 0.5), (0.95, 0.3)])
def test_the_second_bug_of_a_flaky_check_is_not_missed(tmp_path, seed, first, second):
    one, other = flaky(first, 0.0, 7, seed=seed), flaky(second, 0.0, 20, seed=seed + 50)
    both = session(
        tmp_path,
        lambda candidate: FAIL if FAIL in (one(candidate), other(candidate)) else PASS,
        reliability=Reliability(Flaky.always, 0.01),
    )
    assert both.preflight() is None
    found = both.reduce().trial
    assert found in (Trial.of([7]), Trial.of([20]))
    ending = both.beyond(found.elements, Hands(tmp_path))
    assert ending is not None
    assert ending.trial == Trial.of({7, 20} - found.elements)
    assert both.beyond(frozenset([7, 20]), Hands(tmp_path)) is None


def test_a_rest_that_fails_no_more_often_than_nothing_at_all_passes(tmp_path):
    one = session(tmp_path, flaky(0.9, 0.2, 7, seed=3), reliability=Reliability(Flaky.always, 0.01))
    assert one.preflight() is None
    assert one.reduce().trial == Trial.of([7])
    assert one.beyond(frozenset([7]), Hands(tmp_path)) is None


def test_a_rest_that_is_no_question(tmp_path):
    unknown = PASS.__class__(Outcome.UNRESOLVED, reason="who knows")
    rule = lambda candidate: FAIL if 7 in candidate.trial else unknown if len(candidate.trial) > 20 else PASS  # noqa: E731
    one = session(tmp_path, rule)
    assert one.preflight() is None
    assert one.reduce().trial == Trial.of([7])
    with pytest.raises(CannotJudge, match=r"without 1 of its nodes.*who knows"):
        one.beyond(frozenset([7]), Hands(tmp_path))


def test_what_was_found_before_is_not_taken_away(tmp_path: Path) -> None:
    """The check turns out to be flaky while the second answer is sought: the first one's files stay."""
    draw, lock = np.random.default_rng(2), threading.Lock()

    def rule(candidate):
        with lock:
            drawn = draw.random()
        if 7 in candidate.trial:
            return FAIL
        return FAIL if 20 in candidate.trial and drawn < 0.6 else PASS

    one = session(tmp_path, rule, reliability=Reliability(Flaky.auto, 0.01))
    assert one.preflight() is None
    first = one.reduce().trial
    (tmp_path / "second").mkdir()
    ending = one.beyond(first.elements, Hands(tmp_path / "second"))
    assert (first, ending and ending.trial) == (Trial.of([7]), Trial.of([20]))
    assert (tmp_path / "reduced").read_text() == first.ranges
    assert (tmp_path / "second" / "reduced").read_text() == Trial.of([20]).ranges
