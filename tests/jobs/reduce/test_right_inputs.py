"""What counts as a right input of nodes: nothing that the model under test has made wrong itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest

from runner.engine.session_question import AnswerExperiments, Cause
from runner.jobs.reduce.cause_experiments import Experiments
from runner.jobs.reduce.first_look import FirstLook
from runner.jobs.reduce.prove_cause import Prover, locate
from runner.judgment import TOLERANCES, CauseStatus, Experiment
from runner.model.graph.graph_index import Graph
from strategies.search import Closure, Outcome, Trial
from tests.harness import winnow
from tests.jobs.models import parsed
from tests.jobs.reduce.test_cause import COMPARE, pair

LAYER = """[q] q, s, z = DynamicQuantizeLinear(x) [product] i = MatMulInteger(q, w_q, z) [cast] f = Cast<to = 1>(i)
    [scales] t = Mul(s, w_s) [scaled] m = Mul(f, t)"""
QUICK = "result.find_min_good=false", "strategy.extra_checks=0"
TEXT = "g (float[8,16] x) => (float[8,15] y) {{ {} [rest] r = Gather<axis = 1>(m, others) [neg] y = Neg(r) }}"


def coarse(folder: Path) -> tuple[str, ...]:
    """Save a model, and what dynamic quantization makes of it.

    One column of its weight is 60 times as large as the others, which one scale for all rounds away. On the product
    the check does not mind that: there that column is the largest.
    """
    draw, others = np.random.default_rng(3), {"others": np.arange(1, 16, dtype=np.int64)}
    weight = draw.normal(size=(16, 16)).astype(np.float32)
    weight[:, 0] *= 60
    scale = np.float32(np.abs(weight).max() / 127)
    held = {"w_q": np.round(weight / scale).astype(np.int8), "w_s": scale}
    onnx.save(parsed(TEXT.format("[mm] m = MatMul(x, w)"), w=weight, **others), folder / "float.onnx")
    onnx.save(parsed(TEXT.format(LAYER), **held, **others), folder / "child.onnx")
    np.savez(folder / "inputs.npz", x=draw.normal(size=(8, 16)).astype(np.float32))
    given = f"model={folder / 'child.onnx'}", f"reference.model={folder / 'float.onnx'}"
    return (*given, "inputs=files", f"inputs.path={folder / 'inputs.npz'}", "checker.flaky=never")


def test_a_value_that_the_model_made_of_its_own_coarse_weight_is_no_right_input(tmp_path: Path) -> None:
    """The integers have no partner, and hold the error: the node that scales them is right."""
    run = winnow("+experiment=quantized", *coarse(tmp_path), *QUICK, folder=tmp_path / "run")
    assert set(run.result["culprits"]) == {"product", "cast", "scales", "scaled"}, run.output
    assert (run.result["cause"]["status"], run.result["whose"]) == ("proven", "quantization"), run.output


def test_a_node_is_not_said_to_be_wrong_without_those_that_it_cannot_be_told_from(tmp_path: Path) -> None:
    run = winnow(*coarse(tmp_path), "checker=compare", "checker.rtol=1e-3", "plan=true", folder=tmp_path / "run")
    said = "compute something else than the original: product, cast, scales and 1 more"
    assert said in " ".join(run.output.split()), run.output


def test_a_fault_that_hides_most_of_the_failure_says_from_where_on_that_arises(tmp_path: Path) -> None:
    steps = [("Abs", "x", "a"), ("Mul", "a", "one", 1.0), ("Abs", "one", "b"), ("Mul", "b", "two", 1.0)]
    given = pair(tmp_path, [*steps, ("Neg", "two", "z")], ["z"], {"one": 1.05, "two": 1.03})
    run = winnow(*given, *COMPARE, "strategy.look_inside=false", folder=tmp_path / "run")
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["two"], "proven"), run.output
    said = "it explains 37% of the error; the rest arises before these nodes, from one on"
    assert run.result["cause"]["reason"] == said, run.output


def test_places_between_which_no_good_value_can_stand_are_asked_about_together() -> None:
    graph = Graph.of(parsed("g (float[2] x) => (float[2] y) { a = Abs(x) b = Neg(a) c = Exp(b) y = Neg(c) }"))
    asked = list[list[int]]()

    def from_on(nodes: list[int]) -> Experiment:
        asked.append(nodes)
        return Experiment(Outcome.FAIL if nodes[0] <= 1 else Outcome.PASS)

    model = SimpleNamespace(graph=graph, healed=frozenset(), no_good=lambda name, *_: name == "b")
    bad = {"as_bad": lambda one: one.outcome is Outcome.FAIL, "exhausted": False, "from_on": from_on}
    made = cast("Experiments", SimpleNamespace(model=model, **bad))
    assert locate(made, range(4)) == 1
    assert [2, 3] not in asked and asked[-1] == [1, 2]


def test_places_that_recording_has_shown_to_be_wrong_are_told_of_beside_a_cause() -> None:
    """They are off by less than what is clearly wrong, and so is the whole model."""
    graph = Graph.of(parsed("g (float[2] x) => (float[2] y) { [one] a = Abs(x) [two] b = Neg(a) [z] y = Exp(b) }"))
    cause = Cause(CauseStatus.PROVEN, Experiment(Outcome.FAIL), (AnswerExperiments(Trial.of([1])),), (0,))
    subject = cast("Any", SimpleNamespace(graph=graph))
    (said,) = FirstLook(places=((0,), (1,))).above(cause, subject)
    assert said.startswith("one: its output is wrong too, with right inputs")


@pytest.mark.parametrize("more", [4, 0])
def test_a_node_of_an_answer_that_fails_by_itself_is_asked_about_unless_the_user_limits_that(more: int) -> None:
    made: Any = Prover.__new__(Prover)
    made._model = cast("Any", SimpleNamespace(about_values=True, spent=lambda: False))
    made._made, made._more = Experiments(made._model, 0), more
    made._made.fenced, made._made.as_bad = lambda *_: Experiment(Outcome.FAIL, 2.0), lambda _: True
    made._parts, made._instead = lambda _: [Trial.of([1]), Trial.of([2])], lambda _, part: part
    found = made._exactly(AnswerExperiments(Trial.of([1, 2]), good_inputs=Experiment(Outcome.FAIL, 2)))
    assert found == (Trial.of([1]) if more else None)
    assert bool(made._made.used_up) is not bool(more)


def test_nodes_that_belong_to_others_are_tested_with_these_once() -> None:
    """What is found next may be part of what was tested: the search for the cause ends."""
    made: Any = Prover.__new__(Prover)
    graph = Graph.of(parsed("g (float[2] x) => (float[2] y) { a = Abs(x) b = Neg(a) c = Exp(b) y = Neg(c) }"))
    space, fails = SimpleNamespace(closure=Closure.FREE), Experiment(Outcome.FAIL, 2.0)
    made._model = cast("Any", SimpleNamespace(
        graph=graph, whole=fails, space=space, about_values=True, scale=TOLERANCES, failure=fails,
        found_together=lambda _: None, spent=lambda: False, healed=frozenset(), compares=False,
    ))  # fmt: skip
    made._made, made._more, made._others, made._wrong = Experiments(made._model, 0), 3, True, []
    made._wiring, made._asked_as = SimpleNamespace(joined=lambda *_: frozenset({1, 2})), {}
    made._made.both, made._made.without = lambda _: None, lambda _: fails
    made._made.only, made._made.below, made._made.alone = lambda _: fails, lambda _: fails, lambda _: True
    made._following, made._repeated = lambda _: Trial.of([2]), lambda *_, **__: None
    cause = made.prove(Trial.of([1]))
    assert (cause.status, [one.answer for one in cause.answers]) == (CauseStatus.NOT_PROVEN, [Trial.of([1, 2])])
