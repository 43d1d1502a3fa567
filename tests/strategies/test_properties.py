"""Properties over random graphs and culprits: exact, 1-minimal, independent of the number of workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.bisect import bisect
from strategies.minimal import linear, reduce
from strategies.search import Claim, Closure, First, Space, Trial
from tests.strategies.transcript import drive, transcript


@st.composite
def graphs(draw: st.DrawFn, most: int = 200) -> Space:
    """A random DAG, its nodes in a topological order."""
    size = draw(st.integers(1, most))
    random = draw(st.randoms(use_true_random=False))
    parents = tuple(
        tuple(sorted({random.randrange(i) for _ in range(random.randint(0, 3))})) if i else () for i in range(size)
    )
    return Space(tuple(range(size)), parents)


@st.composite
def cases(draw: st.DrawFn, most: int = 200) -> tuple[Space, frozenset[int]]:
    space = draw(graphs(most))
    culprits = draw(st.frozensets(st.sampled_from(space.order), min_size=1, max_size=min(8, len(space.order))))
    return space, culprits


@settings(max_examples=75, deadline=None)
@given(cases(), st.sampled_from(First), st.integers(0, 99))
def test_reduce_is_exact_and_the_same_for_any_number_of_workers(case, first, seed) -> None:
    space, culprits = case
    named = tuple(culprits)[: seed % 3]
    ends = [
        drive(space, reduce(space, first=first, named=named), lambda kept: culprits <= kept, workers, seed)
        for workers in (1, 3)
    ]
    for done, _ in ends:
        assert done.trial == Trial.of(culprits)
        assert done.claim is Claim.ONE_MINIMAL
        assert done == ends[0][0]


@settings(max_examples=60, deadline=None)
@given(graphs(30), st.data())
def test_what_is_nearest_comes_first(space, data) -> None:
    origins, within = (data.draw(st.frozensets(st.sampled_from(space.order), min_size=least)) for least in (1, 0))
    far = dict.fromkeys(origins | within, 10**6) | dict.fromkeys(origins, 0)
    edges = [
        (parent, child) for child, above in enumerate(space.parents) for parent in above if {parent, child} <= {*far}
    ]
    for _ in far:
        for parent, child in edges:
            far[child], far[parent] = min(far[child], far[parent] + 1), min(far[parent], far[child] + 2)
    gap = {one: min(abs(one - origin) for origin in origins) for one in far}
    rest = sorted(within - origins, key=lambda one: (min(far[one], 10**6), gap[one], one))
    assert space.by_distance(origins, within) == tuple(rest)


@settings(max_examples=60, deadline=None)
@given(cases(40), st.integers(0, 99))
def test_linear_is_exact(case, seed) -> None:
    space, culprits = case
    for workers in (1, 3):
        done, _ = drive(space, linear(space), lambda kept: culprits <= kept, workers, seed)
        assert (done.trial, done.claim) == (Trial.of(culprits), Claim.ONE_MINIMAL)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(cases())
def test_bisect_never_leaves_more_than_the_window_between_first_and_last_culprit(case) -> None:
    space, culprits = case
    lines, done = transcript(space, bisect(space), lambda kept: culprits <= kept)
    assert done.trial == Trial.of(range(min(culprits), max(culprits) + 1))
    bound = (len(space.order) - 1).bit_length()
    assert len(lines) <= 2 * bound + 3


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(cases(60), st.sampled_from([reduce, linear]), st.randoms(use_true_random=False), st.floats(0, 0.6))
def test_unknown_answers_never_break_the_claim(case, first, random, rate) -> None:
    """What is called 1-minimal has a real "no" for each single removal, however many answers are missing elsewhere."""
    space, culprits = case
    answers: dict[frozenset[int], bool | None] = {}

    def condition(kept: frozenset[int]) -> bool | None:
        if kept not in answers:
            answers[kept] = None if random.random() < rate else culprits <= kept
        return answers[kept]

    _, done = transcript(space, first(space), condition)
    assert done.trial is not None and culprits <= done.trial.elements
    assert done.trial == space.whole or answers[done.trial.elements] is True
    if done.claim is Claim.ONE_MINIMAL and len(done.trial) > 1:
        assert all(answers[done.trial.elements - {element}] is False for element in done.trial)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(graphs(40), st.sampled_from([reduce, linear]), st.randoms(use_true_random=False))
def test_the_answer_is_1_minimal_even_where_failures_are_not_monotone(space, first, random) -> None:
    answers: dict[frozenset[int], bool] = {frozenset(space.order): True}

    def condition(kept: frozenset[int]) -> bool:
        return answers.setdefault(kept, random.random() < 0.4)

    _, done = transcript(space, first(space), condition)
    assert done.trial is not None and answers[done.trial.elements]
    if len(done.trial) > 1:
        assert done.claim is Claim.ONE_MINIMAL
        assert not any(answers[done.trial.elements - {element}] for element in done.trial)


@pytest.mark.variants
@pytest.mark.parametrize("first", [reduce, linear, bisect])
@pytest.mark.parametrize("closure", [Closure.ANCESTORS, Closure.DESCENDANTS])
@settings(max_examples=60, deadline=None)
@given(case=cases(60))
def test_closed_searches_only_try_closed_sets_and_keep_what_is_needed(first, closure, case) -> None:
    free, culprits = case
    space = Space(free.order, free.parents, closure)
    seen: list[frozenset[int]] = []

    def condition(kept: frozenset[int]) -> bool:
        seen.append(kept)
        return culprits <= kept

    _, done = transcript(space, first(space), condition)
    assert done.trial is not None and culprits <= done.trial.elements
    for kept in seen:
        assert space.close(kept).elements == kept
    if first is not bisect:
        assert done.trial == space.close(culprits)
