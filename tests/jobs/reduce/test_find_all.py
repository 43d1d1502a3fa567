"""All disjoint culprits: none is missed silently, and what breaks the search off is said; the searches by name."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from runner.engine.session import Session
from runner.exit_codes import CannotJudge
from runner.jobs.reduce.run import searching
from runner.schema.checker import Flaky
from runner.schema.strategy import FirstEnd, ReduceSettings
from strategies.registry import for_tasks
from strategies.search import Outcome, Trial
from tests.engine.test_repeated_checks import flaky
from tests.engine.test_session import FAIL, PASS, Hands, needs, session
from tests.harness import by_command, check_script, goes_on, interrupted, winnow
from tests.jobs.models import parsed
from tests.jobs.reduce.test_hard_failures import QUICK, X, plain, saved

ALL = "strategy.find=all"


@pytest.mark.slow
def test_what_only_gets_nan_from_an_answer_hides_no_other_one(tmp_path: Path) -> None:
    """Log and Sqrt of negative numbers, in branches that have consumers."""
    text = """g (float[2,3] x) => (float[2,3] y1, float[2,3] y2, float[2,3] y3) {
        [Abs] p = Abs(x) [Neg] m = Neg(p) [Log] a = Log(m) [Tanh] y1 = Tanh(a) [Sqrt] b = Sqrt(m)
        [Sigmoid] y2 = Sigmoid(b) [Relu] y3 = Relu(p) }"""
    given = saved(parsed(text), tmp_path, x=X)
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
    text = """g (float16[4] x) => (float16[4] y1, float16[4] y2) {
        [up] up = Add(x, wide) [down] y2 = Sub(up, wide) [over] over = Mul(x, far) [back] y1 = Div(over, far) }"""
    model = parsed(text, far=np.float16(60000), wide=np.float16(2048))
    given = saved(model, tmp_path, x=np.array([1.3, 1.7, 1.9, 2.1], np.float16))
    run = winnow(*given, "target=onnx_reference", QUICK, ALL, folder=tmp_path / "run")
    assert run.code == 0, run.output
    found = [(answer["culprits"], answer["signature"]["kind"]) for answer in run.result["answers"]]
    assert found == [(["over"], "inf"), (["up", "down"], "mismatch")], run.output


def test_a_good_value_beyond_the_type_hides_no_other_overflow(tmp_path: Path) -> None:
    """The square's good value cannot be fed to what reads it: the search for the other square ended there."""
    for name, kind, dtype in (("half", "float16", np.float16), ("full", "float", np.float32)):
        text = f"""g ({kind}[4] x) => ({kind}[4] y1, {kind}[4] y2) {{
            [a] a = Mul(x, far) [aa] aa = Mul(a, a) [y1] y1 = Div(aa, far)
            [b] b = Mul(x, farther) [bb] bb = Mul(b, b) [y2] y2 = Div(bb, farther) }}"""
        onnx.save(parsed(text, far=dtype(300), farther=dtype(400)), tmp_path / name)
    given = (f"model={tmp_path / 'half'}", f"reference.model={tmp_path / 'full'}", "target=onnx_reference", ALL, QUICK)
    run = winnow(*given, "inputs.ranges={x: [1, 2]}", folder=tmp_path / "run")
    assert (run.code, [one["culprits"] for one in run.result["answers"]]) == (0, [["bb"], ["aa"]]), run.output


def counted(result) -> int:
    return sum(result["checks"][purpose] for purpose in ("search", "trust", "refine", "cause"))


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
        mode=Flaky.always,
    )
    assert both.preflight() is None
    found = both.reduce().trial
    assert found in (Trial.of([7]), Trial.of([20]))
    ending = both.beyond(found.elements, Hands(tmp_path))
    assert ending is not None
    assert ending.trial == Trial.of({7, 20} - found.elements)
    assert both.beyond(frozenset([7, 20]), Hands(tmp_path)) is None


def test_a_rest_that_fails_no_more_often_than_nothing_at_all_passes(tmp_path):
    one = session(tmp_path, flaky(0.9, 0.2, 7, seed=3), mode=Flaky.always)
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

    one = session(tmp_path, rule, mode=Flaky.auto)
    assert one.preflight() is None
    first = one.reduce().trial
    (tmp_path / "second").mkdir()
    ending = one.beyond(first.elements, Hands(tmp_path / "second"))
    assert (first, ending and ending.trial) == (Trial.of([7]), Trial.of([20]))
    assert (tmp_path / "reduced").read_text() == first.ranges
    assert (tmp_path / "second" / "reduced").read_text() == Trial.of([20]).ranges


@pytest.mark.parametrize("kind", for_tasks(ReduceSettings.tasks))
def test_each_search_finds_the_smallest_set(tmp_path: Path, kind: str) -> None:
    judge = session(tmp_path, needs(7, 9)).judge
    unknown = SimpleNamespace(recorded=SimpleNamespace(values=()))
    search = searching(ReduceSettings(search=kind), FirstEnd.end, unknown, judge)
    one = Session(judge, search, find_min_good=False, hand_over=None)
    assert one.preflight() is None
    assert one.search().trial in (Trial.of([7, 9]), Trial.of([7, 8, 9]))
