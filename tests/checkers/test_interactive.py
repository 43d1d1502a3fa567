from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.checkers.interactive import InteractiveCheck
from runner.schema.checker import InteractiveChecker
from strategies.search import Outcome
from tests.checkers.conftest import Here


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A real terminal as standard input; what is written to the descriptor is typed."""
    keyboard, screen = pty.openpty()
    with os.fdopen(screen, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield keyboard
    os.close(keyboard)


@pytest.mark.parametrize(
    ("typed", "outcome", "asked"),
    [
        ("p\n", Outcome.PASS, 1),
        ("Fail\n", Outcome.FAIL, 1),
        ("d\n", Outcome.DIFFERENT, 1),
        ("s\n", Outcome.UNRESOLVED, 1),
        ("x\n\n zebra\n  pass\n", Outcome.PASS, 4),
    ],
)
def test_the_first_letter_counts_and_nonsense_is_asked_again(
    here: Here, terminal: int, capsys: pytest.CaptureFixture[str], typed: str, outcome: Outcome, asked: int
) -> None:
    os.write(terminal, typed.encode())
    verdict = InteractiveCheck(InteractiveChecker(), here).check(here.candidate(Path("/somewhere/model.onnx")))
    assert verdict.outcome is outcome
    assert (verdict.signature is not None) is (outcome is Outcome.FAIL)
    said = capsys.readouterr().out
    assert "/somewhere/model.onnx" in said and "model 1: 2 nodes\n" in said
    assert said.count("Please answer") == asked - 1


def test_the_end_of_input_stops_cleanly(here: Here, terminal: int) -> None:
    check = InteractiveCheck(InteractiveChecker(), here)
    os.write(terminal, b"\x04")
    with pytest.raises(KeyboardInterrupt):
        check.check(here.candidate())
