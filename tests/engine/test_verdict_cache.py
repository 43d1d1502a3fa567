"""The journals of a run: what goes on, what starts over, what is taken from other runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.engine.verdict_cache import Journals
from runner.exit_codes import UsageError
from runner.journal.journal import JOURNAL_NAME, Journal
from runner.verdict import Verdict
from strategies.search import Outcome, Trial

CONTEXT = {"model": "abc", "check": "def"}
PASS = Verdict(Outcome.PASS, seconds=0.5)
ONE = Trial.of([1])


def journals(folder: Path, *reuse: str) -> Journals:
    settings: Any = SimpleNamespace(
        strategy=SimpleNamespace(repeats=False), journal=SimpleNamespace(share=False, reuse=list(reuse))
    )
    folder.mkdir(exist_ok=True)
    return Journals(settings, folder, folder.joinpath)


def put(journal: Journal, verdict: Verdict = PASS) -> None:
    journal.put(ONE, 0, verdict, "search", "label", 3)


def test_what_the_command_creates_does_not_bar_going_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    of = journals(tmp_path)
    begun = {**CONTEXT, "check.file check.py": "1", "check.file limits.json": "1"}
    put(of.main(begun))
    later = {**begun, "check.file out.log": "2"}
    again = of.main(later)
    assert again.get(ONE) == PASS
    assert again.context == begun
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 1 and warned[0].startswith("out.log was not there when this run began")
    for name in ("check.py", "limits.json"):  # they were there: the check reads them
        with pytest.raises(UsageError, match=rf"check.file {name} changed"):
            of.main({**later, f"check.file {name}": "3"})
    with pytest.raises(UsageError, match=r"check\.file more\.sh"):  # a program is not what a check writes
        of.main({**later, "check.file more.sh": "1"})


def test_a_file_that_was_missing_bars_going_on(tmp_path: Path) -> None:
    of = journals(tmp_path)
    put(of.main(CONTEXT), Verdict(Outcome.UNRESOLVED, reason="no limits.json"))
    with pytest.raises(UsageError, match=r"check\.file limits\.json"):
        of.main({**CONTEXT, "check.file limits.json": "1"})


@pytest.mark.parametrize("status", ["could_not_judge", "found"])
def test_a_run_that_could_not_judge_starts_over_with_another_check(tmp_path: Path, status: str) -> None:
    """The verdicts stay beside the new journal. One that found something is not put aside: its check was changed."""
    of, mended = journals(tmp_path), {**CONTEXT, "check": "mended"}
    put(of.main(CONTEXT))
    (tmp_path / "result.json").write_text(json.dumps({"status": status}))
    assert of.main(CONTEXT).get(ONE) == PASS, "nothing has changed"
    if status == "found":
        with pytest.raises(UsageError, match="check changed"):
            of.main(mended)
        return
    assert of.main(mended).get(ONE) is None
    (aside,) = tmp_path.glob("journal-*.jsonl")
    assert Journal(aside, CONTEXT).get(ONE) == PASS


@pytest.mark.parametrize("status", ["", "could not judge"])
def test_a_run_that_was_killed_before_it_wrote_anything_begins(tmp_path: Path, status: str) -> None:
    (tmp_path / JOURNAL_NAME).touch()
    (tmp_path / "result.json").write_text(json.dumps({"status": status}))
    context = {**CONTEXT, "check.file out.txt": "1"}
    put(journals(tmp_path).main(context))
    assert journals(tmp_path).main(context).get(ONE) == PASS and not [*tmp_path.glob("journal-*")]


def test_verdicts_of_other_runs_are_taken_over(tmp_path: Path) -> None:
    """Where the context is the same; another one is refused for the run itself, and not for its stages."""
    put(journals(tmp_path / "before").main(CONTEXT))
    of, other = journals(tmp_path / "now", "../before"), {**CONTEXT, "model": "another"}
    assert of.main(CONTEXT).get(ONE) == PASS
    with pytest.raises(UsageError, match="model"):
        journals(tmp_path / "other", "../before").main(other)
    subject: Any = SimpleNamespace(identity=lambda: {"kind": "numbers"})
    assert of.stage(of.main(CONTEXT), "inside", subject).get(ONE) is None
