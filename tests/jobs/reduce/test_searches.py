"""The searches of a reduction by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.jobs.reduce.searches import SEARCHES, search_of, searching
from runner.schema.strategy import FirstEnd, SearchKind, StrategySettings
from runner.session.session import Session
from strategies.trial import Trial
from tests.session.test_session import needs, session


@pytest.mark.parametrize("kind", [kind for kind in SearchKind if kind not in SEARCHES])
def test_a_search_that_is_for_something_else_is_refused_with_those_that_fit(tmp_path: Path, kind: SearchKind) -> None:
    judge = session(tmp_path, needs(7)).judge
    with pytest.raises(UsageError, match=rf"strategy\.search={kind.value}: .* reduce, bisect, linear, minimal"):
        searching(StrategySettings(search=kind), FirstEnd.end, judge.subject, judge)


@pytest.mark.parametrize("kind", SEARCHES)
def test_each_search_finds_the_smallest_set(tmp_path: Path, kind: SearchKind) -> None:
    judge = session(tmp_path, needs(7, 9)).judge
    one = Session(judge, search_of(StrategySettings(search=kind)), find_min_good=False, hand_over=None)
    assert one.preflight() is None
    assert one.search().trial in (Trial.of([7, 9]), Trial.of([7, 8, 9]))
