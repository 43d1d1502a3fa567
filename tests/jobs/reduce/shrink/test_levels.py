"""The search for the lowest levels: driven by conditions, without models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runner.jobs.reduce.simplification_levels import Levels
from strategies.search import Answer, Claim, Search

YES, NO, UNKNOWN = Answer.YES, Answer.NO, Answer.UNKNOWN


def found(tops: tuple[int, ...], answer: Callable[[tuple[int, ...]], Answer], most: int = 99):
    """The levels in the end, the questions asked, and the claim."""
    levels, asked = Levels(tops), []
    search = Search(levels.space, levels.first(most))
    while not search.done:
        (ask,) = search.ask()
        asked.append(levels.of(ask.trial))
        search.tell(ask.trial, answer(asked[-1]))
    assert search.done.trial
    return levels.of(search.done.trial), asked, search.done.claim


def failing(*least: int) -> Callable[[tuple[int, ...]], Answer]:
    return lambda levels: YES if all(map(int.__ge__, levels, least)) else NO


def test_a_trial_says_the_levels_and_is_closed() -> None:
    levels = Levels((2, 1, 4))
    assert levels.of(levels.trial((1, 0, 3))) == (1, 0, 3)
    assert levels.space.whole == levels.trial((2, 1, 4))
    assert levels.space.close(levels.trial((1, 0, 3))) == levels.trial((1, 0, 3))


def test_what_works_for_all_costs_one_question_or_two() -> None:
    assert found((2, 2, 2), failing(0, 0, 0))[:2] == ((1, 1, 1), [(1, 1, 1)])
    assert found((1, 1), failing(0, 0))[:2] == ((0, 0), [(0, 0)]), "(1, 1) is the answer itself"

    def fits(levels):
        return UNKNOWN if 1 in levels else YES

    assert found((2, 5), fits)[:2] == ((0, 0), [(1, 1), (0, 0)])


@pytest.mark.parametrize(
    ("tops", "least", "most"),
    [
        ((2, 2, 2, 2), (0, 0, 2, 0), 8),
        ((1, 2, 2), (0, 2, 1), 8),
        ((6, 6, 6), (0, 4, 1), 8),
        ((3,), (3,), 5),
        ((2,) * 64, (*(0,) * 40, 2, *(0,) * 23), 16),
    ],
)
def test_what_must_stay_is_found(tops: tuple[int, ...], least: tuple[int, ...], most: int) -> None:
    levels, asked, claim = found(tops, failing(*least))
    assert levels == tuple(max(one, min(1, top - 1)) for one, top in zip(least, tops, strict=True))
    assert len(asked) <= most
    assert claim is Claim.SMALLEST_SEEN


def test_what_nobody_can_answer_is_no_yes() -> None:
    levels, _, _ = found((3, 3), lambda levels: NO if levels[0] < 3 else UNKNOWN if levels[1] < 2 else YES)
    assert levels == (3, 2)
    assert found((2, 2), lambda levels: YES if levels[1] == 2 else UNKNOWN)[0] == (1, 2)


def test_a_budget_leaves_the_best_so_far() -> None:
    levels, asked, claim = found((2,) * 8, failing(2, *(0,) * 7), most=4)
    assert len(asked) == 4
    assert levels == (2, 2, 2, 2, 1, 1, 1, 1)
    assert claim is Claim.BUDGET
    assert found((2, 2), failing(0, 0), most=0)[:2] == ((2, 2), [])
    assert found((1, 1), failing(0, 0), most=1)[:2] == ((0, 0), [(0, 0)])
