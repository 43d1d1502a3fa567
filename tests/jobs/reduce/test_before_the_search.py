"""What a reduction says before it searches: why the model does not load, that a check gets too little time."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from runner.exit_codes import CannotJudge
from runner.jobs.reduce import check_controls
from runner.jobs.reduce.check_controls import INPUTS, ORIGINAL, Controls
from runner.jobs.reduce.preflight import Preflight, TimeLimit
from runner.jobs.reduce.subgraph import Subgraph
from runner.reference.recording import Recorded
from runner.verdict import CHECK as OF_THE_CHECK
from runner.verdict import Phase, Raised, Signature, Verdict
from strategies.search import Outcome, Trial
from tests.harness import winnow
from tests.jobs import models
from tests.matrix import slow

CHECK = """import sys, time
time.sleep(0.8)
sys.exit('Log' in open(sys.argv[1], 'rb').read().decode('latin-1'))
"""
COMPARES = """import numpy as np, onnxruntime as ort
def check(model, inputs, expected):
    session = ort.InferenceSession(model)
    names, worst = [one.name for one in session.get_outputs()], 0.0
    for fed, right in zip(inputs, expected):
        for name, value in zip(names, session.run(names, fed)):
            worst = max(worst, float(np.abs(value - right[name]).max()))
    return worst < 0.01
"""


def saved(path: Path, nodes: str, *, opset: int = 17, **weights: np.ndarray) -> Path:
    """Write a model from x to y."""
    held = {name: array.astype(np.float32) for name, array in weights.items()}
    return models.saved(path, f"g (float[4,4] x) => (float[4,4] y) {{ {nodes} }}", opset=opset, **held)


@pytest.mark.parametrize(
    ("operator", "opset", "said"),
    [
        slow(("Abs", 99, "ai.onnx 99: onnxruntime ")),
        ("Frobnicate", 17, "Frobnicate: ai.onnx 17 has no such operator"),
    ],
)
def test_what_the_runtime_does_not_know_is_said_as_inspect_says_it_and_nothing_is_searched(
    tmp_path: Path, operator: str, opset: int, said: str
) -> None:
    model = saved(tmp_path / "net.onnx", f"[r] a = Relu(x) [last] y = {operator}(a)", opset=opset)
    run, seen = (winnow(word, f"model={model}", folder=tmp_path / word) for word in ("reduce", "inspect"))
    assert (run.code, seen.code) == (0, 0) and said in run.screen[0] and said in seen.screen[0], run.output
    assert run.result["culprits"] == seen.result["culprits"] == (["last"] if operator == "Frobnicate" else [])
    assert run.result["message"].startswith(seen.result["message"]) and run.result["strategy"] == "reduce"
    assert sum(run.result["outcomes"].values()) == 0 and "WARNING" not in run.output
    # a check of the user's may run the model elsewhere
    script = tmp_path / "check.py"
    script.write_text("import sys\nsys.exit(b'last' in open(sys.argv[1], 'rb').read())\n")
    own = winnow("reduce", f"model={model}", "--check", f"{sys.executable} {script} {{model}}", folder=tmp_path / "own")
    assert own.result["culprits"] == ["last"], own.output


@pytest.mark.slow
def test_a_check_that_gets_too_little_time_is_told_from_a_model_that_hangs(tmp_path: Path) -> None:
    model = saved(tmp_path / "net.onnx", "[log] y = Log(x)")
    script = tmp_path / "check.py"
    script.write_text(CHECK)
    given = ("reduce", f"model={model}", "--check", f"{sys.executable} {script} {{model}}", "--timeout")
    run = winnow(*given, "0.2", folder=tmp_path / "run")
    assert run.code == 3 and run.screen[0].startswith("could_not_judge: checker.timeout=0.2 is too short: "), run.output
    assert "for example --timeout " in run.screen[0] and "{inputs}" not in run.screen[0]
    assert winnow(*given, "60", folder=tmp_path / "again").result["culprits"] == ["log"]


@pytest.mark.slow
def test_a_function_that_looks_up_the_right_value_of_each_output_finds_it(tmp_path: Path) -> None:
    """What the original has no partner of is handed out by no candidate."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((4, 4)) for name in ("w0", "w1", "w2")}

    text = "[l0] m0 = MatMul(x, w0) [r0] r0 = Tanh(m0) {} [l2] y = MatMul(m1, w2)"
    original = saved(tmp_path / "original.onnx", text.format("[l1] m1 = MatMul(r0, w1)"), **weights)
    inner = "[up] up = Mul(r0, k) [l1] scaled = MatMul(up, w1) [down] m1 = Div(scaled, k)"
    changed = {**weights, "w1": weights["w1"].T.copy(), "k": np.array(3.37)}
    model = saved(tmp_path / "net.onnx", text.format(inner), **changed)
    (tmp_path / "acc.py").write_text(COMPARES)
    given = (f"model={model}", "--original", str(original), "--check", str(tmp_path / "acc.py"))
    runs = [winnow(word, *given, folder=tmp_path / word) for word in ("reduce", "triage")]
    for run in runs:
        assert run.result["culprits"] == ["up", "l1", "down"], run.output
        assert not any("KeyError" in reason and "scaled" in reason for reason in run.result["unresolved"])
    assert runs[0].code == runs[1].code == 0, "the same answer has the same exit code, whatever helps"


def test_a_loop_whose_body_has_no_value_is_told_as_a_node_outside_is(tmp_path: Path) -> None:
    """Whose bug, which value the operator has none for, and no advice of a wider type."""
    text = """g (float[4,4] x) => (float[4,4] y) <float step = {3.0}, int64 n = {2}, bool t = {1}> {
        [abs] a = Abs(x)
        [loop] y = Loop(n, t, a) <body = body (int64 i, bool c, float[4,4] before) => (bool on, float[4,4] after) {
            [less] less = Sub(before, step) [log] after = Log(less) [on] on = Identity(c) }> }"""
    given = (f"model={models.saved(tmp_path / 'net.onnx', text)}", "inputs.ranges.x=[-1,1]")
    run = winnow("reduce", *given, folder=tmp_path / "run")
    assert run.code == 0 and run.result["whose"] == "model", run.output
    assert run.result["nested"] == ["loop.body/log"] and " computes NaN from -" in run.result["cause"]["no_value"]
    assert "wider type" not in "".join(run.screen) and run.result["iteration"] == "iteration 1 of 2"


@pytest.mark.parametrize(
    ("reference", "end", "limit", "said"),
    [
        (0.0, Verdict(Outcome.PASS, seconds=7.2), 20, "checker.timeout=2 is too short: the file takes 7.2 s"),
        (30.0, Verdict(Outcome.FAIL, Signature("check", "exit 1"), seconds=7), 60, "for example --timeout 35"),
        (90.0, Verdict(Outcome.FAIL, Signature("check", "timeout"), seconds=62), 62, ""),
        (0.0, Verdict(Outcome.UNRESOLVED), 20, ""),
    ],
)
def test_what_ran_out_of_time_gets_more_once(reference: float, end: Verdict, limit: float, said: str) -> None:
    given: list[object] = []

    def sure(trial: Trial, phase: Phase, label: str) -> Verdict:
        given.append((phase, label))
        return end

    judge: Any = SimpleNamespace(subject=None, stage=lambda *_: SimpleNamespace(sure=sure))
    longer: Any = given.append
    confirmed = partial(TimeLimit(2, reference, longer).confirm, judge, Trial.of([0]), "the file")
    if said:
        with pytest.raises(CannotJudge, match=re.escape(said)) as refused:
            confirmed()
        assert refused.value.lacks == (f"--timeout {36 if end.seconds > 7 else 35}",)
    else:
        confirmed()
    assert given == [limit, (Phase.CONTROL, f"the file, with {limit} s")]


def test_a_check_that_minds_rounding_is_told_once() -> None:
    """Nothing is said of what a tolerance would mind, of a node that is wrong, or of a check's own mistake."""
    near = Recorded((), partners=frozenset("xy"), error=7e-5)
    failed, slip = Signature("check", "exit 1"), Raised(("NameError at c.py:5",), OF_THE_CHECK)
    for recorded, signature, said in (
        (near, failed, ["7e-07 of their largest value"]),
        (replace(near, error=0.0), failed, []),
        (replace(near, error=0.5), failed, []),
        (replace(near, wrong=("a",)), failed, []),
        (replace(near, partners=frozenset("x")), failed, []),
        (replace(near, partners=None), failed, []),
        (near, replace(failed, raised=slip), []),
        (near, Signature("infer", "timeout"), []),
    ):
        judge: Any = SimpleNamespace(studied=SimpleNamespace(signature=signature))
        opening = Preflight(TimeLimit(None, 0.0, Mock()), Controls())
        opening.say_rounding(judge, recorded, ("y",), 1e-2)
        assert len(opening.warnings) == len(said)
        assert all(text in one for text, one in zip(said, opening.warnings, strict=True))


@pytest.mark.parametrize(
    ("fed", "lacks", "operator", "said", "left"),
    [
        (False, (INPUTS, ORIGINAL), "Add", f"Give the input of your check: {INPUTS}.\ncheck: c", (INPUTS,)),
        (False, (INPUTS, ORIGINAL), "DequantizeLinear", f"made of: {ORIGINAL}.\n", (INPUTS, ORIGINAL)),
        (False, (INPUTS,), "Add", f"Give the input of your check: {INPUTS}.\ncheck: c", (INPUTS,)),
        (True, (INPUTS, ORIGINAL), "Add", "for example after a conversion or quantization. Give the good", (ORIGINAL,)),
        (True, (), "Add", "that the original computes. So the model itself", ()),
        (False, (), "Add", "passes the original, but not the values that the original computes", (INPUTS,)),
        (False, (ORIGINAL,), "Add", "quantization, or your check feeds another input", (ORIGINAL,)),
    ],
)
def test_a_check_that_fails_with_recorded_values_too(
    monkeypatch: pytest.MonkeyPatch, fed: bool, lacks: tuple[str, ...], operator: str, said: str, left: tuple[str, ...]
) -> None:
    subject = object.__new__(Subgraph)
    object.__setattr__(subject, "graph", SimpleNamespace(protos=[SimpleNamespace(op_type=operator)]))
    judge: Any = SimpleNamespace(subject=subject, checker=SimpleNamespace(describe=lambda: "c"))
    monkeypatch.setattr(check_controls, "fails_on_good", lambda *_: None)
    original = None if ORIGINAL in lacks or INPUTS in lacks else Path("good.onnx")
    refusal = Controls(fed=fed, lacks=lacks, original=original)._wrong_values(judge)
    assert said in str(refusal) and str(refusal).endswith("check: c") and refusal.lacks == left
