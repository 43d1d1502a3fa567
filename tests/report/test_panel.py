"""The panel: its lines, and how it looks in a real terminal of 80, 120 and 200 columns."""

from __future__ import annotations

import io
import itertools
import logging
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.logging import RichHandler

from runner.report.panel import MOST_SAID, Panel, getting_ready
from runner.report.progress import Outline
from runner.verdict import CHECK_OUTPUT
from strategies.search import Outcome
from tests.report.terminal_captures import Tmux, run_line, settled
from tests.report.test_progress import OUTLINE, checked, terminal


def shown(panel: Panel, width: int = 100) -> list[str]:
    return [line.plain for line in panel.lines(width)]


def panel_of(outline: Outline = OUTLINE, noun: str = "nodes") -> Panel:
    made = Panel("reduce", noun, outline, terminal(), clock=itertools.count(1.0).__next__)
    made.finished()  # nothing is drawn by itself here
    return made


@pytest.fixture
def panel() -> Panel:
    return panel_of()


def test_what_it_says_of_a_run(panel: Panel) -> None:
    assert shown(panel)[2] == "of 100 nodes: nothing smaller yet"
    assert "known after the pre-flight" in shown(panel)[3]
    panel.checked(checked(Outcome.FAIL, number=2, kept=58, left=16), 58)
    panel.checked(checked(Outcome.PASS, number=3, kept=20, left=15), 20)
    panel.checked(checked(Outcome.UNRESOLVED, number=4, kept=30, left=14, reason="no [bold]value\x1b[2J"), 30)
    _, head, found, to_come, last, why = shown(panel)
    assert head.startswith("reduce  ") and head.endswith("trying to leave out one node after the other")
    assert found == "smallest that fails so far: 58 of 100 nodes: n0, n1, n2 and 55 more"
    assert to_come.startswith("checks: 3 done, ") and "left    time left: about " in to_come
    assert last == "last: F P U  (F fail, P pass, U unresolved)"  # a letter each: colors may be off
    assert why == "unresolved: 1 x no [bold]value\\x1b[2J"
    assert not any("\n" in line or "\x1b" in line for line in shown(panel))


def test_an_answer_inside_a_node_is_another_thing_than_the_set_of_nodes(panel: Panel) -> None:
    panel.checked(checked(Outcome.FAIL, kept=1, left=2), 1)
    body = checked(Outcome.FAIL, kept=9, left=2)
    object.__setattr__(body, "of", "a body")
    panel.checked(body, 9)
    assert "9 of 100 nodes" in shown(panel)[2]


def test_what_a_check_says_is_shown_where_it_is_new_and_lines_of_checks_with_debug_only() -> None:
    console = terminal()
    handler, log = RichHandler(console=console), logging.getLogger("runner")
    log.addHandler(handler)
    try:
        panel = Panel("reduce", "nodes", OUTLINE, console, (handler,))
        for number in range(1, 40):
            panel.checked(checked(Outcome.FAIL, number=number, reason=f"line {number} is wrong"), 1)
        for letter in "abcdefghijklmnopqrstuvwxyz":
            panel.checked(checked(Outcome.DIFFERENT, reason=letter), 1)
        panel.finished()
        log.warning("shown")
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert text.count("is wrong") == 1 and "line 1 is wrong" in text
        assert sum(f"different\x1b[0m: {letter}\n" in text for letter in "abcdefghijklmnopqrstuvwxyz") == MOST_SAID - 1
        assert "FAIL in" not in text and "shown" in text and not handler.filters
    finally:
        log.removeHandler(handler)


def test_what_a_check_prints_stands_there_once_and_not_again_as_what_it_says() -> None:
    console = terminal()
    handler, log = RichHandler(console=console), logging.getLogger("runner.checkers.command")
    file = logging.Handler()
    in_file: list[str] = []
    file.emit = lambda record: in_file.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("runner").addHandler(handler)
    logging.getLogger("runner").addHandler(file)
    try:
        panel = Panel("reduce", "nodes", OUTLINE, console, (handler,))
        for number in range(1, 9):
            said = f"value 0.{number} is wrong"
            log.warning("iteration %d, output:\n%s", number, said, extra={CHECK_OUTPUT: said})
            panel.checked(checked(Outcome.FAIL, number=number, reason=said), 1)
        log.warning("output:\nmore", extra={CHECK_OUTPUT: "more"})
        panel.finished()
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert text.count("is wrong") == 1 and "more" in text
        assert sum("is wrong" in line for line in in_file) == 8  # a file has all
    finally:
        logging.getLogger("runner").removeHandler(handler)
        logging.getLogger("runner").removeHandler(file)


def test_a_repeat_says_how_often_it_fails_and_no_smallest_set() -> None:
    panel = panel_of(Outline(repeats=True), "iterations")
    assert "left" not in shown(panel)[3] or "known" in shown(panel)[3]
    for outcome in (Outcome.FAIL, Outcome.PASS, Outcome.FAIL):
        panel.checked(checked(outcome, phase="repeat", left=3), 1)
    assert shown(panel)[2] == "fails so far: 2 of 3 (67%)"
    assert "3 done, 3 left " in shown(panel)[3]


def test_it_is_drawn_while_checks_end(panel: Panel) -> None:
    """By another thread: what it shows is made as a check ends."""
    failed, before, over = [], sys.getswitchinterval(), threading.Event()

    def draw() -> None:
        try:
            while not over.is_set():
                shown(panel)
        except RuntimeError as error:
            failed.append(error)

    drawing = threading.Thread(target=draw)
    sys.setswitchinterval(1e-6)
    try:
        drawing.start()
        for number in range(300):
            panel.checked(checked(Outcome.UNRESOLVED, number=number, left=9, reason="x" * (number + 1)), number)
    finally:
        sys.setswitchinterval(before)
        over.set()
        drawing.join()
    assert not failed


def test_no_time_is_shown_where_none_is_known(panel: Panel) -> None:
    panel.checked(checked(Outcome.UNRESOLVED, 0.0, number=0, kept=3, left=30), 3)
    assert " left" in shown(panel)[3] and "time left" not in shown(panel)[3]


def test_no_letter_has_a_color_where_nobody_wants_any(panel: Panel) -> None:
    console = terminal(NO_COLOR="1")
    panel.checked(checked(Outcome.FAIL, left=2), 1)
    with console.capture() as captured:
        console.print(panel)
    text = captured.get()
    assert "last: " in text and "\x1b[31m" not in text and "1;31" not in text


def test_a_step_of_a_triage_says_that_it_is_one() -> None:
    panel = panel_of(Outline(100, step=True))
    panel.checked(checked(Outcome.FAIL, kept=3, left=30), 3)
    assert "time left of this step: about " in shown(panel)[3]


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


HELD = """
import pathlib, time
here = pathlib.Path({here!r})
with (here / "count").open("a") as count:
    count.write("x")
    many = count.tell() > 15
while many and not (here / "seen").exists():
    time.sleep(0.01)
"""


def held_in_the_search(place: Path) -> None:
    """Make the check wait in the middle of the search until there is a file ``seen``."""
    check = place / "check.py"
    check.write_text(HELD.format(here=str(place)) + check.read_text())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_in_a_real_terminal(tmp_path: Path) -> None:
    width = 80
    with Tmux(width, 30, tmp_path) as terminal:
        terminal.type(settled(tmp_path))
        line = run_line(tmp_path, 0.05)
        held_in_the_search(tmp_path)
        terminal.type(line)
        during = terminal.waited("time left: ").splitlines()
        (tmp_path / "seen").touch()
        assert max(map(len, during)) <= width
        assert sum("checks: " in line and " done, " in line for line in during) == 1
        terminal.resize(width - 20, 30)  # what is below stays below
        after = terminal.waited("report.html").replace("\n", "")
        assert "time left" not in after and "last: " not in after  # it is taken down
        assert "n30" in after and "FAIL in" not in after
    (log,) = tmp_path.glob("outputs/*/*/winnow.log")
    assert log.read_text().count(" FAIL in ") > 10


RESIZED = """
import sys, time
from pathlib import Path
from rich.console import Console
from runner.report.panel import Panel
from strategies.search import Outcome
from tests.report.test_progress import OUTLINE, checked
console = Console(force_terminal=True)
panel = Panel("reduce " + "n" * 60, "nodes", OUTLINE, console)
for number in range(40):  # tmux pushes what is wrapped out at the top, where no program reaches it
    print("line", number)
console.print("what stood there before")
panel.checked(checked(Outcome.UNRESOLVED, reason="no value " * 20), 1)
while not Path("narrow").exists():
    time.sleep(0.01)
console.print("what the log says next")
while not Path("over").exists():
    time.sleep(0.01)
panel.finished()
print("over")
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")
def test_a_terminal_that_becomes_narrower_keeps_no_line_of_the_panel(tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text(RESIZED)
    with Tmux(100, 30, tmp_path) as terminal:
        terminal.type(settled(tmp_path))
        terminal.type("env -u COLUMNS -u LINES python shows.py")
        terminal.waited("unresolved: ")
        for width in (60, 41, 90, 50):
            terminal.resize(width, 30)
            terminal.waited("\u2500" * min(width, 60))
            time.sleep(1)  # so that it is drawn again, and more than once
            text = terminal.shown(scrolled=True)
            words = ("stood there before\n", "reduce n", "last: ", "unresolved: ")
            assert [text.count(word) for word in words] == [1] * len(words), text
            assert text.count("\u2500") == min(width, 60), text
        (tmp_path / "narrow").touch()
        terminal.waited("what the log says next")
        (tmp_path / "over").touch()
        terminal.waited("\nover")
        text = terminal.shown(scrolled=True)
    assert "last:" not in text and "\u2500" not in text
    assert text.count("what stood there before\n") == text.count("what the log says next\n") == 1
