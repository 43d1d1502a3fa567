"""The last line of a run: what was found, in how many nodes, and what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.task import _say
from runner.report.summary import Summary
from runner.status import Status


@pytest.mark.parametrize(
    ("status", "line"),
    [(Status.found, "found: a, b (2 of 98 nodes); so"), (Status.interrupted, "interrupted: 2 of 98 nodes; so")],
)
def test_nodes_that_are_counted_stand_behind_those_that_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: Status, line: str
) -> None:
    told = Summary(status, status.exit_code, "reduce", "so", culprits=("a", "b"), nodes_after=2, nodes_before=98)
    _say(told, tmp_path, 0)
    said = capsys.readouterr()
    assert f"#0 {line} [" in said.out + said.err
