"""What the report of a reduction says of an answer."""

from __future__ import annotations

from runner.jobs.reduce.refinements import PASSES
from runner.jobs.reduce.run import told_once


def test_what_two_passes_did_is_said_once() -> None:
    values, shapes, again, attributes = PASSES[:4]
    assert told_once((values, shapes, again, attributes)) == f"{values} and {shapes} and {attributes}"
    assert told_once((shapes, again)) == f"{shapes} and {values}"
    assert told_once(()) == ""
