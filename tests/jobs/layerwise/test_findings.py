"""What rows of tensors say of nodes, and marked runs that give no answer, hide the failure, or are never made."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.jobs.layerwise.findings import Findings, overflows, within
from runner.jobs.layerwise.run import BREAKS, CHANGES, HIDES, SAME, Layers, Look, Marking, alive, windows
from runner.model.graph.graph_index import Graph
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker
from runner.schema.strategy import LayerwiseSettings
from runner.verdict import TABLE, Verdict
from strategies.search import Outcome, Trial
from tests.jobs.models import parsed


@pytest.fixture
def graph() -> Graph:
    """x -> a -> b -> c -> d."""
    return of("[n0] a = Abs(x) [n1] b = Abs(a) [n2] c = Abs(b) [n3] d = Abs(c)")


def of(nodes: str) -> Graph:
    return Graph.of(parsed(f"g (float[1] x) => (float[1] d) {{ {nodes} }}"))


def row(error: float, **more: Any) -> dict[str, Any]:
    bad = error > 0.01
    found = {"bad": bad, "kind": "mismatch" if bad else "", "error": error, "limit": 0.01, "of_limit": 100 * error}
    return {**found, "relative": error, "nan": [0, 0], "inf": [0, 0], **more}


def test_a_tensor_that_is_not_known_stands_for_those_above_it(graph: Graph) -> None:
    found = Findings(graph, {"a": row(0.0), "c": row(0.5), "d": row(0.9)}, {})
    assert found.culprits == ("n1", "n2") and found.first_bad is not None and found.first_bad.node == "n2"


def test_the_largest_error_of_a_part_is_that_of_the_node_which_is_wrong_in_the_whole(graph: Graph) -> None:
    """b is fused away; what is made of a alone is c."""
    rows = {"a": row(0.0), "b": row(0.3), "c": row(0.3), "d": row(0.9)}
    own = {"a": row(0.0), "c": row(0.3), "d": row(0.02)}
    found = Findings(graph, rows, own)
    assert found.largest_own is not None and found.largest_own.node == "n1"
    assert found.largest_own.nodes == ("n1", "n2") and found.suspects == ("n1", "n2", "n3")
    assert Findings(graph, rows, {"d": row(0.9)}).largest_own is None  # all of it: what fails is the model


def test_where_marks_hide_it_what_parts_make_counts_first(graph: Graph) -> None:
    rows, own = {"c": row(0.5), "d": row(0.9)}, {"a": row(0.3), "b": row(0.0), "c": row(0.0)}
    assert Findings(graph, rows, own, hides=True).culprits == ("n0",)
    assert Findings(graph, rows, own).culprits == ("n0", "n1", "n2")


def test_the_error_of_the_whole_model_is_no_part_s_own(graph: Graph) -> None:
    """No tensor inside could be fed: the one part that is left is the model."""
    assert not within(graph, {"d": row(0.9)}, {}) and [*within(graph, {"a": row(0.0), "d": row(0.9)}, {})] == ["a", "d"]


def test_nothing_is_claimed_of_errors_that_pass(graph: Graph) -> None:
    found = Findings(graph, {"a": row(0.0), "d": row(0.005)}, {"a": row(0.0), "d": row(0.0)})
    assert found.first_bad is None and found.largest_own is None and found.suspects == ()
    found = Findings(graph, {"a": row(0.0), "d": row(0.5)}, {"a": row(0.0), "d": row(0.009)})
    assert found.first_bad is not None and found.largest_own is None


@pytest.mark.parametrize(
    ("nan", "inf", "held", "expected"),
    [(0, 0, [0, 1], False), (1, 0, None, True), (0, 3, [0.0, 0.0], False), (0, 3, None, False), (0, 3, [0, 9.0], True)],
)
def test_an_infinity_among_equal_values_is_a_mask(nan: int, inf: int, held: Any, expected: bool) -> None:
    assert overflows(row(0.0, nan=[nan, 0], inf=[inf, 0], range=[held, None])) is expected


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (row(0.5), row(0.505), SAME),
        (row(0.5), row(0.7), CHANGES),
        (row(0.5), row(0.001), HIDES),
        (row(0.0), row(0.3), BREAKS),
        (row(0.0), row(0.001), SAME),
        (row(0.5), row(0.5, nan=[1, 0]), CHANGES),
    ],
)
def test_what_marks_do(before: dict[str, Any], after: dict[str, Any], word: str) -> None:
    marking = Marking()
    marking.begin({"d": before}, lambda one: one["bad"], fails=before["bad"])
    assert marking.shows([{**after, "tensor": "d"}, {**row(0.9), "tensor": "a"}]) is (word != HIDES)
    assert marking.word == word


def test_marks_hide_no_failure_of_what_passes() -> None:
    """An output that the check leaves out is wrong in one of two runs."""
    marking = Marking()
    marking.begin({"d": row(0.5)}, lambda one: one["bad"], fails=False)
    assert marking.shows([{**row(0.0), "tensor": "d"}]) and marking.word == CHANGES


def test_a_reference_that_alone_is_not_finite_is_the_one_that_is_wrong(graph: Graph) -> None:
    broken = {**row(0.0, nan=[0, 3]), "bad": True, "kind": "mismatch"}
    found = Findings(graph, {"a": row(0.0), "b": broken, "d": broken}, {})
    assert found.reference_is_wrong and found.first_bad is not None and found.first_bad.kind == "nan"
    assert not Findings(graph, {"a": row(0.5), "b": broken}, {}).reference_is_wrong
    assert not Findings(graph, {"a": row(0.0)}, {}).reference_is_wrong


TENSORS = ("a", "b", "c")
TIMEOUT = Verdict(Outcome.UNRESOLVED, reason="timed out")


def marked(name: str, *, bad: bool) -> dict[str, Any]:
    found = {"tensor": name, "kind": "mismatch" if bad else "", "output": name == "d", "bad": bad, "type": 1}
    return {**found, "shape": [1], "error": float(bad), "limit": 0.01, "of_limit": 100.0 * bad}


def answered(names: tuple[str, ...], *, fails: bool) -> Verdict:
    """All marked tensors from b on are wrong."""
    return Verdict(
        Outcome.PASS, metrics={TABLE: [*(marked(name, bad=name > "a") for name in names), marked("d", bad=fails)]}
    )


def looked(
    graph: Graph, answer: Callable[[tuple[str, ...]], Verdict], *, fails: bool, checks: int | None = None
) -> Look:
    """Look at a graph with a target that gives these answers."""
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
    look.take(look.rows, [marked("d", bad=fails)])
    look.marking.begin(look.rows, look.is_bad, fails=fails)
    look.look()
    return look


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_without_an_answer_hides_nothing_and_is_halved(graph: Graph, *, fails: bool) -> None:
    look = looked(graph, lambda names: answered(names, fails=fails) if len(names) < 3 else TIMEOUT, fails=fails)
    assert look.marking.word == SAME and look.silent == TIMEOUT.said and look.runs == 3
    assert not look.unanswered and not look.not_asked and look.findings.culprits == ("n1",)


def test_a_tensor_whose_mark_leaves_no_answer_is_named(graph: Graph) -> None:
    look = looked(graph, lambda names: TIMEOUT if "b" in names else answered(names, fails=True), fails=True)
    assert look.unanswered == ["b"] and not look.hidden and not look.not_asked and look.marking.word == SAME


def test_what_the_budget_leaves_out_is_not_said_to_hide_the_failure(graph: Graph) -> None:
    look = looked(graph, lambda names: answered(names, fails="a" not in names), fails=True, checks=2)
    assert look.marking.word == HIDES and look.hidden == ["a"]
    assert look.stopped and look.not_asked == ["b", "c"]


def test_windows_hold_what_there_is_room_for_in_order() -> None:
    sizes = {"a": 3, "b": 3, "c": 9, "d": 1, "e": 1, "f": 1}
    assert windows(sizes, 6) == [("a", "b"), ("c",), ("d", "e", "f")]
    assert windows(sizes, 100, most=4) == [("a", "b", "c", "d"), ("e", "f")]
    assert windows({}, 6) == []


def test_values_alive_at_one_moment() -> None:
    """x -> a -> b -> d and a -> c -> d: at most a, b and c, then b, c and d."""
    graph = of("a = Abs(x) b = Abs(a) c = Neg(a) d = Add(b, c)")
    assert alive(graph, {"a": 10, "b": 3, "c": 2, "d": 1}) == 15
    assert alive(graph, {"a": 1, "b": 3, "c": 2, "d": 10}) == 15
