"""A search that begins at elements that something names: exact sequences of trials, and what a wrong name costs."""

from __future__ import annotations

import pytest

from strategies.minimal import reduce
from strategies.search import Claim, Closure, Trial
from tests.strategies.transcript import chain, needs, transcript


def test_what_is_named_alone_is_one_question() -> None:
    lines, done = transcript(chain(1000), reduce(chain(1000), named=(700,)), needs(700))
    assert lines == ["700 yes"]
    assert (done.trial, done.claim) == (Trial.of([700]), Claim.ONE_MINIMAL)


def test_a_pattern_around_what_is_named_is_searched_there() -> None:
    lines, done = transcript(chain(1000), reduce(chain(1000), named=(700,)), needs(699, 700, 702))
    assert lines[:2] == ["700 no", "696-708 yes"]
    assert (done.trial, done.claim) == (Trial.of([699, 700, 702]), Claim.ONE_MINIMAL)
    assert len(lines) <= 13


@pytest.mark.parametrize("culprits", [(3,), (3, 90)])
def test_a_wrong_name_costs_two_questions_and_nothing_else(culprits: tuple[int, ...]) -> None:
    plain, without = transcript(chain(100), reduce(chain(100)), needs(*culprits))
    lines, done = transcript(chain(100), reduce(chain(100), named=(50,)), needs(*culprits))
    assert lines == ["50 no", "46-58 no", *plain]
    assert done == without


@pytest.mark.parametrize("closure", [Closure.ANCESTORS, Closure.DESCENDANTS])
def test_nothing_is_named_where_one_end_has_to_stay(closure: Closure) -> None:
    space = chain(64, closure)
    assert transcript(space, reduce(space, named=(20,)), needs(20)) == transcript(space, reduce(space), needs(20))
