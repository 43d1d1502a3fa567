"""What holds of every answer: the real search and the real proof, over random models with a simulated faulty target.

How often an answer is right is no property of today, and is counted by `benchmarks.random_faults`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from benchmarks.random_faults import COMMAND, JUDGINGS, MEASURES, VERDICTS, Case, Judging, Kind, Solved, cases, solve
from benchmarks.random_graphs import RandomModel, Target
from runner.judgment import CauseStatus, Experiment, milder
from runner.model.graph.cut import depends_on
from strategies.search import Claim, Outcome, Trial

QUICK, CASES = 150, 500
ROWS = [
    pytest.param(MEASURES, QUICK, id="some"),
    *(pytest.param(judging, CASES, id=judging.name, marks=pytest.mark.slow) for judging in JUDGINGS),
]


@cache
def made(count: int) -> tuple[Case, ...]:
    return tuple(cases(range(count)))


@cache
def solved(judging: Judging, count: int = CASES) -> tuple[Solved, ...]:
    return tuple(solve(case, judging) for case in made(count))


def target(found: Solved, judging: Judging) -> Target:
    return Target(found.case.made, found.case.rules, judging.samples)


def told(found: Solved) -> tuple[object, ...]:
    """All that is said of a case."""
    answers = [(sorted(one.answer), one.proven, one.instances) for one in found.cause.answers]
    return (
        found.done,
        sorted(found.answer),
        found.cause.status,
        found.cause.reason,
        answers,
        found.cause.causes,
        found.checks,
    )


@pytest.mark.slow
def test_most_seeds_have_a_case_and_each_kind_has_many() -> None:
    kinds = [case.features.kind for case in made(CASES)]
    assert len(kinds) > 0.95 * CASES and min(kinds.count(kind) for kind in Kind) > 0.25 * CASES
    assert sum(case.features.noise for case in made(CASES)) > 0.3 * CASES
    assert sum(len(case.units) > 1 for case in made(CASES)) > 0.4 * CASES
    assert sum(not case.enough for case in made(CASES)) > 0


@pytest.mark.parametrize(("judging", "count"), ROWS)
def test_what_is_claimed_of_every_answer_holds(judging: Judging, count: int) -> None:
    """One test for all that is claimed: the cases of each row are solved once."""
    every = solved(judging, count)
    _fails_alone_and_is_1_minimal_where_that_is_claimed(every, judging, count)
    _makes_the_whole_model_fail_by_itself_where_it_is_proven(every, judging, count)
    _is_exact_for_one_fault_that_stands_once_without_noise(every, count)
    _takes_a_bounded_number_of_checks(every)
    if judging is MEASURES:  # where the check counts in tolerances, no wrong answer is proven
        assert not [found.case.seed for found in every if found.proven and not found.right]


def _fails_alone_and_is_1_minimal_where_that_is_claimed(every: Sequence[Solved], judging: Judging, count: int) -> None:
    minimal = 0
    for found in every:
        asked = target(found, judging)
        assert found.done.trial and asked.cut(found.done.trial.elements).fails
        assert asked.cut(found.first.elements).fails or asked.cut(found.first.elements, "sinks").fails
        # what is named of an answer need not fail where its own tensors are judged
        named = {found.cause.main} if found.proven else set()
        others = [one for at, one in enumerate(found.cause.answers[1:], 1) if at not in named]
        assert all(asked.cut(one.answer.elements).fails for one in others)
        if found.done.claim is Claim.ONE_MINIMAL and len(found.done.trial) > 1:
            minimal += 1
            assert not any(asked.cut(found.done.trial.elements - {element}).fails for element in found.done.trial)
    assert minimal > 0.2 * count


def _makes_the_whole_model_fail_by_itself_where_it_is_proven(
    every: Sequence[Solved], judging: Judging, count: int
) -> None:
    """The experiments again, by the target alone; of several faults the first: what is left is judged without it."""
    seen = alone = 0
    for found in every:
        if not found.proven:
            continue
        seen += 1
        one, graph = found.cause.answers[found.cause.causes[0]], found.case.target.graph
        asked, whole, nodes = target(found, judging), frozenset(range(len(graph.nodes))), one.answer.elements
        dependent = depends_on(graph, nodes)
        by_itself = _experiment(asked.splice(dependent), judging)
        assert by_itself.as_bad_as(found.cause.whole, max(1, len(one.instances)))
        healed = asked.splice(whole - nodes.union(*one.instances))
        if one.instances or (found.cause.reason == "" and len(found.cause.causes) == 1):
            assert not healed.fails
        if one.good_around:
            alone += 1
            around = _experiment(asked.splice(dependent - nodes), judging)
            assert one.instances or around.heals or milder(around.measure, by_itself.measure)
    assert seen > 0.9 * count and alone > 0.1 * count


def _experiment(judged: object, judging: Judging) -> Experiment:
    fails, measure = judged.fails, judged.measure  # type: ignore[attr-defined]
    return Experiment(Outcome.FAIL if fails else Outcome.PASS, measure if judging.measures else None)


@pytest.mark.slow
def test_the_parts_of_a_joint_cause_heal_together_and_each_fails_by_itself() -> None:
    seen = 0
    for found in solved(MEASURES):
        if found.cause.status is not CauseStatus.JOINT:
            continue
        seen += 1
        parts = [found.cause.answers[at].answer.elements for at in found.cause.causes]
        asked, graph = target(found, MEASURES), found.case.target.graph
        assert len(parts) > 1
        assert not asked.splice(frozenset(range(len(graph.nodes))) - found.answer).fails
        healed = [frozenset().union(*parts[:at]) for at in range(len(parts))]
        assert all(
            asked.splice(depends_on(graph, part, known)).fails for part, known in zip(parts, healed, strict=True)
        )
    assert seen > 0


@pytest.mark.slow
@pytest.mark.parametrize("judging", JUDGINGS, ids=str)
def test_the_same_case_has_the_same_answer_after_the_same_checks(judging: Judging) -> None:
    assert [told(found) for found in solved(judging)] == [told(solve(case, judging)) for case in made(CASES)]


@pytest.mark.slow
@pytest.mark.parametrize("judging", [VERDICTS, MEASURES], ids=str)
def test_the_order_of_samples_does_not_matter_to_a_check_of_all_of_them(judging: Judging) -> None:
    seen = 0
    for found in solved(judging):
        if found.case.features.samples > 1:
            seen += 1
            other = replace(found.case, made=reversed_samples(found.case.made))
            assert told(solve(other, judging)) == told(found)
    assert seen > 0.3 * CASES


def reversed_samples(made: RandomModel) -> RandomModel:
    good = {name: value if name in made.constant else value[::-1].copy() for name, value in made.good.items()}
    return replace(made, good=good, inputs={name: good[name] for name in made.inputs})


def _is_exact_for_one_fault_that_stands_once_without_noise(every: Sequence[Solved], count: int) -> None:
    seen = 0
    for found in every:
        case, features = found.case, found.case.features
        if len(case.units) > 1 or features.noise:
            continue
        seen += 1
        assert (found.answer, found.cause.status) == (case.units[0], CauseStatus.PROVEN)
        assert found.checks["cause"] == 2 or found.cause.answers[0].good_outputs != found.cause.whole
        if features.kind is Kind.KERNEL:
            assert found.checks["search"] <= len(case.target.graph.nodes).bit_length() + 1
    assert seen > 0.1 * count


@pytest.mark.parametrize("seed", [204, 217, 484, 2104, 2365, 2665, 2797])
def test_what_is_not_enough_by_itself_is_not_called_the_cause(seed: int) -> None:
    """Nodes that fail with the share of others below them, and nodes that only stand between wrong fusions."""
    (case,) = cases([seed])
    found = solve(case, MEASURES)
    assert found.right or not found.proven


def _takes_a_bounded_number_of_checks(every: Sequence[Solved]) -> None:
    for found in every:
        nodes, answer = len(found.case.target.graph.nodes), len(found.done.trial or ())
        assert found.checks["search"] <= (answer + 1) * (nodes.bit_length() + 6)
        asked = max(found.checks["search"], nodes.bit_length() + 1)
        assert found.checks["cause"] <= asked * (1 + len(found.cause.answers))


@pytest.mark.slow
def test_without_a_measure_no_more_is_proven_of_parts_than_that_they_fail() -> None:
    """What a measure adds is to tell a fault from noise: the search does not look at it."""
    for verdict, measured in zip(solved(VERDICTS), solved(MEASURES), strict=True):
        assert verdict.done == measured.done and verdict.checks["search"] == measured.checks["search"]
    assert all(one.done == other.done for one, other in zip(solved(COMMAND), solved(MEASURES), strict=True))


def test_a_whole_model_that_is_spliced_with_nothing_is_itself() -> None:
    for found in solved(MEASURES, QUICK)[:50]:
        every = range(len(found.case.target.graph.nodes))
        assert found.case.target.splice(every).fails
        assert not found.case.target.splice(()).fails
        assert Trial.of(every) == Trial.of(found.case.target.graph.producers.values())
