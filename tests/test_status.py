"""Statuses and exit codes of runs."""

from __future__ import annotations

import pytest

from runner.disk_space import NoRoom
from runner.exit_codes import ANSWERED, ENDED_WELL, CannotJudge, NotApplicable, Status, UsageError, WinnowError


def test_the_exit_codes_are_those_that_are_documented() -> None:
    assert {one.value: one.exit_code for one in Status} == {
        "found": 0, "planned": 0, "internal_error": 1, "no_room": 1, "usage": 2, "could_not_judge": 3,
        "nothing_to_find": 4, "no_set_suffices": 5, "not_applicable": 6, "not_as_expected": 7,
        "suspected": 8, "reference_wrong": 9, "interrupted": 130,
    }  # fmt: skip
    assert {0, 4, 5, 6, 8, 9} == ENDED_WELL
    assert {"found", "suspected", "reference_wrong"} == ANSWERED


@pytest.mark.parametrize("kind", [WinnowError, UsageError, CannotJudge, NotApplicable, NoRoom])
def test_an_error_has_the_exit_code_of_its_status(kind: type[WinnowError]) -> None:
    assert (kind.exit_code, kind("why").exit_code) == (kind.status.exit_code,) * 2
