"""A search is found by its declaration: no list names it."""

from __future__ import annotations

from pathlib import Path

import pytest

import strategies
from strategies.registry import SEARCHES, _declared, for_tasks
from strategies.search import Task


def test_searches_by_what_they_are_for() -> None:
    assert for_tasks([Task.SUBSET]) == ["bisect", "linear", "minimal", "reduce"]
    assert for_tasks([Task.RAISE]) == ["precision", "precision_bisect", "precision_linear"]
    assert for_tasks([Task.REPEAT]) == ["repeat"] and for_tasks([]) == []


def test_a_new_search_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole_only.py").write_text(
        "from strategies.search import Procedure, Task\n"
        "from strategies.search import Claim, Done\n"
        'WHOLE = Procedure("whole", Task.SUBSET, lambda space, options: Done(space.whole, Claim.WINDOW))\n'
    )
    monkeypatch.setattr(strategies, "__path__", [*strategies.__path__, str(tmp_path)])
    assert {procedure.name for procedure in _declared()} == {*SEARCHES, "whole"}
