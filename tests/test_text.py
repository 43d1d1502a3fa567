"""Texts of messages."""

from __future__ import annotations

import pytest

from runner.text import LARGEST, first_clauses, in_tolerances


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a (3 of 28\nnodes); cause proven", "a (3 of 28 nodes); cause proven"),
        ("a (3 of 28 nodes); cause proven on the whole model; not the target", "a (3 of 28 nodes); ..."),
        (f"{'name ' * 8}(3 of 28 nodes); cause proven", f"{'name ' * 8}(3 of 28 nodes); ..."),
        ("name " * 100, f"{'name ' * 79}..."),
    ],
)
def test_what_is_too_long_loses_its_last_clauses(text: str, told: str) -> None:
    assert first_clauses(text, 40) == told


def test_an_error_where_no_error_is_allowed_is_no_number() -> None:
    assert in_tolerances(4.321) == "4.32 times the tolerance"
    assert in_tolerances(LARGEST) == "beyond any tolerance"
