"""What a terminal shows before the first check."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from runner.report.panel import getting_ready
from tests.report.test_observer import terminal


def test_a_terminal_shows_for_how_long_and_takes_it_down(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    times = iter([0.0, *[7.0] * 99])
    console = terminal()
    with getting_ready("reduce", console, lambda: next(times)) as shown:
        shown.close()
        text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "reduce  7 s  getting ready: reading the model, recording values" in text
    assert text == console.file.getvalue()  # type: ignore[attr-defined]  # closed once


def test_nothing_else_does() -> None:
    out = io.StringIO()
    with getting_ready("reduce", Console(file=out)):
        pass
    assert out.getvalue() == ""
