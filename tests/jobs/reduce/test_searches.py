"""The searches of a reduction by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine.session import Session
from runner.jobs.reduce.run import searching
from runner.schema.strategy import FirstEnd, ReduceSettings
from strategies.registry import for_tasks
from strategies.search import Trial
from tests.engine.test_session import needs, session


@pytest.mark.parametrize("kind", for_tasks(ReduceSettings.tasks))
def test_each_search_finds_the_smallest_set(tmp_path: Path, kind: str) -> None:
    judge = session(tmp_path, needs(7, 9)).judge
    search = searching(ReduceSettings(search=kind), FirstEnd.end, judge.subject, judge)
    one = Session(judge, search, find_min_good=False, hand_over=None)
    assert one.preflight() is None
    assert one.search().trial in (Trial.of([7, 9]), Trial.of([7, 8, 9]))
