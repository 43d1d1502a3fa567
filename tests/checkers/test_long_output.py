"""What decides stands anywhere in what a check prints: long outputs, and patterns that never end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from runner.checkers import failure_text
from runner.checkers.command import CommandCheck
from runner.checkers.exit_and_output import ExitRules
from runner.checkers.failure_text import UserPattern
from runner.exit_codes import UsageError
from runner.schema.checker import CommandChecker
from runner.workers.commands import CommandEnd
from runner.workers.process_tree import BoundedLog
from strategies.search import Outcome
from tests.checkers.conftest import Here

ENDED = CommandEnd(1, None, None, 1.0, 1.0)


@pytest.mark.parametrize(("before", "outcome"), [(15 << 20, Outcome.FAIL), (40 << 20, Outcome.UNRESOLVED)])
def test_words_in_the_middle_of_a_long_output(here: Here, before: int, outcome: Outcome) -> None:
    """32 MiB are searched, and 4 stay; where more was printed, a failure may have been missed."""
    printed = f"print('noise\\n' * {before // 6}); print('error 7.25\\nMISMATCH'); print('noise\\n' * {before // 6})"
    rules = {"fail_regex": ["7.25\nMISM"], "measure": r"error ([\d.]+)"}
    check = CommandCheck(CommandChecker(command=[sys.executable, "-ISc", printed], **rules), here)  # type: ignore[arg-type]
    verdict = check.check(here.candidate())
    assert verdict.outcome is outcome
    assert verdict.metrics.get("measure") == (7.25 if outcome is Outcome.FAIL else None)
    assert ("MiB of its output were left out" in verdict.reason) is (outcome is Outcome.UNRESOLVED)
    assert verdict.log
    text = (here.run_folder / verdict.log).read_text()
    assert len(text) < 5 << 20
    left_out = re.search(r"\n\[\.\.\. (\d+) bytes left out \.\.\.\]\nnoise", text)
    assert left_out and int(left_out[1]) == pytest.approx(2 * before + 21 - len(text), abs=100)


def test_the_middle_is_given_back_while_a_process_prints(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab+", buffering=0) as file:
        log = BoundedLog(file.fileno())
        for _ in range(20):
            file.write(b"x" * 99 + b"\n" + b"y" * (4 << 20))
            log.check()
        assert (tmp_path / "log").stat().st_blocks * 512 < 48 << 20
        assert log.trim() > 70 << 20


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
