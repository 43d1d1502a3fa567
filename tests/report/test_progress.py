"""Checks left and how long they take, lines of a log for each check, and who gets a panel."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from runner.cli import logs
from runner.jobs.precision.sample_rounds import MOST_ALONE
from runner.jobs.summary import checks_after
from runner.report.panel import Panel, observer
from runner.report.progress import Checked, LogObserver, Outline, Progress, checks_left, clock_time
from runner.schema.checker import FiniteChecker
from runner.schema.root import LogSettings, Settings
from runner.schema.strategy import PrecisionSettings, ReduceSettings, RepeatSettings, TacticRepeatSettings
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


def test_what_the_search_has_left_and_what_follows_it_cost_what_checks_did_in_the_median() -> None:
    found = Progress(Outline(follow=lambda searched: 2 + searched // 10))
    found.add(checked(Outcome.FAIL, 50.0, phase="pre-flight", left=3))
    assert found.left is None and found.seconds() is None  # how many questions there are is not known
    for left in (11, 10, 9):
        found.add(checked(Outcome.FAIL, 2.0, left=left))
    assert (found.left, found.seconds(), found.seconds(1.5)) == (12, 24.0, 22.5)
    found.add(checked(Outcome.PASS, 2.0, left=0))
    found.add(checked(Outcome.PASS, 2.0, phase="doubt", left=5))
    assert found.left == 5 + 2
    found.add(checked(Outcome.PASS, 2.0, phase="doubt", left=0))
    found.add(checked(Outcome.FAIL, 2.0, phase="re-check", left=4))
    assert (found.left, found.seconds()) == (1, 2.0)
    found.add(checked(Outcome.FAIL, 2.0, phase="cause"))
    found.add(checked(Outcome.FAIL, 2.0, phase="cause"))
    assert found.left == 0


def test_several_at_once_take_less_and_what_took_no_time_says_nothing_of_it() -> None:
    found = Progress(Outline(workers=4))
    found.add(checked(Outcome.UNRESOLVED, 0.0, left=9))
    assert (found.left, found.seconds()) == (9, None)
    found.add(checked(Outcome.FAIL, 8.0, left=8))
    assert found.seconds() == 16.0


@pytest.mark.parametrize(
    ("left", "seconds", "words"),
    [
        (None, None, ""),
        (0, 0.0, ""),
        (1, None, "1 check left"),
        (9, 0.2, "9 checks left (about 0.2 s)"),
        (9, 102.0, "9 checks left (about 1 min 42 s)"),
        (9, 1020.0, "9 checks left (about 17 min)"),
        (900, 6000.0, "900 checks left (about 1 h 40 min)"),
    ],
)
def test_in_words(left: int | None, seconds: float | None, words: str) -> None:
    assert checks_left(left, seconds) == words


def test_time_that_has_passed() -> None:
    assert [clock_time(one) for one in (7.9, 65, 3605)] == ["7 s", "1:05", "1:00:05"]


def test_nodes_are_lowered_alone_as_often_as_a_precision_search_does_at_most() -> None:
    settings = Settings(strategy=PrecisionSettings(), checker=FiniteChecker())
    assert checks_after(settings, 999) - checks_after(settings, 0) == MOST_ALONE


@pytest.mark.parametrize(("kind", "follow"), [(RepeatSettings, 0), (TacticRepeatSettings, 0), (ReduceSettings, 7)])
def test_nothing_follows_a_repeat(kind: type, follow: int) -> None:
    assert checks_after(Settings(strategy=kind(), checker=FiniteChecker()), 8) == follow
