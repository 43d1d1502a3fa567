"""Searches for raised sets where error adds up: an answer is never larger than the smallest set that passed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.precision import grow, precision
from strategies.search import Claim, Done, Prior, Space, Step, Trial
from tests.strategies.transcript import Condition, drive, plain, transcript


def sums(weights: list[float], limit: float) -> Condition:
    """Passes once what is raised takes so much of the error away."""
    return lambda kept: sum(weights[element] for element in kept) >= limit * sum(weights)


def asked(space: Space, first: Step, condition: Condition) -> tuple[list[tuple[Trial, bool]], Done]:
    """Every question of one line, with its answer, and the end."""
    found: list[tuple[Trial, bool]] = []

    def noted(kept: frozenset[int]) -> bool:
        found.append((Trial(kept), bool(condition(kept))))
        return found[-1][1]

    return found, transcript(space, first, noted)[1]


def passed(space: Space, questions: list[tuple[Trial, bool]]) -> list[Trial]:
    """What passed, with everything raised, of which that is known beforehand."""
    return [space.whole, *(trial for trial, yes in questions if yes)]


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(10, 300),
    limit=st.floats(0.02, 1.0),
    seed=st.integers(0, 10**6),
    ranked=st.booleans(),
    suspects=st.integers(0, 12),
    steep=st.sampled_from([0.0, 1.0, 3.0]),
    based=st.sampled_from([0, 1, 40]),
)
def test_where_error_adds_up_the_answer_is_the_smallest_that_passed(
    count: int, limit: float, seed: int, ranked: bool, suspects: int, steep: float, based: int
) -> None:
    """Grown from an answer that does not suffice, or from nothing."""
    random = Random(seed)
    weights = [random.random() ** steep + 1e-6 for _ in range(count)]
    ranking = sorted(range(count), key=lambda element: -weights[element]) if ranked else random.sample(range(count), 9)
    space, condition = plain(count), sums(weights, limit)
    prior = Prior(tuple(random.sample(range(count), min(suspects, count))), tuple(ranking))
    base = Trial.of(random.sample(range(count), min(based, count)))
    questions, done = asked(space, grow(space, base, prior), condition)
    assert done.trial is not None and base.elements <= done.trial.elements
    assert done.trial == space.whole or condition(done.trial.elements)
    assert len(done.trial) <= min(len(trial) for trial in passed(space, questions))
    assert len(questions) <= 22 * (count + 1).bit_length() + 32 + 4 * count.bit_length() + 2 * suspects + 1


def test_the_claim_says_whether_the_ranking_or_a_smaller_set_is_the_answer() -> None:
    space = plain(400)
    need = frozenset(Random(0).sample(range(400), 90))
    questions, done = asked(space, precision(space, Prior()), lambda kept: need <= kept)
    smallest = min(passed(space, questions), key=len)
    prefix = max(need) + 1
    assert done.trial is not None and len(done.trial) == len(smallest) < prefix
    assert done.claim is Claim.SMALLEST_SEEN
    assert len(done.trial or ()) == len(smallest) and "the smallest of those that passed" in done.note
    _, done = asked(space, precision(space, Prior()), lambda kept: len(kept) >= 300)
    assert (done.trial, done.claim) == (Trial.of(range(300)), Claim.RANKED)
    assert "what introduces most of it is raised" in done.note


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), limit=st.floats(0.3, 0.95), searching=st.sampled_from(["precision", "grow"]))
def test_workers_change_no_answer_where_error_adds_up(seed: int, limit: float, searching: str) -> None:
    random = Random(seed)
    space, weights = plain(120), [random.random() for _ in range(120)]
    blocks = tuple(tuple(range(part, 120, 12)) for part in range(12))
    ranking = tuple(sorted(range(120), key=lambda element: -weights[element]))
    base = Trial.of(ranking[:4])

    def first() -> Step:
        prior = Prior((), ranking, blocks)
        return grow(space, base, prior) if searching == "grow" else precision(space, prior)

    ends = [drive(space, first(), sums(weights, limit), workers, seed)[0] for workers in (1, 2, 5)]
    assert ends[0] == ends[1] == ends[2]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 6), spread=st.booleans())
def test_kinds_change_no_answer_that_is_minimal(seed: int, size: int, spread: bool) -> None:
    """Whether or not culprits lie in one kind, what is found is what is needed."""
    random = Random(seed)
    space, kinds = plain(80), tuple(tuple(range(part, 80, 8)) for part in reversed(range(8)))
    within = space.order if spread else kinds[random.randrange(8)]
    need = Trial.of(random.sample(within, size))
    ranking = tuple(random.sample(range(80), 80))
    for prior in (Prior((), ranking), Prior((), ranking, kinds)):
        _, done = transcript(space, precision(space, prior), lambda kept: need.elements <= kept)
        assert (done.trial, done.claim) == (need, Claim.ONE_MINIMAL)


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(4, 300),
    size=st.integers(0, 8),
    based=st.integers(1, 40),
    seed=st.integers(0, 10**6),
    kinds=st.booleans(),
)
def test_what_is_grown_holds_the_base_and_little_besides(
    count: int, size: int, based: int, seed: int, kinds: bool
) -> None:
    random = Random(seed)
    need = frozenset(random.sample(range(count), min(size, count)))
    base = Trial.of(random.sample(range(count), min(based, count)))
    blocks = tuple(tuple(range(part, count, 5)) for part in range(min(5, count))) if kinds else ()
    prior = Prior((), tuple(random.sample(range(count), count)), blocks)
    space = plain(count)
    questions, done = asked(space, grow(space, base, prior), lambda kept: need <= kept)
    missing = need - base.elements
    assert done.trial is not None
    assert done.trial.elements == base.elements | missing
    assert done.claim is Claim.GROWN
    assert all(base.elements <= trial.elements for trial, _ in questions)
    assert len(questions) <= 2 * len(missing) * (count.bit_length() + 1) + 3 * count.bit_length() + 2


def test_answers_that_are_not_monotone_end_all_the_same() -> None:
    """Answers at random, some unknown: the end is a set that passed, or everything."""
    for seed in range(60):
        random = Random(seed)
        count = random.randint(3, 90)
        space = plain(count)
        told: dict[frozenset[int], bool | None] = {frozenset(space.order): True}

        def condition(
            kept: frozenset[int], random: Random = random, told: dict[frozenset[int], bool | None] = told
        ) -> bool | None:
            return told.setdefault(kept, random.choice([True, False, False, None]))

        kinds = tuple(tuple(range(part, count, 3)) for part in range(3))
        prior = Prior(tuple(random.sample(range(count), random.choice([0, 2]))), (), kinds)
        starts: tuple[Callable[[], Step], ...] = (
            lambda space=space, prior=prior: precision(space, prior),  # type: ignore[misc]
            lambda space=space, prior=prior: grow(space, Trial.of([0, 1]), prior),  # type: ignore[misc]
        )
        for start in starts:
            _, done = transcript(space, start(), condition)
            assert done.trial is not None
            assert told.get(done.trial.elements) is True
