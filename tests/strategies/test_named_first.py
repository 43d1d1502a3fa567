"""A search that begins at elements that something names: exact sequences of trials, and what a wrong name costs."""

from __future__ import annotations

from random import Random

import pytest

from strategies.minimal import reduce
from strategies.search import Claim, Closure, Trial
from tests.strategies.transcript import chain, drive, transcript


def needs(*culprits: int):
    return lambda kept: set(culprits) <= kept


def test_what_is_named_alone_is_one_question() -> None:
    lines, done = transcript(chain(1000), reduce(chain(1000), named=(700,)), needs(700))
    assert lines == ["700 yes"]
    assert (done.trial, done.claim) == (Trial.of([700]), Claim.ONE_MINIMAL)


def test_a_pattern_around_what_is_named_is_searched_there() -> None:
    lines, done = transcript(chain(1000), reduce(chain(1000), named=(700,)), needs(699, 700, 702))
    assert lines[:2] == ["700 no", "696-708 yes"]
    assert (done.trial, done.claim) == (Trial.of([699, 700, 702]), Claim.ONE_MINIMAL)
    assert len(lines) <= 13


def test_few_that_are_named_together_are_proven_one_at_a_time() -> None:
    lines, done = transcript(chain(100), reduce(chain(100), named=(5, 6, 7)), needs(5, 7))
    assert lines == ["5-7 yes", "5-6 no", "5,7 yes", "7 no", "5 no"]
    assert (done.trial, done.claim) == (Trial.of([5, 7]), Claim.ONE_MINIMAL)


def test_what_is_named_may_not_be_needed_itself() -> None:
    _, done = transcript(chain(1000), reduce(chain(1000), named=(700,)), needs(698, 703))
    assert (done.trial, done.claim) == (Trial.of([698, 703]), Claim.ONE_MINIMAL)


@pytest.mark.parametrize("culprits", [(3,), (3, 90)])
def test_a_wrong_name_costs_two_questions_and_nothing_else(culprits: tuple[int, ...]) -> None:
    plain, without = transcript(chain(100), reduce(chain(100)), needs(*culprits))
    lines, done = transcript(chain(100), reduce(chain(100), named=(50,)), needs(*culprits))
    assert lines == ["50 no", "46-58 no", *plain]
    assert done == without


def test_nobody_can_say_is_as_good_as_no() -> None:
    unknown = {frozenset([50]), frozenset(range(46, 59))}
    lines, done = transcript(
        chain(100), reduce(chain(100), named=(50,)), lambda kept: None if kept in unknown else 51 in kept
    )
    assert lines[:2] == ["50 unknown", "46-58 unknown"]
    assert done.trial == Trial.of([51])


@pytest.mark.parametrize("closure", [Closure.ANCESTORS, Closure.DESCENDANTS])
def test_nothing_is_named_where_one_end_has_to_stay(closure: Closure) -> None:
    space = chain(64, closure)
    assert transcript(space, reduce(space, named=(20,)), needs(20)) == transcript(space, reduce(space), needs(20))


def test_workers_change_nothing() -> None:
    random = Random(0)
    for seed in range(20):
        culprits = sorted(random.sample(range(200), random.choice((1, 2, 3))))
        first = reduce(chain(200), named=(random.choice(culprits),))
        found = {drive(chain(200), first, needs(*culprits), workers, seed)[0].trial for workers in (1, 4)}
        assert found == {Trial.of(culprits)}
