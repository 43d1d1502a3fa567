"""Progress: the log lines, and the live view on a terminal of our own."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from runner.cli import logs
from runner.report.progress import LiveObserver, LogObserver, line, observer
from runner.schema.run import LogSettings


def test_the_line_of_a_check() -> None:
    text = line(12, "window 40..97", "fail", 0.311, 58, 7)
    assert text == "[12] window 40..97 (58 nodes): FAIL in 0.31 s, about 7 checks left"
    assert line(1, "a", "pass", 1, 1, 1) == "[1] a (1 node): PASS in 1.00 s, about 1 check left"
    assert line(1, "a", "pass", 1, None, None) == "[1] a: PASS in 1.00 s"
    assert line(1, "a\n\x1b[2J", "pass", 1, 2, 0, "layers").count("\n") == 0
    assert "\x1b" not in line(1, "\x1b[2J", "pass", 1, 2, 0)


def test_log_lines_only_where_there_is_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    out = io.StringIO()
    watcher = observer(Console(file=out))
    assert type(watcher) is LogObserver
    watcher.started("search", 9)
    watcher.checked(1, "search", "prefix 0..4", "pass", 0.5, 5, 8)
    watcher.finished()
    assert caplog.messages == [
        "search: about 9 checks",
        "[1] prefix 0..4 (5 nodes): PASS in 0.50 s, about 8 checks left",
    ]
    assert out.getvalue() == ""


def test_a_live_view_on_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    watcher = observer(console)
    assert isinstance(watcher, LiveObserver)
    watcher.checked(1, "trust", "whole model", "fail", 0.5)
    watcher.started("pre-flight", None)
    watcher.started("search", 3)
    for iteration in range(1, 6):
        watcher.checked(iteration, "search", "[bold]prefix 0..4", "pass", 0.5, 5, 3)
    watcher.finished()
    watcher.finished()
    assert "[bold]prefix" in out.getvalue()
    assert "5/8" in out.getvalue()
    assert len(caplog.messages) == 8


def test_no_live_view_where_the_log_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="runner.report.progress")
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    assert type(observer(console)) is LogObserver


@pytest.mark.parametrize(
    ("verbosity", "kind"), [("silent", LogObserver), ("warning", LogObserver), ("info", LiveObserver)]
)
def test_no_live_view_where_only_the_terminal_is_quiet(
    verbosity: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files get every line whatever the verbosity, so the level of the logger says nothing about the terminal."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    logs.configure(LogSettings(), logs.levels(verbosity))
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    assert type(observer(console)) is kind
