"""A run of many checks: nothing is left open, and its folder grows by little. ``benchmarks.long_run`` does 10,000."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.long_run import MOST_FOLDER, MOST_MEMORY, Row, flat, growth, watch


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has open is read from /proc")
def test_a_run_of_200_checks(tmp_path: Path) -> None:
    rows = watch(tmp_path / "run", 200, 40)
    found = growth(rows)
    assert flat(found | {"memory": 0.0}), found  # so few checks say nothing about memory


def test_the_judge_sees_what_grows() -> None:
    first = Row(1000, 8, 2, 60 << 20, 1 << 20, 10)
    last = replace(first, checks=2000, folder=(1 << 20) + 1000 * MOST_FOLDER)
    assert flat(growth([first, last]))
    for grown in (
        replace(last, files=20),
        replace(last, threads=3),
        replace(last, memory=(60 << 20) + 1001 * MOST_MEMORY),
        replace(last, folder=last.folder + 1000),
        replace(last, entries=1010),
    ):
        assert not flat(growth([first, grown]))
