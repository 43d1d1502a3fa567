"""Exact sequences of trials for Boolean conditions."""

from __future__ import annotations

import pytest

from strategies.bisect import bisect
from strategies.repeat import repeat
from strategies.search import Answer, Outcome, Search, Space, Trial, answer_of
from tests.strategies.transcript import chain, transcript


def test_bisect_gives_up_where_nothing_is_answered() -> None:
    lines, done = transcript(chain(64), bisect(chain(64)), lambda _: None)
    assert len(lines) < 20
    assert done.trial == Trial.of(range(64))


@pytest.mark.parametrize(
    ("until", "bad_from", "iterations"), [("bad", 2, 3), ("good", 0, None), ("5", 3, 5), ("1", 0, 1), ("good", 1, 1)]
)
def test_repeat(until: str, bad_from: int, iterations: int | None) -> None:
    space = Space(())
    search = Search(space, repeat(until))
    count = 0
    while not search.done and count < 10:
        (question,) = search.ask(1)
        search.tell(question.trial, Answer.YES if min(question.trial.elements) >= bad_from else Answer.NO)
        count += 1
    assert count == (iterations if iterations is not None else 10)


@pytest.mark.parametrize(("until", "answered", "iterations"), [("bad", (), 20), ("good", (3,), 60), ("30", (), 30)])
def test_a_repeat_without_any_answer_ends(until: str, answered: tuple[int, ...], iterations: int) -> None:
    search = Search(Space(()), repeat(until))
    count = 0
    while not search.done and count < 60:
        (question,) = search.ask(1)
        search.tell(question.trial, Answer.YES if count in answered else Answer.UNKNOWN)
        count += 1
    assert count == iterations


@pytest.mark.parametrize("until", ["", "never", "0", "-1"])
def test_repeat_refuses_other_ends(until: str) -> None:
    with pytest.raises(ValueError, match="good, bad, or a number"):
        repeat(until)


def test_contradicting_answers_are_refused() -> None:
    space = chain(4)
    search = Search(space, bisect(space), {space.whole: Answer.YES})
    search.tell(Trial.of([0]), Answer.YES)
    with pytest.raises(ValueError, match="answered yes, now no"):
        search.tell(Trial.of([0]), Answer.NO)


def test_a_different_failure_is_a_no() -> None:
    assert answer_of(Outcome.DIFFERENT) is Answer.NO
    assert answer_of(Outcome.UNRESOLVED) is Answer.UNKNOWN
    assert answer_of(Outcome.PASS, wanted=Outcome.PASS) is Answer.YES
