"""What the report of a reduction says of an answer."""

from __future__ import annotations

from runner.jobs.reduce.reduce_summary import told_once
from runner.jobs.reduce.shrink.passes import PASSES


def test_what_two_passes_did_is_said_once() -> None:
    values, shapes, _ = PASSES
    assert told_once(PASSES) == f"{values} and {shapes}"
    assert told_once(PASSES[1:]) == f"{shapes} and {values}"
    assert told_once(()) == ""
