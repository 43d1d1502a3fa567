"""Real runs of models with more than one fault: each is told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from runner.jobs.reduce.prove_cause import ANOTHER
from runner.report.diagnosis_sections import in_a_word
from runner.report.result_parts import Cause
from runner.report.typed_json import from_json
from runner.verdict import Signature, got_further
from tests.harness import winnow
from tests.jobs.models import saved
from tests.jobs.reduce.test_cause import CHECK, COMPARE, answers, both, command, named, pair

BRANCH = 12
MICROSOFT = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> '


def chain(first: str, name: str) -> list[tuple]:
    """Steps that keep the size of what goes through them."""
    ends = [first, *(f"{name}{at}" for at in range(BRANCH))]
    return [("Softsign" if at % 5 == 4 else "Neg", ends[at], ends[at + 1]) for at in range(BRANCH)]


def unloadable(folder: Path) -> tuple[str, ...]:
    """A child whose ``a`` does not load, and whose ``b`` does not run once it does."""
    text = "early = Abs(x) a = {}(early) b = {} z = Add(a, b)"
    child = text.format("com.microsoft.BiasGelu", "Gather(early, seventh)")
    made = named(child, head=MICROSOFT, seventh=np.array([6, 0]))
    return both(folder, named(text.format("Neg", "Exp(early)")), made)


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "outcome"), [("kind", "different"), ("any", "fail")])
def test_a_failure_that_another_one_of_a_later_stage_follows_is_gone(tmp_path: Path, counts: str, outcome: str) -> None:
    """A model that is loaded does not fail to load: what fails in it then is another fault, unless every one counts."""
    options = (f"checker.same_failure={counts}", "checker.flaky=never")
    run = winnow(*unloadable(tmp_path), *options, folder=tmp_path / "run")
    cause, gone = run.result["cause"], counts == "kind"
    assert (run.result["culprits"], run.result["signature"]["stage"]) == (["a"], "load"), run.output
    assert (cause["status"], cause["answers"][0]["good_outputs"]["outcome"]) == ("proven", outcome), run.output
    assert (cause["reason"] == ANOTHER) is not gone
    assert ("without this node the model fails in another way" in (run.folder / "REPORT.md").read_text()) is gone
    assert "the whole model passes" not in " ".join(run.output.split()) or gone


def test_without_a_signature_nobody_knows_how_far_a_model_came() -> None:
    one = Signature("infer", "error B")
    assert not got_further(None, one) and not got_further(Signature("load", "error A"), None)


@pytest.mark.parametrize("answers", [None, 3, [3], [{"is_cause": True}], [{"is_cause": True, "instances": 3}]])
@pytest.mark.parametrize("status", ["proven", "joint"])
def test_a_result_from_anywhere_is_told(status: str, answers: object) -> None:
    assert in_a_word(from_json(Cause, {"status": status, "answers": answers})).startswith("proven")


@pytest.mark.slow
def test_a_fault_that_another_one_hides_is_told_of(tmp_path: Path) -> None:
    """Good values for the later one make the model pass: what is above it is seen inside the model alone."""
    steps = [("Mul", "x", "one", 1.0), *chain("one", "a"), ("Div", f"a{BRANCH - 1}", "two", 1.0), ("Neg", "two", "z")]
    said = "one: its output is wrong too, with right inputs"
    for one in (1.3, 1.05):  # the first is about as bad as the later fault, the second an eighth of that
        given = pair(tmp_path, steps, ["z"], {"one": one, "two": 0.6})
        run = winnow(*given, *COMPARE, folder=tmp_path / str(one))
        assert (run.result["culprits"], run.result["cause"]["status"]) == (["two"], "proven"), run.output
        assert any(warning.startswith(said) for warning in run.result["warnings"]), run.output
    given = pair(tmp_path, steps, ["z"], {"two": 0.6})
    alone = winnow(*given, *COMPARE, folder=tmp_path / "alone")
    assert (alone.result["culprits"], alone.result["cause"]["status"]) == (["two"], "proven"), alone.output
    assert not any("wrong too" in one for one in alone.result["warnings"])


def test_a_fault_that_one_kernel_hides_with_another_is_told_of(tmp_path: Path) -> None:
    """The runtime makes one part of both nodes, and of that part one node is known."""
    draw, shapes = np.random.default_rng(5), {"w": (8, 8), "b": 8}
    held = [{name: draw.normal(size=size).astype(np.float32) for name, size in shapes.items()} for _ in "ab"]
    text = "g (float[4,8] x) => (float[4,8] y) { [mm] m = MatMul(x, w) [add] a = Add(m, b) [tanh] y = Tanh(a) }"
    mine, theirs = (saved(tmp_path / f"{at}.onnx", text, **weights) for at, weights in enumerate(held))
    run = winnow(f"model={mine}", f"reference.model={theirs}", *COMPARE, folder=tmp_path / "run")
    assert run.result["culprits"] == ["add"], run.output
    assert any(one.startswith("mm: its output is wrong too, with right inputs") for one in run.result["warnings"])


def test_faults_that_matter_only_together_are_named(tmp_path: Path) -> None:
    """One of them is within the tolerance at the outputs, and two are not: no experiment on one shows anything."""
    steps = [("Mul", "x", "one", 1.0), ("Div", "x", "two", 1.0), ("Add", "x", "three", 0.0), ("Add", "one two", "a")]
    wrong = {"one": 1.024, "two": 0.977, "three": 0.035}
    given = pair(tmp_path, [*steps, ("Add", "a three", "b"), ("Neg", "b", "z")], ["z"], wrong)
    run = winnow(*given, *COMPARE, folder=tmp_path / "run")
    cause = run.result["cause"]
    assert cause["status"] == "not proven", run.output
    assert cause["reason"].startswith("with right outputs of one, two, three the model passes; no single")


@pytest.mark.slow
def test_a_tensor_without_a_partner_is_no_fault_of_the_reference(tmp_path: Path) -> None:
    """Half of what is asked about two nodes, between which the original has no tensor, cannot be judged."""
    child = "a = Neg(x) [more] between = Mul(a, factor) b = Tanh(between) z = Abs(b)"
    parent = named("a = Neg(x) b = Erf(a) z = Abs(b)")
    given = both(tmp_path, parent, named(child, factor=np.float32(1.3)))
    run = winnow(*given, *COMPARE, folder=tmp_path / "run")
    assert (run.code, sorted(run.result["culprits"])) == (0, ["b", "more"]), run.output
    assert any("none of its outputs has a partner in reference.model" in one for one in run.result["unresolved"])
    assert "reference=onnx_reference" not in run.output
    advice = "Name the partners of such tensors: reference.map='{tensor: tensor of the original}'"
    assert run.result["cause"]["status"] == "proven"  # so nothing has to be done about these
    assert not any(advice in one for one in run.result["warnings"]), run.result["warnings"]


@pytest.mark.slow
def test_what_is_wrong_where_nothing_hides_it_is_not_told_of(tmp_path: Path) -> None:
    """Good values for the answer make the model pass, so what is wrong beside it does no harm."""
    steps = [
        ("Mul", "x", "beside", 1.0),
        ("Mul", "x", "fault", 1.0),
        ("Mul", "beside", "small", 1e-3),
        ("Add", "fault small", "z"),
    ]
    given = pair(tmp_path, steps, ["z"], {"beside": 1.1, "fault": 1.6})
    run = winnow(*given, *COMPARE, folder=tmp_path / "run")
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["fault"], "proven"), run.output
    assert not any("wrong too" in one for one in run.result["warnings"]), run.output


@pytest.mark.slow
@pytest.mark.parametrize("rounded", [{"n1": 1.013}, {"n1": 1.013, "n2": 0.987}, {"m0": 1.02, "n2": 0.985}])
def test_what_is_rounded_does_not_hide_an_operator_that_a_runtime_gets_wrong(
    tmp_path: Path, rounded: dict[str, float]
) -> None:
    """Recording shows only what is rounded; the operator is wrong wherever it stands, as the user's check sees."""
    steps = [
        (kind, *more)
        for at in range(4)
        for kind, *more in (("Mul", "x", f"m{at}", 1 + at / 10), ("Softsign", f"m{at}", f"s{at}"))
    ]
    steps += [("Add", "s0 s1", "a1"), ("Add", "a1 s2", "a2"), ("Add", "a2 s3", "a3"), ("Mul", "a3", "n1", 1.0)]
    steps += [("Abs", "n1", "q"), ("Mul", "q", "n2", 1.0), ("Add", "n2 x", "y"), ("Neg", "y", "z")]
    given = (*pair(tmp_path, steps, ["z"], rounded), *command(tmp_path))
    wrong = (
        "model = onnx.load(sys.argv[1])\nfor node in model.graph.node:\n"
        "    node.op_type = node.op_type.replace('Softsign', 'Tanh')\n"
    )
    check = CHECK.replace("InferenceSession(sys.argv[1]", "InferenceSession(model.SerializeToString()")
    (tmp_path / "check.py").write_text(check.replace("session =", f"{wrong}session ="))
    run = winnow(*given, folder=tmp_path / "run")
    assert run.result["cause"]["status"] == "proven", run.output
    assert run.result["culprits"][0].startswith("s")
    # what is within a few tolerances at the outputs is not what fails there
    assert not run.result["first_look"]


@pytest.mark.slow
def test_a_pattern_that_stops_the_runtime_at_each_place_is_told_in_three_experiments(tmp_path: Path) -> None:
    """Each place fails by itself, so halving the model would end at the last one, after many checks."""
    steps = [*chain("x", "a"), ("Abs", f"a{BRANCH - 1}", "one"), ("Neg", "one", "n"), ("Abs", "n", "two")]
    steps += [("Exp", "two", "e"), ("Abs", "e", "three"), ("Softsign", "three", "z")]
    given = pair(tmp_path, steps, ["z"], {})
    child = onnx.load(tmp_path / "child.onnx")
    for node in child.graph.node:
        node.domain, node.op_type = ("com.microsoft", "BiasGelu") if node.op_type == "Abs" else ("", node.op_type)
    child.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(child, tmp_path / "child.onnx")
    run = winnow(*given, "checker.flaky=never", folder=tmp_path / "run")
    assert (run.result["cause"]["status"], run.result["signature"]["stage"]) == ("proven", "load"), run.output
    held = next(one for one in run.result["cause"]["answers"] if one["is_cause"])
    assert held["instances"] == [["one"], ["two"], ["three"]], run.output
    assert run.result["checks"]["cause"] == 3


@pytest.mark.slow
def test_noise_beside_two_faults_hides_neither(tmp_path: Path) -> None:
    """The first look finds the noise before the second fault, and what is left of the failure is not there."""
    steps = [
        ("Mul", "x", "noise", 1.0),
        ("Abs", "noise", "on"),
        ("Neg", "on", "past"),
        ("Div", "past", "two", 1.0),
        ("Mul", "x", "one", 1.0),
        ("Add", "one two", "y"),
        ("Neg", "y", "z"),
    ]
    given = pair(tmp_path, steps, ["z"], {"noise": 1.014, "two": 0.8, "one": 1.3})
    run = winnow(*given, *COMPARE, "strategy.cause_checks=30", folder=tmp_path / "run")
    assert run.result["cause"]["status"] == "joint", run.output
    assert {tuple(names) for names, is_cause in answers(run) if is_cause} == {("one",), ("two",)}
