"""The sequential test: how many repeats, and how often it is wrong."""

from __future__ import annotations

from random import Random

import pytest

from runner.engine.repeated_checks import Count, Rates
from strategies.search import Answer


def decided(rates: Rates, rate: float, error: float, random: Random) -> tuple[Answer, int]:
    count = Count()
    while (answer := rates.decide(count, error)) is None:
        count = count.and_(random.random() < rate)
    return answer, count.total


@pytest.mark.parametrize(("hit", "false_alarm"), [(0.7, 0.1), (0.2, 0.01)])
@pytest.mark.parametrize("error", [0.1, 0.01])
def test_it_is_wrong_as_rarely_as_asked(hit, false_alarm, error) -> None:
    random, rates, tries = Random(1), Rates(hit, false_alarm), 2000
    for rate, right in ((hit, Answer.YES), (false_alarm, Answer.NO)):
        wrong = sum(decided(rates, rate, error, random)[0] is not right for _ in range(tries))
        assert wrong <= error * tries + 3 * (error * tries) ** 0.5


def test_it_takes_fewer_repeats_than_a_fixed_number_would() -> None:
    """To tell 0.7 from 0.1 with errors of 1 % takes 13 repeats of a fixed number (7 or more failures)."""
    random, rates = Random(1), Rates(0.7, 0.1)
    for rate in (0.7, 0.1):
        mean = sum(decided(rates, rate, 0.01, random)[1] for _ in range(500)) / 500
        assert mean < 7


def test_a_sure_failure_needs_no_repeats_of_a_sure_test() -> None:
    assert Rates(0.998, 0.002).decide(Count(1, 0), 0.01) is Answer.YES
    assert Rates(0.998, 0.002).decide(Count(0, 1), 0.01) is Answer.NO


def test_rates_are_drawn_together_by_what_is_not_known_of_them() -> None:
    few, many = Rates.measured(Count(5, 5), Count(0, 10)), Rates.measured(Count(500, 500), Count(0, 1000))
    assert few is not None
    assert many is not None
    assert few.hit < many.hit < 0.5
    assert few.false_alarm > many.false_alarm > 0


def test_rates_that_are_the_same_are_none() -> None:
    assert Rates.measured(Count(5, 5), Count(5, 5)) is None
    assert Rates.measured(Count(0, 20), Count(0, 20)) is None
    assert Rates.measured(Count(10, 10), Count(8, 12)) is None
