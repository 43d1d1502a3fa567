"""What decides stands anywhere in what a check prints: long outputs, and patterns that never end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from runner.checkers import failure_text
from runner.checkers.checker import Tools
from runner.checkers.command import CommandCheck
from runner.checkers.exit_and_output import ExitRules
from runner.checkers.failure_text import UserPattern
from runner.disk_space import NoRoom, Room
from runner.judgment import UsageError
from runner.schema.checker import Better, CommandChecker
from runner.verdict import Verdict
from runner.workers import process_tree
from runner.workers.commands import CommandEnd
from runner.workers.process_tree import HEAD_BYTES, BoundedLog
from strategies.search import Outcome
from tests.checkers.conftest import MakeCandidate

NOISE = "a line of noise that says nothing, 0123456789\n" * (3 << 10)  # 141 KB
MIDDLE = """error 0.5
a MISMATCH of one
error 7.25
Traceback (most recent call last):
  File "check.py", line 7, in <module>
ValueError: not this one
cp: No space left on device
begin
end
error 0.25
"""
ENDED = CommandEnd(1, None, None, 1.0, 1.0)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an output the first 128 KiB and the last 192 KiB are kept anyway, not 1 MiB and 3 MiB."""
    monkeypatch.setattr(process_tree, "HEAD_BYTES", 2 << 16)
    monkeypatch.setattr(process_tree, "TAIL_BYTES", 3 << 16)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("output") / "output"
    path.write_text(NOISE + MIDDLE + 2 * NOISE)
    return path


def judged(output: Path, tmp_path: Path, *, growing: bool = False, **settings: object) -> tuple[Verdict, str]:
    rules = ExitRules(CommandChecker(command=["x"], **settings))  # type: ignore[arg-type]
    with (tmp_path / "log").open("ab+", buffering=0) as file:
        log = BoundedLog(file.fileno(), rules.telling())
        content = output.read_bytes()
        for at in range(0, len(content), 1 << 16):
            file.write(content[at : at + (1 << 16)])
            if growing:
                log.check()
        log.trim()
    text = (tmp_path / "log").read_text()
    assert len(text) < process_tree.HEAD_BYTES + process_tree.TAIL_BYTES + (1 << 16)
    assert "bytes left out" in text
    return rules.judge(ENDED, text, "check"), text


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("regex", ["MISMATCH", "^error 7", r"begin\nend$", r"7.25\n(.*\n)+?begin", r"(?s)one.*begin"])
def test_a_pattern_is_found_wherever_it_stands(
    output: Path, tmp_path: Path, regex: str, growing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "_FULL_BYTES", 1 << 16)
    monkeypatch.setattr(process_tree, "_BLOCK_BYTES", 2 << 16)
    verdict, _ = judged(output, tmp_path, growing=growing, fail_regex=[regex])
    assert verdict.signature is not None
    assert verdict.signature.kind == "regex"


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("regex", ["mismatch", r"^of one", r"MISMATCH$", r"\Aa MISMATCH", "left out now"])
def test_a_pattern_that_stands_nowhere_is_not_found(output: Path, tmp_path: Path, regex: str) -> None:
    verdict, _ = judged(output, tmp_path, fail_regex=[regex])
    assert verdict.outcome is Outcome.PASS


@pytest.mark.usefixtures("_small")
def test_the_worst_number_exceptions_and_a_full_disk_stay(output: Path, tmp_path: Path) -> None:
    verdict, text = judged(output, tmp_path, measure=r"error ([\d.]+)")
    assert "error 7.25" in text
    assert verdict.signature is not None
    assert verdict.signature.raised is not None
    assert verdict.signature.raised.where == ("ValueError at check.py:7",)
    lines = ExitRules(CommandChecker(command=["x"], measure=r"error ([\d.]+)", measure_better=Better.higher)).telling()
    lines.read(b"\n" + MIDDLE.encode())
    assert b"error 0.25" in lines.kept()
    # a full disk is noticed, too
    with pytest.raises(NoRoom, match="No space left"):
        Room(tmp_path).judge(Verdict(Outcome.FAIL, verdict.signature, log="log"))


def test_a_check_that_prints_megabytes(tools: Tools, candidate: MakeCandidate, output: Path) -> None:
    printed = f"text = open({str(output)!r}).read(); print(5 * text, text * 12)"
    command = [sys.executable, "-I", "-S", "-c", printed]
    check = CommandCheck(CommandChecker(command=command, fail_regex=["MISMATCH"], measure=r"error ([\d.]+)"), tools)
    verdict = check.check(candidate())
    assert verdict.outcome is Outcome.FAIL
    assert verdict.metrics["measure"] == 7.25


def test_a_long_line_is_searched_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "line"
    path.write_text("x" * (6 << 20) + " BAD " + "y" * (6 << 20))
    monkeypatch.setattr(process_tree, "_UNREAD_BYTES", 16 << 20)
    monkeypatch.setattr(process_tree, "_BLOCK_BYTES", 1 << 20)
    assert judged(path, tmp_path, fail_regex=["BAD"])[0].outcome is Outcome.FAIL


def test_what_came_too_fast_to_be_read_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "_UNREAD_BYTES", 1 << 20)
    rules = ExitRules(CommandChecker(command=["x"], fail_regex=["MISMATCH"]))
    with (tmp_path / "log").open("ab+", buffering=0) as file:
        file.write(b"line\n" * (2 * HEAD_BYTES))
        log = BoundedLog(file.fileno(), rules.telling())
        log.trim()
    assert log.unread
    verdict = rules.unread(CommandEnd(0, None, None, 1.0, 1.0, log.unread))
    assert verdict is not None
    assert verdict.outcome is Outcome.UNRESOLVED
    assert ExitRules(CommandChecker(command=["x"])).unread(CommandEnd(0, None, None, 1.0, 1.0, log.unread)) is None


def test_a_pattern_that_backtracks_for_ever_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_text, "MATCH_SECONDS", 0.01)
    rules = ExitRules(CommandChecker(command=["x"], fail_regex=["(a+)+$"]))
    with pytest.raises(UsageError, match=r"checker\.fail_regex: '\(a\+\)\+\$' took more than 0\.01 s of CPU"):
        rules.judge(ENDED, "a" * 5000 + "b", "check")


TEXTS = [
    "",
    "value {e}",
    "value x",
    "x{i<=2}",
    "[:a:]",
    "a]",
    "aab b",
    "a{}b",
    "<x>",
    "[a--b]]",
    "a&&b",
    "a^b",
    "\u2022 7",
    "ab\n",
    "}{",
]


PATTERNS = r"""
value {e}
x{i<=2}
[[:alpha:]]
a{,}b
(a{2}){,3}
\N{BULLET}
[[a]--[b]]
[a&&b]
{
a{}
(?P<x>a)(?P=x)
\<x\>
[]a]
[^]a]
[\]{]b
\{e
a{1,2}
(?i)VALUE
[a\[b]
(?x) a # {e}
}{
"""


@pytest.mark.parametrize("pattern", PATTERNS.strip().splitlines())
def test_patterns_are_read_as_python_reads_them(pattern: str, recwarn: pytest.WarningsRecorder) -> None:
    ours, python = UserPattern("fail_regex", pattern), re.compile(pattern, re.MULTILINE)
    for text in TEXTS:
        assert [match.span() for match in ours.every(text)] == [match.span() for match in python.finditer(text)], text
