"""Words of a check against experiments: which sets fail in the way of the whole model, whatever is said of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.checkers.failure_text import Measure
from runner.engine.session_question import AnswerExperiments, Cause
from runner.jobs.summary import described
from runner.judgment import CauseStatus, Experiment, Scale
from runner.report.diagnosis_sections import LEFT
from runner.report.result_parts import KnownFailure
from runner.schema.checker import Better
from runner.text import LARGEST
from runner.verdict import Signature
from strategies.search import Outcome, Trial
from tests.cli.test_next_command import following
from tests.harness import by_command, check_script, winnow, written
from tests.jobs.reduce.test_cause import pair
from tests.jobs.reduce.test_hard_failures import plain

HEAD = """
import sys
import numpy as np, onnxruntime
with np.load(sys.argv[2]) as inputs, np.load(sys.argv[3]) as good:
    feeds, good = dict(inputs), dict(good)
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs() if one.name in good]
made = session.run(names, {one.name: feeds[one.name] for one in session.get_inputs()})
"""
COUNTING = f"{HEAD}sys.exit(sum(not np.allclose(a, good[n], rtol=1e-2) for n, a in zip(names, made)))"
COUNTED = [
    ("Abs", "x", "a"),
    ("Mul", "a", "fault", 1.0),
    ("Neg", "fault", "one"),
    ("Sqrt", "fault", "root"),
    ("Tanh", "root", "two"),
]


@pytest.mark.slow
def test_a_code_that_counts_outputs_does_not_need_all_of_them(tmp_path: Path) -> None:
    given = pair(tmp_path, COUNTED, ["one", "two"], {"fault": 1.2})
    check = (*by_command(written(tmp_path, COUNTING), "{inputs}", "{references}"), "strategy.look_inside=false")
    run = winnow(*given, *check, folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["cause"]["status"]) == (0, ["fault"], "proven"), run.output
    assert "exit 2, now exit 1" in run.result["message"]
    assert not [said for said in run.result["warnings"] if "not followed" in said]
    again = winnow(*given, *check, f"resume={run.folder}", folder=tmp_path / "run")
    assert again.result["culprits"] == ["fault"] and again.result["checks"]["cause"] == 0


@pytest.mark.slow
def test_another_failure_of_a_part_is_not_the_models(tmp_path: Path) -> None:
    """Without Sin the check says 3 of what is no part of the failure: with good values before it the model passes."""
    body = "sys.exit(1 if {'Cos_4', 'Sin_5'} <= nodes else 3 if 'Sin_5' in nodes else 0)"
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert run.result["culprits"] == ["Cos_4", "Sin_5"], run.output
    assert any("not followed: check: exit 3" in said for said in run.result["warnings"])


def test_a_part_that_fails_in_other_words_and_is_the_cause_is_the_answer(tmp_path: Path) -> None:
    body = "sys.exit(2 if {'Cos_4', 'Sin_5'} <= nodes else 1 if 'Cos_4' in nodes else 0)"
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["cause"]["status"]) == (0, ["Cos_4"], "proven"), run.output
    assert run.result["message"].endswith("fails with another message than the whole model: exit 2, now exit 1")
    assert run.result["checks"]["cause"] == 2, run.result["checks"]
    assert "  fails    a check fails (exit 1)" in run.screen, "the code of the part, and not that of the whole"
    said = "another message than the whole model: exit 2, now exit 1"
    assert any(said in one for one in run.result["warnings"]) and said in (run.folder / "REPORT.md").read_text()
    assert any(line.startswith("  warning  ") and "another message than the whole" in line for line in run.screen)


OWN_INPUTS = """
import sys
import numpy as np, onnxruntime
import onnx
model = onnx.load(sys.argv[1])
for node in model.graph.node:
    node.op_type = "Softplus" if node.op_type == "Softsign" else node.op_type  # the runtime that is wrong
old = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
new = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = dict(np.load(sys.argv[2])) if len(sys.argv) > 2 else {}
rng = np.random.default_rng(0)
feeds = {one.name: READ for one in old.get_inputs()}
sys.exit(any(not np.allclose(a, b, rtol=1e-2) for a, b in zip(old.run(None, feeds), new.run(None, feeds))))
"""
FUNCTION = """
import numpy as np, onnx, onnxruntime as ort
def check(model, inputs, expected):
    wrong = onnx.load(model)
    for node in wrong.graph.node:
        node.op_type = "Softplus" if node.op_type == "Softsign" else node.op_type
    old, new = ort.InferenceSession(model), ort.InferenceSession(wrong.SerializeToString())
    feeds = {one.name: READ for one in old.get_inputs()}
    return all(np.allclose(a, b, rtol=1e-2) for a, b in zip(old.run(None, feeds), new.run(None, feeds)))
"""
RANDOM = "rng.standard_normal(one.shape).astype(np.float32)"
FED = [("Abs", "x", "a"), ("Softsign", "a", "fault"), ("Neg", "fault", "z")]


def own_inputs(folder: Path, read: str, *given: str) -> tuple[str, ...]:
    check = by_command(written(folder, OWN_INPUTS.replace("READ", read)), *given)
    return (*pair(folder, FED, ["z"], {})[:1], *check)


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("{inputs}",)])
def test_a_check_that_feeds_values_of_its_own_proves_nothing(tmp_path: Path, given: tuple[str, ...]) -> None:
    run = winnow(*own_inputs(tmp_path, RANDOM, *given), folder=tmp_path / "run")
    assert (run.code, run.result["cause"]["status"]) == (0, "untested"), run.output
    assert run.result["cause"]["reason"].startswith("your check does not read {inputs}")
    assert not any(one["is_cause"] for one in run.result["cause"]["answers"])
    assert "your check does not read {inputs}, so" in " ".join(" ".join(run.screen).split())


@pytest.mark.slow
@pytest.mark.parametrize("read", ["given[one.name]", f"given[one.name] if one.name in given else {RANDOM}"])
def test_a_check_that_reads_its_values_proves_the_cause(tmp_path: Path, read: str) -> None:
    run = winnow(*own_inputs(tmp_path, read, "{inputs}"), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["cause"]["status"]) == (0, ["fault"], "proven"), run.output


@pytest.mark.variants
@pytest.mark.parametrize(
    ("read", "status"), [("inputs[0][one.name]", "proven"), ("np.ones(one.shape, np.float32)", "untested")]
)
def test_a_function_that_makes_its_inputs(tmp_path: Path, read: str, status: str) -> None:
    (tmp_path / "mine.py").write_text(FUNCTION.replace("READ", read))
    given = (*pair(tmp_path, FED, ["z"], {})[:1], "checker=python", f"checker.file={tmp_path / 'mine.py'}")
    run = winnow(*given, "checker.flaky=never", folder=tmp_path / "run")
    assert run.result["cause"]["status"] == status, run.output


ACCURACY = f"""{HEAD}
close = min(float(np.isclose(a, good[n], rtol=1e-2).mean()) for n, a in zip(names, made)) if names else 1.0
print("accuracy", 100 * close)
sys.exit(close < 0.9)
"""
# the fault spoils all six elements, the last node the largest one only
SPOILS = [("Mul", "x", "fault", 1.0), ("Abs", "fault", "a"), ("Min", "a", "weak", 10.0), ("Neg", "weak", "z")]


@pytest.mark.slow
@pytest.mark.parametrize(("better", "said"), [("higher", "not proven"), ("lower", "untested")])
def test_an_accuracy_that_hardly_drops_is_no_cause(tmp_path: Path, better: str, said: str) -> None:
    given = pair(tmp_path, SPOILS, ["z"], {"fault": 0.98, "weak": 1.45})
    given += by_command(written(tmp_path, ACCURACY), "{inputs}", "{references}")
    given += ("checker.measure='accuracy ([0-9.]+)'", f"checker.measure_better={better}", "strategy.cause_checks=2")
    run = winnow(*given, "strategy.look_inside=false", folder=tmp_path / "run")
    cause = run.result["cause"]
    assert cause["whole"]["measure"] < 1, run.output
    assert run.result["culprits"] == ["weak"] and cause["answers"][0]["good_inputs"]["measure"] > 80, run.output
    assert cause["status"] == said, run.output
    if better == "lower":
        assert cause["reason"].endswith("; set checker.measure_better=higher")
        # the number says nothing of whose bug it is
        assert run.result["whose"] == "not known"
        again = following(run, tmp_path / "again")
        assert (again.code, again.result["cause"]["status"]) == (8, "not proven"), again.output


def test_a_number_that_is_the_same_where_it_passes_and_fails_tells_nothing() -> None:
    """With good outputs it passes: that the model still fails is not said then."""
    failed, passed = Experiment(Outcome.FAIL, 0.99), Experiment(Outcome.PASS, 0.99)
    tested = AnswerExperiments(Trial.of([1]), (), passed, failed, passed)
    assert "still fails" not in tested.doubt("ab")
    cause = Cause(CauseStatus.NOT_PROVEN, failed, (tested,)).checked(Scale())
    assert cause.status is CauseStatus.UNTESTED and cause.reason.endswith("so it tells nothing")


def test_a_failure_is_told_with_that_of_the_whole_model_where_it_is_another() -> None:
    nan, inf = Signature("infer", "nan"), Signature("infer", "inf")
    assert described(inf, nan) == KnownFailure("infer", "inf", whole="infer: nan")
    assert described(nan, nan) == described(nan) == KnownFailure("infer", "nan")


def test_of_several_accuracies_the_worst_counts_and_nan_is_the_worst() -> None:
    higher = Measure("accuracy (\\S+)", Better.higher)
    assert higher.of("accuracy 90\naccuracy 70\n") == 70 and higher.of("accuracy nan and accuracy 3") == -LARGEST
    lower = Measure("accuracy (\\S+)")
    assert lower.of("accuracy 90\naccuracy 70\n") == 90 and lower.of("accuracy nan") == LARGEST


def test_a_budget_that_ends_before_anything_was_shown_is_no_answer(tmp_path: Path) -> None:
    given = (*plain(tmp_path), *by_command(check_script(tmp_path, "sys.exit('Cos_4' in nodes)")))
    run = winnow(*given, "budget.checks=0", folder=tmp_path / "run")
    assert (run.code, run.result["status"]) == (3, "could_not_judge"), run.output
    assert "budget.checks" in run.result["message"] and not run.result["culprits"]


# the fault is 50 % off at the output; the noise below it, 1.3 %, fails alone and passes nothing on
NOISY = [
    ("Mul", "x", "fault", 1.0), ("Abs", "fault", "a"), ("Sqrt", "a", "b"), ("Exp", "b", "c"), ("Neg", "c", "d"),
    ("Div", "d", "noise", 1.0), ("Neg", "noise", "z"),
]  # fmt: skip


def test_what_does_most_harm_by_itself_is_handed_over(tmp_path: Path) -> None:
    given = pair(tmp_path, NOISY, ["z"], {"fault": 1.5, "noise": 1 / 1.013})
    compare = ("checker=compare", "checker.rtol=0.01", "checker.flaky=never")
    run = winnow(*given, *compare, folder=tmp_path / "run")
    assert (run.code, run.result["status"]) == (0, "found"), run.output
    # the noise makes the model fail by itself as well, a little: it is over the tolerance at the output
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["fault"], "proven"), run.output
    left = rf"{LEFT} \(noise too\): with right outputs there the error is still 1\.\d+ times the tolerance"
    assert re.fullmatch(left, run.result["cause"]["reason"])
