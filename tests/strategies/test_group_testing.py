"""Group testing: the number of questions for scattered, clustered and single culprits, and what it rests on."""

from __future__ import annotations

import math
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.group_testing import CLUSTERED, RANKED, SCATTERED, Belief, by_rank
from strategies.minimal import reduce
from strategies.search import Claim, Done, Space, Trial
from tests.strategies.test_properties import cases
from tests.strategies.transcript import chain, transcript


def checks(size: int, culprits: list[int]) -> int:
    lines, done = transcript(chain(size), reduce(chain(size), 0), lambda kept: kept.issuperset(culprits))
    assert (done.trial, done.claim) == (Trial.of(culprits), Claim.ONE_MINIMAL)
    return len(lines)


@pytest.mark.parametrize(("size", "count"), [(50, 2), (50, 12), (400, 3), (400, 8)])
def test_scattered_culprits_cost_little_more_than_the_information_in_them_and_the_proof(size, count) -> None:
    random = Random(size + count)
    counts = [checks(size, random.sample(range(size), count)) for _ in range(20)]
    assert mean(counts) <= 1.15 * math.log2(math.comb(size, count)) + 2 * count + 0.5  # the mean of so few


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(20, 1000), st.integers(2, 12))
def test_no_set_costs_much_more(data, size, count) -> None:
    culprits = data.draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count, unique=True))
    assert checks(size, culprits) <= 1.5 * math.log2(math.comb(size, count)) + 2 * count + 8


@pytest.mark.parametrize("size", [2, 50, 1000])
def test_a_single_culprit_costs_one_question_more_than_halving(size) -> None:
    for place in Random(size).choices(range(size), k=20):
        assert checks(size, [place]) <= (size - 1).bit_length() + 1


def test_neighbors_cost_a_few_questions_more() -> None:
    assert max(checks(1000, [place, place + 1]) for place in range(400, 420)) <= 10 + 7
    assert max(checks(1000, list(range(place, place + 5))) for place in range(400, 420)) <= 10 + 18


@settings(max_examples=60, deadline=None)
@given(cases(60), st.integers(0, 99), st.booleans())
def test_a_ranking_changes_the_questions_and_not_the_answer(case, seed, none) -> None:
    space, culprits = case
    ranking = tuple(Random(seed).sample(space.order, len(space.order)))
    step = by_rank(space, (), ranking, lambda found: Done(Trial.of(found), Claim.UNPROVEN), none=none)
    assert transcript(space, step, lambda kept: culprits <= kept)[1].trial == Trial.of(culprits)


def test_where_nothing_is_answered_all_is_left_to_one_at_a_time() -> None:
    for size in (10, 64, 300):
        lines, done = transcript(chain(size), reduce(chain(size), 0), lambda _: None)
        assert len(lines) <= size + 20
        assert (done.trial, done.claim) == (chain(size).whole, Claim.UNPROVEN)


@pytest.mark.parametrize(("low", "high"), [(60, 90), (60, 100), (40, 80), (71, 95)])
def test_a_band_that_nobody_can_answer_is_left_behind(low, high) -> None:
    """Seven sizes of it are tried, and none twice: what lies beyond is narrowed down."""

    def told(kept: frozenset[int]) -> bool | None:
        return None if low <= len(kept) < high else 70 in kept

    space = chain(100)
    step = by_rank(space, (), space.order, lambda found: Done(Trial.of(found), Claim.UNPROVEN), none=True)
    lines, done = transcript(space, step, told)
    assert 70 in done.trial.elements
    assert len(lines) <= 45


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5000),
    st.sampled_from([SCATTERED, CLUSTERED, RANKED]),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=60),
)
def test_beliefs_stay_probabilities_whatever_is_learned(count, hypotheses, answers) -> None:
    belief = Belief.first(count, hypotheses)
    for one, other, clean in answers:
        first, end = sorted((round(one * (count - 1)), round(other * (count - 1))))
        belief = belief.learn(first, end + 1, clean=clean)
        all_ranks, half, none = (belief.clean(first, count) for first in (0, count // 2, count))
        assert 0 <= all_ranks <= half <= none
        assert max(belief.weights) == 1 and min(belief.weights) > 0


def test_what_is_found_far_away_makes_more_of_that_kind_likely() -> None:
    belief = Belief.first(1000, CLUSTERED)
    near, far = belief.learn(2, 3, clean=False), belief.learn(600, 601, clean=False).learn(601, 1000, clean=True)
    elsewhere = [one.clean(100, 500) / one.clean(5, 5) for one in (near, far)]
    assert elsewhere[1] < 0.6 < 0.8 < elsewhere[0]


def test_elements_that_no_path_joins_are_ranked_by_their_places() -> None:
    space = Space(tuple(range(10)))
    assert space.by_distance([6], range(10)) == (5, 7, 4, 8, 3, 9, 2, 1, 0)
    assert space.by_distance([2, 8], [1, 4, 5, 6]) == (1, 4, 6, 5)
    # of what is as far the first of the order, whatever its number
    assert Space(tuple(reversed(range(10)))).by_distance([6], range(10)) == (7, 5, 8, 4, 9, 3, 2, 1, 0)
