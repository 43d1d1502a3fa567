"""Thousands of elements: what a search remembers of each question is small, and nothing grows with its square."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from strategies import minimal
from strategies.bisect import bisect
from strategies.minimal import reduce
from strategies.search import Answer, Search, Space, Trial


def chain(count: int) -> Space:
    return Space(tuple(range(count)), tuple((i - 1,) if i else () for i in range(count)))


@pytest.mark.slow
def test_memory_does_not_grow_with_elements_times_questions() -> None:
    space = chain(3000)
    needed = frozenset(range(0, 3000, 60))
    search = Search(space, reduce(space))
    tracemalloc.start()
    try:
        for asked in range(1, 201):
            (ask,) = search.ask()
            assert ask.trial.key
            search.tell(ask.trial, Answer.YES if needed <= ask.trial.elements else Answer.NO)
            if asked == 100:
                before = tracemalloc.get_traced_memory()[0]
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100 * 8000  # bytes; a set of 3,000 elements takes 130,000


def test_memory_does_not_grow_with_sets_that_are_read_back() -> None:
    """Whoever makes candidates reads each trial's elements again after it was written down."""
    space = chain(20_000)
    search = Search(space, bisect(space))
    held = []
    tracemalloc.start()
    try:
        while not search.done:
            (ask,) = search.ask()
            assert ask.trial.key
            assert len(list(ask.trial)) == len(ask.trial.elements)
            search.tell(ask.trial, Answer.YES if 12_345 in ask.trial else Answer.NO)
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(held) > 12
    assert held[-1] - held[2] < 20_000 * 100  # bytes; a set of 12,000 elements takes 900,000


def test_a_trial_that_was_written_down_is_the_same() -> None:
    rng = random.Random(1)
    for _ in range(200):
        elements = frozenset(rng.sample(range(300), rng.randrange(60)))
        trial, other = Trial(elements), Trial(elements)
        before = (len(elements), sorted(elements), hash(trial))
        assert (len(trial), list(trial), hash(trial)) == before
        assert Trial.parse(trial.ranges) == trial == other
        assert (len(trial), list(trial), hash(trial)) == before
        assert trial.elements == elements
        assert trial.bits == sum(1 << element for element in elements)
        assert trial in {other}
        assert other.ranges == trial.ranges
        assert trial == other
        assert trial != Trial(elements ^ {7})


def test_an_answer_of_thousands_of_elements_has_no_millions_of_pairs_in_memory() -> None:
    space = chain(4000)
    tracemalloc.start()
    try:
        removals = minimal._removals(space, space.whole, minimal.AUTO)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(removals) == minimal.AUTO
    assert peak < 20 << 20


def test_monotone_answers() -> None:
    rng = random.Random(3)
    for _ in range(300):
        line = [(Trial(frozenset(rng.sample(range(6), rng.randrange(5)))), rng.choice([*Answer])) for _ in range(6)]
        having = [trial.elements for trial, answer in line if answer is Answer.YES]
        lacking = [trial.elements for trial, answer in line if answer is Answer.NO and trial]
        assert minimal.monotone(line) is not any(inner < outer for inner in having for outer in lacking)
