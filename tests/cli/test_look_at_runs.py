"""`winnow status`, `open` and `diff`: runs that are at work, interrupted, or ended, and what two found otherwise."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from runner import run_folder
from runner.cli.app import run as typed
from runner.cli.list_runs import look
from runner.cli.run_folders import lock
from runner.exit_codes import UsageError
from runner.report.result_parts import KnownFailure
from runner.report.summary import Checks, Summary, write_result
from runner.run_folder import Marker
from runner.schema.checker import AutoChecker, CompareChecker
from runner.schema.settings import context_of
from runner.sweeps.sweep import Sweep
from tests.harness import ROOT

FOUND = Summary(
    *("found", 0, "reduce"),
    culprits=("div",),
    signature=KnownFailure("compare", "mismatch"),
    checks=Checks(search=3),
    versions={"onnxruntime": "1.26.0"},
    context={"subject.graph": "g", "check.target": '{"optimization": "all", "threads": 1}'},
)
CHECKED = (
    '{"key": "k%d", "attempt": 0, "verdict": {"outcome": "%s", "metrics": {"table": [{"tensor": "y", "of_limit": %s}]}}'
    ', "phase": "search", "label": "without %d"}\n'
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/winnow"])


def made(folder: Path, summary: Summary | None, outcomes: str = "fail", error: float = 2.0) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("strategy: {name: reduce}\nmodel: /models/net.onnx\n")
    lines = (CHECKED % (at, one, error, at) for at, one in enumerate(outcomes.split()))
    (folder / "journal.jsonl").write_text("{}\n" + "".join(lines) + '{"key": "half')
    run_folder.write(folder, Marker(running=summary is None))
    if summary:
        write_result(summary, folder)
    return folder


def test_how_it_stands_with_a_run_and_the_one_command_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    made(Path("outputs/ended"), FOUND)
    killed = made(Path("outputs/killed"), None, "fail pass")
    assert look("status", ["outputs/killed"]) == 0
    assert (
        capsys.readouterr().out
        == "ended (cut off): reduce of net.onnx, 2 checks\n  next     winnow resume outputs/killed\n"
    )
    look("status", ["outputs/ended"])
    assert capsys.readouterr().out == "ended (found): reduce of net.onnx, 1 check\n  next     winnow outputs/ended\n"
    (killed / "winnow.log").write_text("[2026-11-24 10:00:00,000][runner][INFO] - [2] without 4: PASS in 0.31 s\n")
    descriptor = lock(killed, "run", "hydra.run.dir")
    try:
        look("status", [])
        shown = capsys.readouterr().out
        assert shown.startswith("at work: reduce of net.onnx, 2 checks in ")
        assert "  now      [2] without 4: PASS in 0.31 s\n" in shown and "outputs/killed\n" in shown
        line = "2026-11-28 01:55:08,566 INFO runner.report.progress: [2] a - b: FAIL in 0.04 s\n"
        (killed / "winnow.log").write_text(line)
        look("status", [])
        assert "  now      [2] a - b: FAIL in 0.04 s\n" in capsys.readouterr().out
        assert typed(["outputs/killed"], Sweep()) == 2
        assert "it is at work. To see how far it is: winnow status outputs/killed" in capsys.readouterr().err
    finally:
        os.close(descriptor)
    assert typed(["outputs/killed"], Sweep()) == 2
    assert "To go on with it: winnow resume outputs/killed" in capsys.readouterr().err
    write_result(Summary("interrupted", 130, "reduce"), killed)
    assert typed(["outputs/killed"], Sweep()) == 130
    shown = "".join(capsys.readouterr())
    assert shown.count("winnow resume outputs/killed") == 1 and "has ended" not in shown


def test_what_two_runs_found_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    made(Path("a"), FOUND, "fail pass fail")
    changed = {**FOUND.context, "check.target": '{"optimization": "basic", "threads": 1}'}
    made(
        Path("b"),
        Summary("nothing_to_find", 4, "reduce", versions={"onnxruntime": "1.27.0"}, context=changed),
        "fail fail",
        0.5,
    )
    assert look("diff", ["a", "a"]) == 0
    assert capsys.readouterr().out == "the same answer, versions and values\n3 checks in both; none ended otherwise\n"
    look("diff", ["a", "b"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "answer div" in lines and "version of onnxruntime 1.26.0 1.27.0" in lines
    assert "error of y, in tolerances 2 0.5" in lines and "target.optimization all basic" in lines
    assert not any("threads" in line for line in lines)
    assert lines[-2:] == ["2 checks in both; 1 ended otherwise", "without 1: PASS, then FAIL"]
    # a journal of another subject, of which the other run has none: its trials have the same keys
    header = '{"context": {"stage.kind": "fed beyond its data"}}\n'
    (Path("a") / "journal-1.jsonl").write_text(header + CHECKED % (0, "different", 9.0, 0))
    kept = (Path("b") / "journal.jsonl").read_text()
    (Path("b") / "journal.jsonl").write_text((CHECKED % (0, "fail", 1e300, 0)).replace('"y"', '"y", "kind": "nan"'))
    look("diff", ["a", "b"])
    told = " ".join(capsys.readouterr().out.split())
    assert "error of y, in tolerances 2 NaN" in told and told.endswith("1 check in both; none ended otherwise"), told
    (Path("b") / "journal.jsonl").write_text(kept)
    # a journal of a part, which is about other tensors, says nothing of the model's outputs
    (Path("b") / "journal-0.jsonl").write_text((CHECKED % (0, "fail", 9.0, 0)).replace('"y"', '"w"'))
    look("diff", ["a", "b"])
    assert "error of y, in tolerances 2 0.5" in " ".join(capsys.readouterr().out.split())
    made(Path("c"), None)
    with pytest.raises(UsageError, match=r"it has no result.json \(cut off\). winnow resume c"):
        look("diff", ["a", "c"])


def test_what_was_set_of_another_check_is_told_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    auto, compare = AutoChecker(), CompareChecker(metric="fraction", fraction=0.02)
    for name, checker in (("a", auto), ("b", compare)):
        context = {"check.checker": json.dumps(context_of(checker))}
        made(Path(name), replace(FOUND, context=context))
    look("diff", ["a", "b"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("checker.")]
    assert sorted(rows) == [
        *(["checker.fraction", "-", "0.02"], ["checker.metric", "-", "fraction"], ["checker.name", "auto", "compare"])
    ]


@pytest.mark.parametrize(
    ("verb", "words"),
    [("diff", ["a"]), ("open", ["a", "a"]), ("status", ["none"]), ("open", []), ("status", ["x.txt"])],
)
def test_words_that_name_no_run(verb: str, words: list[str]) -> None:
    Path("a").mkdir()
    Path("x.txt").touch()
    with pytest.raises(UsageError, match=verb):
        look(verb, words)


@pytest.mark.skipif(not shutil.which("script"), reason="script is not installed")
def test_in_a_terminal_a_page_is_opened_and_paths_are_links(tmp_path: Path) -> None:
    """A browser is started with the page, and the last screen's paths are links (OSC 8)."""
    page = (made(tmp_path / "work" / "outputs" / "latest", FOUND) / "report.html").absolute()
    page.write_text("<p>a page")
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {shlex.quote(str(opened))}\n')
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": str(browser), "TERM": "xterm-256color"}
    program = f"{sys.executable} {ROOT / 'winnow_onnx.py'}"
    typed = f"cd {tmp_path / 'work'} && {program} open && {program} outputs/latest"
    argv = ["script", "-qec", typed, "/dev/null"]
    sent = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    until = time.monotonic() + 30
    while not (opened.is_file() and opened.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    assert opened.read_text().strip() == page.as_uri()
    assert f"\x1b]8;;{page.as_uri()}\x1b\\outputs/latest/report.html\x1b]8;;\x1b\\" in sent.stdout, repr(sent.stdout)
