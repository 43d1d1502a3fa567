"""Marked runs that give no answer, hide the failure, or are never made."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from onnx import TensorProto, helper

from runner.jobs.layerwise.run import HIDES, SAME, Layers, Look, Marking
from runner.model.graph.graph_index import Graph
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker
from runner.schema.strategy import LayerwiseSettings
from runner.verdict import TABLE, Verdict
from strategies.search import Outcome, Trial

TENSORS = ("a", "b", "c")
TIMEOUT = Verdict(Outcome.UNRESOLVED, reason="timed out")


def row(name: str, *, bad: bool) -> dict[str, Any]:
    found = {"tensor": name, "kind": "mismatch" if bad else "", "output": name == "d", "bad": bad, "type": 1}
    return {**found, "shape": [1], "error": float(bad), "limit": 0.01, "of_limit": 100.0 * bad}


def told(names: tuple[str, ...], *, fails: bool) -> Verdict:
    """All marked tensors from b on are wrong."""
    return Verdict(Outcome.PASS, metrics={TABLE: [*(row(name, bad=name > "a") for name in names), row("d", bad=fails)]})


def looked(answer: Callable[[tuple[str, ...]], Verdict], *, fails: bool, checks: int | None = None) -> Look:
    """Look at x -> a -> b -> c -> d with a target that gives these answers."""
    names = ["x", *TENSORS, "d"]
    nodes = [helper.make_node("Abs", [one], [names[at + 1]], name=f"n{at}") for at, one in enumerate(names[:-1])]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])] for name in ("x", "d")]
    graph = Graph.of(helper.make_model(helper.make_graph(nodes, "g", *ends)))
    subject = Layers(cast("Any", SimpleNamespace(graph=graph)), TENSORS)
    settings = SimpleNamespace(checker=AutoChecker(), strategy=LayerwiseSettings(), target=OnnxRuntimeBackend())
    means = SimpleNamespace(budget=SimpleNamespace(checks=checks, seconds=None))
    paid = {"search": 0}

    def sure(trial: Trial, *_: str) -> Verdict:
        paid["search"] += 1
        return answer(subject.names(trial))

    tally, studied = SimpleNamespace(paid=paid), SimpleNamespace(signature=None)
    judge = SimpleNamespace(subject=subject, sure=sure, recall=lambda *_: None, tally=tally, studied=studied)
    job = SimpleNamespace(settings=settings, means=means)
    look = Look(cast("Any", job), subject, cast("Any", judge), Marking())
    look.__dict__ |= {"marked": [TENSORS], "apart": [], "is_sane": True}
    look.take(look.rows, [row("d", bad=fails)])
    look.marking.begin(look.rows, look.is_bad, fails=fails)
    look.look()
    return look


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_without_an_answer_hides_nothing_and_is_halved(*, fails: bool) -> None:
    look = looked(lambda names: told(names, fails=fails) if len(names) < 3 else TIMEOUT, fails=fails)
    assert look.marking.word == SAME and look.silent == TIMEOUT.said and look.runs == 3
    assert not look.unanswered and not look.not_asked and look.findings.culprits == ("n1",)


def test_a_tensor_whose_mark_leaves_no_answer_is_named() -> None:
    look = looked(lambda names: TIMEOUT if "b" in names else told(names, fails=True), fails=True)
    assert look.unanswered == ["b"] and not look.hidden and not look.not_asked and look.marking.word == SAME


def test_what_the_budget_leaves_out_is_not_said_to_hide_the_failure() -> None:
    look = looked(lambda names: told(names, fails="a" not in names), fails=True, checks=2)
    assert look.marking.word == HIDES and look.hidden == ["a"]
    assert look.stopped and look.not_asked == ["b", "c"]
