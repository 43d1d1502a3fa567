"""A search is found by its declaration: no list names it."""

from __future__ import annotations

from pathlib import Path

import pytest

import strategies
from strategies.registry import SEARCHES, _declared, for_tasks
from strategies.search import Claim, Options, Space, Task
from tests.strategies.transcript import drive


def test_searches_by_what_they_are_for() -> None:
    assert for_tasks([Task.SUBSET]) == ["bisect", "linear", "minimal", "reduce"]
    assert for_tasks([Task.RAISE]) == ["precision", "precision_bisect", "precision_linear"]
    assert for_tasks([Task.REPEAT]) == ["repeat"] and for_tasks([]) == []


@pytest.mark.parametrize("name", for_tasks([Task.SUBSET, Task.RAISE]))
def test_all_begin_in_the_same_way_and_find_a_culprit(name: str) -> None:
    space = Space(tuple(range(6)), tuple((number - 1,) if number else () for number in range(6)))
    done, _ = drive(space, SEARCHES[name].begin(space, Options()), lambda elements: 3 in elements, 1)
    assert done.trial is not None and 3 in done.trial and done.claim in (Claim.ONE_MINIMAL, Claim.WINDOW)


def test_a_new_search_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole_only.py").write_text(
        "from strategies.search import Procedure, Task\n"
        "from strategies.search import Claim, Done\n"
        'WHOLE = Procedure("whole", Task.SUBSET, lambda space, options: Done(space.whole, Claim.WINDOW))\n'
    )
    monkeypatch.setattr(strategies, "__path__", [*strategies.__path__, str(tmp_path)])
    assert {procedure.name for procedure in _declared()} == {*SEARCHES, "whole"}
