"""Progress: the log lines, and the live view on a terminal of our own."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from runner.cli import logs
from runner.report.progress import LiveObserver, LogObserver, observer
from runner.schema.run import LogSettings
from runner.verdict import Verdict
from strategies.outcome import Outcome


def verdict(outcome: Outcome, seconds: float = 1.0, reason: str = "") -> Verdict:
    return Verdict(outcome, reason=reason, seconds=seconds)


def test_the_line_of_a_check(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    passes, unknown = verdict(Outcome.PASS, reason="said"), verdict(Outcome.UNRESOLVED, reason="why\n\x1b[2J")
    nodes, layers = LogObserver("reduce", "nodes"), LogObserver("reduce", "layers")
    nodes.checked(12, "window 40..97", verdict(Outcome.FAIL, 0.311), 58, 7)
    nodes.checked(1, "a", passes, 1, 1)
    nodes.checked(0, "a", passes, 1, None)
    layers.checked(1, "a\n\x1b[2J", unknown, 2, 0)
    assert caplog.messages[2:] == [
        "[12] window 40..97 (58 nodes): FAIL in 0.31 s, about 7 checks left",
        "[1] a (1 node): PASS in 1.00 s, about 1 check left",
        "[-] a (1 node): PASS in 1.00 s",
        "[1] a \\x1b[2J (2 layers): UNRESOLVED in 1.00 s, about 0 checks left (why \\x1b[2J)",
    ]


def test_log_lines_only_where_there_is_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    out = io.StringIO()
    watcher = observer("search", "nodes", Console(file=out))
    assert type(watcher) is LogObserver
    watcher.checked(1, "prefix 0..4", verdict(Outcome.PASS, 0.5), 5, 8)
    watcher.finished()
    assert caplog.messages == [
        "search",
        "[1] prefix 0..4 (5 nodes): PASS in 0.50 s, about 8 checks left",
    ]
    assert out.getvalue() == ""


def test_a_live_view_on_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    watcher = observer("search", "nodes", console)
    assert isinstance(watcher, LiveObserver)
    for iteration in range(1, 6):
        watcher.checked(iteration, "[bold]prefix 0..4", verdict(Outcome.PASS, 0.5), 5, 3)
    watcher.finished()
    watcher.finished()
    assert "[bold]prefix" in out.getvalue()
    assert "5/8" in out.getvalue()
    assert len(caplog.messages) == 6


def test_no_live_view_where_the_log_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="runner.report.progress")
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    assert type(observer("reduce", "nodes", console)) is LogObserver


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
    assert type(observer("reduce", "nodes", console)) is kind
