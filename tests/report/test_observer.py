"""Lines of a log for each check, and who gets a panel."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from runner.cli import logs
from runner.report.panel import Panel, observer
from runner.report.progress import Checked, LogObserver, Outline
from runner.schema.root import LogSettings
from runner.verdict import Signature, Verdict
from strategies.search import Outcome, Trial

OUTLINE = Outline(100, follow=lambda searched: 3)


def checked(
    outcome: Outcome,
    seconds: float = 1.0,
    *,
    number: int = 1,
    label: str = "a",
    kept: int = 1,
    left: int | None = None,
    reason: str = "why\n\x1b[2J",
    phase: str = "one at a time",
) -> Checked:
    signature = Signature("check", "exit 1") if outcome is Outcome.FAIL else None
    verdict = Verdict(outcome, signature, reason, seconds=seconds)
    names = tuple(f"n{index}" for index in range(kept))
    return Checked(number, phase, label, verdict, Trial.of(range(kept)), left, lambda: names)


def terminal(width: int = 100, **environment: str) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, _environ={"TERM": "xterm", **environment})


def test_the_line_of_a_check(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    nodes = LogObserver("bisect", "nodes", OUTLINE)
    layers = LogObserver("precision", "layers", OUTLINE)
    nodes.checked(checked(Outcome.FAIL, 0.31, number=12, label="keep 40..97", kept=58, left=16), 58)
    nodes.checked(checked(Outcome.PASS, number=0, left=1), 1)
    layers.checked(checked(Outcome.UNRESOLVED, label="a\n\x1b[2J", phase="pre-flight"), 2)
    layers.checked(checked(Outcome.PASS, label="the part of 11 layers"), 11)
    layers.checked(checked(Outcome.PASS, label="the part of 11 layers"), 1)
    assert caplog.messages[2:] == [
        "[12] keep 40..97 (58 nodes): FAIL in 0.31 s, 19 checks left (about 5.9 s)",
        "[-] a (1 node): PASS in 1.00 s, 4 checks left (about 2.6 s)",
        "[1] a \\x1b[2J (2 layers): UNRESOLVED in 1.00 s (why \\x1b[2J)",
        "[1] the part of 11 layers: PASS in 1.00 s",
        "[1] the part of 11 layers (1 layer): PASS in 1.00 s",
    ]


def test_log_lines_only_where_there_is_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    out = io.StringIO()
    watcher = observer("search", "nodes", OUTLINE, Console(file=out))
    assert type(watcher) is LogObserver
    watcher.checked(checked(Outcome.PASS, 0.5, kept=5), 5)
    watcher.finished()
    assert len(caplog.messages) == 2
    assert out.getvalue() == ""


@pytest.mark.parametrize(("verbosity", "kind"), [("silent", LogObserver), ("warning", LogObserver), ("info", Panel)])
def test_no_panel_where_only_the_terminal_is_quiet(verbosity: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files get every line whatever the verbosity, so the level of the logger says nothing about the terminal."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    logs.configure(LogSettings(), logs.levels(verbosity))
    watcher = observer("reduce", "nodes", OUTLINE, terminal())
    watcher.finished()
    assert type(watcher) is kind
    assert type(observer("reduce", "nodes", OUTLINE, terminal(TERM="dumb"))) is LogObserver
