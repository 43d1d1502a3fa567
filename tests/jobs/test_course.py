"""What a run does besides its search, by its settings."""

from __future__ import annotations

import pytest

from runner.jobs.course import ALONE, course
from runner.jobs.precision.sample_rounds import MOST_ALONE
from runner.schema.checker import FiniteChecker
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings, ReduceSettings, RepeatSettings, TacticRepeatSettings


def test_nodes_are_lowered_alone_as_often_as_a_precision_search_does_at_most() -> None:
    found = course(Settings(strategy=PrecisionSettings(), checker=FiniteChecker()), 99, 1, step=False)
    assert found.alone == ALONE == MOST_ALONE


@pytest.mark.parametrize("kind", [RepeatSettings, TacticRepeatSettings])
@pytest.mark.parametrize(("until", "repeats"), [("20", 20), ("bad", 0)])
def test_a_repeat_has_so_many_checks_and_no_others(kind: type, until: str, repeats: int) -> None:
    found = course(Settings(strategy=kind(until=until), checker=FiniteChecker()), 0, 1, step=False)
    assert (found.repeats, found.handed, found.good, found.second) == (repeats, 0, 0, False)


def test_a_search_repeats_nothing() -> None:
    assert course(Settings(strategy=ReduceSettings(), checker=FiniteChecker()), 9, 1, step=False).repeats is None
