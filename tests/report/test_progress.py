"""Checks left, and about how long they take."""

from __future__ import annotations

import pytest

from runner.jobs.precision.sample_rounds import MOST_ALONE
from runner.jobs.summary import checks_after
from runner.report.progress import Outline, Progress, checks_left, clock_time
from runner.schema.checker import FiniteChecker
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings, ReduceSettings, RepeatSettings, TacticRepeatSettings
from strategies.search import Outcome
from tests.report.test_observer import checked


def test_what_the_search_has_left_and_what_follows_it_cost_what_checks_did_in_the_median() -> None:
    found = Progress(Outline(follow=lambda searched: 2 + searched // 10))
    found.add(checked(Outcome.FAIL, 50.0, phase="pre-flight", left=3))
    assert found.left is None and found.seconds() is None  # how many questions there are is not known
    for left in (11, 10, 9):
        found.add(checked(Outcome.FAIL, 2.0, left=left))
    assert (found.left, found.seconds(), found.seconds(1.5)) == (12, 24.0, 22.5)
    found.add(checked(Outcome.PASS, 2.0, left=0))
    found.add(checked(Outcome.PASS, 2.0, phase="doubt", left=5))
    assert found.left == 5 + 2
    found.add(checked(Outcome.PASS, 2.0, phase="doubt", left=0))
    found.add(checked(Outcome.FAIL, 2.0, phase="re-check", left=4))
    assert (found.left, found.seconds()) == (1, 2.0)
    found.add(checked(Outcome.FAIL, 2.0, phase="cause"))
    found.add(checked(Outcome.FAIL, 2.0, phase="cause"))
    assert found.left == 0


def test_several_at_once_take_less_and_what_took_no_time_says_nothing_of_it() -> None:
    found = Progress(Outline(workers=4))
    found.add(checked(Outcome.UNRESOLVED, 0.0, left=9))
    assert (found.left, found.seconds()) == (9, None)
    found.add(checked(Outcome.FAIL, 8.0, left=8))
    assert found.seconds() == 16.0


@pytest.mark.parametrize(
    ("left", "seconds", "words"),
    [
        (None, None, ""),
        (0, 0.0, ""),
        (1, None, "1 check left"),
        (9, 0.2, "9 checks left (about 0.2 s)"),
        (9, 102.0, "9 checks left (about 1 min 42 s)"),
        (9, 1020.0, "9 checks left (about 17 min)"),
        (900, 6000.0, "900 checks left (about 1 h 40 min)"),
    ],
)
def test_in_words(left: int | None, seconds: float | None, words: str) -> None:
    assert checks_left(left, seconds) == words


def test_time_that_has_passed() -> None:
    assert [clock_time(one) for one in (7.9, 65, 3605)] == ["7 s", "1:05", "1:00:05"]


def test_nodes_are_lowered_alone_as_often_as_a_precision_search_does_at_most() -> None:
    settings = Settings(strategy=PrecisionSettings(), checker=FiniteChecker())
    assert checks_after(settings, 999) - checks_after(settings, 0) == MOST_ALONE


@pytest.mark.parametrize(("kind", "follow"), [(RepeatSettings, 0), (TacticRepeatSettings, 0), (ReduceSettings, 7)])
def test_nothing_follows_a_repeat(kind: type, follow: int) -> None:
    assert checks_after(Settings(strategy=kind(), checker=FiniteChecker()), 8) == follow
