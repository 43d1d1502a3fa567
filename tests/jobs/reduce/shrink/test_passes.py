"""Whole runs whose answers are simplified."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from onnx import numpy_helper

from runner import api
from runner.engine.check_trials import Budget, CheckLimits, Judge
from runner.engine.session import Session, Stage
from runner.engine.session_question import NOTHING, CurrentAnswer
from runner.engine.tally import Tally
from runner.jobs.reduce.refinements import PASSES, Shrinking, _of_its_kind
from runner.jobs.reduce.run import told_once
from runner.model.values import recorded
from runner.model.values.recipes import recognize
from runner.verdict import Signature, Verdict
from strategies.search import Outcome
from tests.api.programs import lacks
from tests.candidate_audit import AUDITED, KEEP_ALL, audited
from tests.harness import by_command, check_script, winnow
from tests.jobs.models import parsed
from tests.jobs.reduce.test_hard_failures import saved

RNG = np.random.default_rng(99)
GOLDEN = RNG.normal(size=(32, 32)).astype(np.float32)


@pytest.mark.slow
def test_values_and_sizes_shrink_as_far_as_the_reference_stays_sound(tmp_path: Path) -> None:
    text = """g (float[4,32] x) => (float[4,32] y) <float two = {2.0}> {
        [before] n = Neg(x) [abs] x1 = Abs(n) [sub] d = Sub(x1, two) [sqrt] r = Sqrt(d) [matmul] m = MatMul(r, w)
        [after] y = Tanh(m) }"""
    model = parsed(text, w=GOLDEN)
    given = saved(model, tmp_path, x=3 + RNG.random((4, 32)).astype(np.float32))
    body = "sys.exit(int({'sub', 'sqrt', 'matmul'} <= nodes))"
    check = by_command(check_script(tmp_path, body), *AUDITED)
    sized = winnow(*given, *check, KEEP_ALL, folder=tmp_path / "sized")
    assert sized.result["culprits"] == ["sub", "sqrt", "matmul"], sized.output
    fed = recorded.read(tmp_path / "sized" / "test_data_set_0" / "input_0.pb")
    assert fed.shape == (2, 2)
    assert fed.min() >= 3, "1, or a number around 0, has no root here"
    weight = numpy_helper.to_array(next(one for one in sized.model().graph.initializer if one.name == "w"))
    assert weight.shape == (2, 2)
    assert "; reduced.onnx has simpler values and smaller shapes than the model" in sized.result["message"]
    rows = map(json.loads, (tmp_path / "sized" / "artifacts" / "index.jsonl").read_text().splitlines())
    assert {row["elements"] for row in rows if row["phase"] == "shrink"} == {3}, "its elements are levels"
    audited(sized)
    assert sized.result["checks"]["refine"] <= 6
    whole = winnow(*given, *check, "strategy.shrink=false", folder=tmp_path / "whole")
    assert whole.result["culprits"] == sized.result["culprits"]
    assert {one.name: list(one.dims) for one in whole.model().graph.initializer} == {"two": [], "w": [32, 32]}


@pytest.mark.slow
def test_values_stay_where_the_check_knows_them_or_the_failure_gets_milder(tmp_path: Path) -> None:
    model = parsed("g (float[4,32] x) => (float[4,32] y) { [a] a = Neg(x) [fault] y = MatMul(a, w) }", w=GOLDEN)
    given = saved(model, tmp_path, x=RNG.random((4, 32)).astype(np.float32))
    knows = f"golden = bytes.fromhex({GOLDEN.tobytes()[:64].hex()!r}) in bytes(whole)"
    for name, body in {
        "knows": f"{knows}\nsys.exit(int('fault' in nodes or ('y' in outputs and not golden)))",
        "measures": f"{knows}\nprint('error', 90 if golden else 8)\nsys.exit(int('fault' in nodes))",
        "open": "print('error', 90 if len(whole) > 4000 else 10)\nsys.exit(int('fault' in nodes))",
        "grosser": f"{knows}\nprint('error', 2 if golden else 90)\nsys.exit(int('fault' in nodes))",
    }.items():
        check = by_command(check_script(tmp_path, body, f"{name}.py"))
        run = winnow(*given, *check, "checker.measure='error ([0-9]+)'", folder=tmp_path / name)
        assert run.result["culprits"] == ["fault"], run.output
        (weight,) = run.model().graph.initializer
        array = numpy_helper.to_array(weight)
        assert (recognize(array) is None) is (name not in ("open", "grosser"))
        told = "by the check's measure reduced.onnx fails by 90, and failed by 2 before it was made simpler"
        assert any(one.startswith(told) for one in run.result["warnings"]) is (name == "grosser"), run.output
        assert ("before it was made simpler" in run.output) is (name == "grosser")
        assert array.shape == (32, 32), "of what it knows by name the shape is known as well"
        assert ("the failure became much milder" in run.output) is (name == "measures")
        assert ("the recorded values are kept" in run.output) is (name == "knows")


def test_the_second_half_of_a_budget_is_for_the_cause(tmp_path: Path) -> None:
    def is_short(budget: Budget) -> bool:
        judge: Any = SimpleNamespace(tally=Tally(Counter(search=4, refine=1, trust=90)))
        return Shrinking(*[None] * 2, 8, CheckLimits(budget=budget), None)._is_short(judge)  # type: ignore[arg-type]

    assert not is_short(Budget())
    assert [is_short(Budget(checks=checks)) for checks in (9, 10)] == [True, False]
    assert [is_short(Budget(seconds=10, started=time.monotonic() - spent)) for spent in (6, 4)] == [True, False]


def test_a_check_that_knows_a_tensor_inside_the_model_keeps_the_values(tmp_path: Path) -> None:
    """It compares with good values of its own: others fail by themselves."""
    model = parsed("g (float[4,32] x) => (float[4,32] y) { [fault] a = Neg(x) [after] y = Tanh(a) }")
    given = saved(model, tmp_path, x=RNG.random((4, 32)).astype(np.float32))
    check = by_command(check_script(tmp_path, "sys.exit(int('fault' in nodes or 'a' in outputs))"))
    run = winnow(*given, *check, folder=tmp_path / "run")
    assert run.result["culprits"] == ["fault"] and "the recorded values are kept" in run.output
    fed = recorded.read(tmp_path / "run" / "test_data_set_0" / "input_0.pb")
    assert recognize(fed) is None and fed.shape == (4, 32)


def test_no_pass_is_kept_once_its_answer_is_as_small_as_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps a model of up to 32 MiB: the experiments on the cause, or the next answer, come after all of them."""
    made, kept = [], []
    begun, leave_out = Shrinking.stages, Session.leave_out

    def stages(self: Shrinking, standing: CurrentAnswer) -> Iterator[Stage]:
        for stage in begun(self, standing):
            made.append((self, len(self._made)))
            yield stage

    def asked(self: Session, *given: Any) -> bool:
        kept.append(len(made[-1][0]._made))
        return leave_out(self, *given)

    monkeypatch.setattr(Shrinking, "stages", stages)
    monkeypatch.setattr(Session, "leave_out", asked)
    text = (
        "g (float[64,32] x) => (float[64,32] y) { [one] a = MatMul(x, w) [between] b = Tanh(a) [two] y = MatMul(b, w) }"
    )
    model = parsed(text, w=GOLDEN)
    x = RNG.normal(size=(64, 32)).astype(np.float32)

    given: Any = {"inputs": {"x": x}, "strategy": {"find": "all"}}
    found = api.reduce(model, lacks("MatMul"), folder=tmp_path / "run", **given)
    assert found.found and any(count for _, count in made)
    assert kept == [0, 0]


def test_simpler_values_make_no_inf_of_the_answers_nan() -> None:
    """0 / 0 is no x / 0; what was too mild before stays so."""
    failed = [Verdict(Outcome.FAIL, Signature("infer", kind)) for kind in ("nan", "inf", "mismatch")]
    for known, refused in (("nan", [False, True, False]), ("mismatch", [False] * 3)):
        held = Verdict(Outcome.FAIL, Signature("infer", known))
        judge = SimpleNamespace(counted=lambda _, held=held: (held,), mild=None)
        staged = _of_its_kind(cast(Judge, judge), NOTHING, cast(Judge, SimpleNamespace(mild=None)))
        assert [bool(staged.mild and staged.mild(one)) for one in failed] == refused


def test_what_two_passes_did_is_said_once() -> None:
    values, shapes, again, attributes = PASSES[:4]
    assert told_once((values, shapes, again, attributes)) == f"{values} and {shapes} and {attributes}"
    assert told_once((shapes, again)) == f"{shapes} and {values}"
    assert told_once(()) == ""
