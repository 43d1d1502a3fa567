"""The algorithms that searches are compared with are right, and what is simulated is counted right."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from benchmarks.searches import (
    Counted,
    bound,
    ddmin,
    high,
    quickxplain,
    residual,
    scattered,
    simulate,
    simulated,
    spread,
    windowed,
)
from strategies.minimal import reduce


@pytest.mark.parametrize("algorithm", [quickxplain, ddmin, windowed])
@pytest.mark.parametrize("size", range(1, 8))
def test_published_algorithms_find_every_set_of_culprits(algorithm, size: int) -> None:
    elements = range(size)
    for count in range(1, size + 1):
        for wanted in map(frozenset, combinations(elements, count)):
            asked: list[frozenset[int]] = []
            counted = Counted(elements, lambda kept, wanted=wanted, asked=asked: asked.append(kept) or wanted <= kept)
            assert algorithm(elements, counted) == wanted
            assert counted.checks == len(asked) == len(set(asked))
            assert frozenset(elements) not in asked
            assert frozenset() not in asked


def test_ddmin_is_one_minimal_where_failures_come_and_go() -> None:
    for seed in range(30):

        def fails(kept: frozenset[int], seed: int = seed) -> bool:
            return len(kept) == 10 or (bool(kept) and Random(f"{seed}{sorted(kept)}").random() < 0.3)

        answer = ddmin(range(10), fails)
        assert fails(answer)
        assert len(answer) == 1 or not any(fails(answer - {one}) for one in answer)


def test_ddmin_takes_as_many_checks_as_halving_for_one_culprit() -> None:
    counted = Counted(range(1024), lambda kept: 0 in kept)
    assert ddmin(range(1024), counted) == {0}
    assert counted.checks == 10


def test_rounds_are_checks_of_one_worker_and_fewer_of_several() -> None:
    random = Random(7)
    space = residual(200, random)
    wanted = scattered(space, 3, random)
    one, four = (simulate(space, reduce(space, 0), wanted.issubset, workers) for workers in (1, 4))
    assert one.trial == four.trial
    assert one.trial.elements == wanted
    assert one.rounds == one.checks > four.rounds
    assert one.checks < four.checks <= 4 * four.rounds


def test_a_simulated_case_is_the_same_each_time() -> None:
    assert simulated(2, "clustered", 5) == simulated(2, "clustered", 5)


def test_figures() -> None:
    assert high(list(range(1, 101))) == 95
    assert spread([3, 1, 2]) == "2, 3"
    assert bound(1024, 1) == pytest.approx(1.15 * 10 + 2)
