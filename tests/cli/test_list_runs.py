"""`winnow ls`: runs and sweeps, the newest first; broken ones too."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import run_folder
from runner.cli.list_runs import list_runs
from runner.cli.run_folders import lock
from runner.cli.terminal import wide_table
from runner.exit_codes import UsageError
from runner.report.summary import Checks, Seconds, Summary, write_result
from runner.run_folder import Marker


def run(folder: Path, age: int, summary: Summary | None, *, running: bool = False) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").touch()
    os.utime(folder / ".hydra" / "config.yaml", (1e9 - age, 1e9 - age))
    run_folder.write(folder, Marker(running))
    if summary:
        write_result(summary, folder)
    return folder


def sweep(folder: Path, rows: object) -> None:
    folder.mkdir(parents=True)
    (folder / "multirun.yaml").touch()
    os.utime(folder / "multirun.yaml", (1e9, 1e9))
    (folder / "sweep.json").write_text(json.dumps(rows))
    run(folder / "0", 0, None)


HEAD = ("when", "strategy", "model", "status", "answer", "checks", "time", "folder")
FOUND = Summary(
    *("found", 0, "reduce"),
    culprits=("/layer.0/MatMul", "b"),
    checks=Checks(search=12, trust=3, cause=2),
    seconds=Seconds(total=125.0),
    input_model="/somewhere/net.onnx",
)


def test_the_newest_stand_first_and_sweeps_are_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "outputs" / "day" / "first", 30, FOUND)
    run(tmp_path / "outputs" / "day" / "second", 20, Summary("usage", 2, "passes", "\x1b[2J wrong\nthere"))
    broken = run(tmp_path / "outputs" / "day" / "third", 10, None)
    (broken / "result.json").write_text('{"exit_code": [1], "seconds": {"total": 1e999}}')
    run(tmp_path / "outputs" / "day" / "killed", 9, None, running=True)
    busy = run(tmp_path / "outputs" / "day" / "busy", 8, None, running=True)
    rows = [{"exit_code": 0, "run": 9, "seconds": 1.5}, {"exit_code": 1, "run": 1, "status": "died"}]
    sweep(tmp_path / "outputs" / "swept", rows)
    sweep(tmp_path / "outputs" / "strange", {"exit_code": 0})
    (tmp_path / "outputs" / "latest").symlink_to("day/first")
    held = lock(busy, "run", "hydra.run.dir")
    try:
        assert list_runs([]) == 0
        without = capsys.readouterr().out
        assert list_runs(["--all"]) == 0
    finally:
        os.close(held)
    assert "day/second" not in without and "day/first" in without, "a mistake in a command line is no run"
    assert without.splitlines()[-1] == "1 more: winnow ls --all"
    head, *lines = capsys.readouterr().out.splitlines()
    assert tuple(head.split()) == HEAD
    folders = [line.split()[-1].removeprefix("outputs/") for line in lines]
    assert sorted(folders[:2]) == ["strange", "swept"]
    assert folders[2:] == ["day/busy", "day/killed", "day/third", "day/second", "day/first"]
    told = dict(zip(folders, lines, strict=True))
    assert "failed jobs" in told["swept"] and "1 of 2 jobs ended well" in told["swept"] and " 10  " in told["swept"]
    assert (
        "  at work  " in told["day/busy"] and "  cut off  " in told["day/killed"] and "  broken  " in told["day/third"]
    )
    assert "\x1b" not in told["day/second"] and "wrong there" in told["day/second"]
    assert "reduce" in told["day/first"] and "net.onnx" in told["day/first"] and "found" in told["day/first"]
    assert "2 nodes: /layer.0/MatMul" in told["day/first"] and " 17  2 min 5 s  " in told["day/first"]


def test_a_model_that_the_run_made_is_told_as_the_one_that_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(tmp_path / "1", 0, replace(FOUND, input_model=str(tmp_path / "1" / "quantized.onnx")))
    (made / ".hydra" / "config.yaml").write_text("strategy: {name: precision}\nmodel: fp32.onnx\n")
    list_runs([str(tmp_path)])
    said = capsys.readouterr().out
    assert "fp32.onnx" in said and "quantized.onnx" not in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"answers": (FOUND, replace(FOUND, culprits=("c",)))}, "2 nodes: /layer.0/MatMul; c  "),
        ({"cause": {"status": "not proven"}}, "not shown to be the cause: 2 nodes: /layer.0/MatMul"),
    ],
)
def test_an_answer_is_told_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], said: str
) -> None:
    run(tmp_path / "first", 1, replace(FOUND, **more))
    list_runs([str(tmp_path)])
    assert said in capsys.readouterr().out


def test_twenty_are_shown_unless_all_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list_runs([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("no runs in ")
    for at in range(22):
        run(tmp_path / str(at), at, None)
    list_runs([str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 22 and lines[-1] == f"2 more: winnow ls {tmp_path} --all"
    list_runs([str(tmp_path), "--all"])
    assert len(capsys.readouterr().out.splitlines()) == 23


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_on_a_terminal_no_row_is_wrapped_and_each_folder_is_whole_and_not_obeyed(columns: int) -> None:
    folder = "outputs/2026-11-23/00-51-02-\x1b[2J there"
    row = ("11-23 00:51", "reduce_bisect", "a_long_name.onnx", "could_not_judge", "why " * 30, "21", "2 min", folder)
    lines = wide_table(HEAD, [row, row], columns, ("model", "answer"))
    assert max(map(len, lines)) <= columns and sum("00-51-02-\\x1b[2J there" in line for line in lines) == 2
    assert len(lines) == (3 if columns == 200 else 5) and "\x1b" not in "".join(lines)


@pytest.mark.parametrize("words", [["gone"], ["a", "b"], ["--most"]])
def test_anything_else_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="ls"):
        list_runs(words)


def test_the_program_is_named_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["winnow-onnx"])
    with pytest.raises(UsageError, match="winnow-onnx ls FOLDER"):
        list_runs([str(tmp_path / "gone")])
    for at in range(21):
        run(tmp_path / "a \x1b[2J" / str(at), at, FOUND)
    assert list_runs([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"1 more: winnow-onnx ls {tmp_path} --all" in said and "\x1b" not in said
