"""The table at the end of a sweep: what was asked, run and reused, as wide as the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from runner.sweeps.table import Row, markdown, rows, screen

NAMES = tuple(f"/bert/encoder/layer.{at}/attention/self/query/MatMul_with_a_long_name" for at in range(96))
TABLE = [
    Row(
        "0", ("model=" + "deep/" * 40 + "a.onnx", "x=1"), "found", 0, 550, 96, NAMES, 11, 12.34, "", "0", 31, 21, 10, 8
    ),
    Row("1", ("model=b.onnx", "x=1"), "nothing_to_find", 4, 98, None, (), 3, 0.5, "", "1", 3, 3, 0, 2),
    Row("2", ("model=c.onnx", "x=1", "resume='/there'"), "died", message="it died: " + "because " * 200, folder="2"),
]


def job(sweep: Path, number: int, told: object = None, overrides: Sequence[str] = ()) -> list[Path]:
    """Make the folder of a job: what Hydra writes down, and the result with whose it is, where it has one."""
    folder = sweep / str(number)
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "hydra.yaml").write_text(f"hydra: {{job: {{num: {number}}}}}\n")
    (folder / ".hydra" / "overrides.yaml").write_text(f"- model={number}.onnx\n")
    if told is not None:
        (folder / "result.json").write_text(json.dumps(told))
        (folder / "ended.json").write_text(json.dumps({"overrides": [*overrides]}))
    return [folder / name for name in (".hydra/hydra.yaml", "result.json", "ended.json")]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_it_is_no_wider_than_the_terminal(columns: int) -> None:
    lines = "\n".join(screen(TABLE, columns)).split("\n")
    assert max(len(line) for line in lines if not line.startswith("- job")) <= columns
    assert lines[0].split() == ["job", "status", "nodes", "asked", "run", "reused", "confirm", "seconds", "culprits"]
    assert lines[1].split()[:9] == ["0", "found", "96", "of", "550", "31", "21", "10", "8"]
    assert lines[2].startswith("     model=deep/") and lines[2].endswith("a.onnx") and lines[4] == "     model=b.onnx"
    assert len(next(line for line in lines if line.startswith("- job 2: it died"))) <= 3 * columns + 10
    assert "All jobs: x=1" in lines and not any("resume=" in line for line in lines)


def test_in_a_pipe_a_job_is_one_line_with_all_that_tells_it_apart() -> None:
    lines = screen(TABLE, None)
    assert len(lines[0].split()) == 10 and lines[1].endswith("deep/a.onnx") and " and 93 more " in lines[1]
    assert len({line.index("model=") for line in lines[1:4]}) == 1, "columns are aligned"
    assert "because " * 100 in "\n".join(lines)


def test_asked_is_what_was_run_and_what_was_reused(tmp_path: Path) -> None:
    checks = {"search": 11, "refine": 2, "cause": 1, "trust": 8, "reused": 5, "preflight": 2, "repeats": 4}
    told = {"exit_code": 0, "status": "found", "checks": checks, "seconds": {"total": True}, "culprits": "none"}
    job(tmp_path, 0, told, ["a=1"])
    (row,) = rows(tmp_path, [("a=1",)])
    assert (row.asked, row.run, row.reused, row.trust, row.checks) == (27, 22, 5, 8, 11)
    assert row.seconds == 0.0 and row.culprits == (), "what is not of its type counts as not there"
    head, _, line = markdown([row]).splitlines()
    assert dict(zip(head.split(" | "), line.split(" | "), strict=True))["asked"] == "27"


ALL = {"answers": [{"culprits": ["a", "b"]}, {"culprits": ["c", "d"]}]}


@pytest.mark.parametrize(
    ("status", "more", "said"),
    [("not proven", {}, "not shown to be the cause: a, b"), ("proven", {}, "a, b"), ("proven", ALL, "a, b; c, d")],
)
def test_a_row_names_all_answers_and_says_which_is_not_proven(
    tmp_path: Path, status: str, more: Mapping[str, object], said: str
) -> None:
    told = {"exit_code": 0, "status": "found", "culprits": ["a", "b"], "cause": {"status": status}, **more}
    job(tmp_path, 0, told, ["a=1"])
    (row,) = rows(tmp_path, [("a=1",)])
    assert f"| {said} |" in markdown([row])
    assert f"  {said}  " in screen([row], None)[1]


def test_rows_of_a_sweep(tmp_path: Path) -> None:
    job(tmp_path, 0, {"exit_code": 0, "status": "found", "culprits": ["a"]}, ["a|b", "hydra.verbose=true", "x=1"])
    job(tmp_path, 1)
    job(tmp_path, 3, "no result")
    table = rows(tmp_path, [("a|b", "x=1"), ("c", "x=1"), ("d", "x=1"), ("e", "x=1")])
    assert [(row.job, row.status) for row in table] == [("0", "found"), ("1", "died"), ("2", "not run"), ("3", "died")]
    text = markdown(table)
    assert "| a&#124;b |" in text and "job 2: " in text and "All jobs: `x=1`" in text
    assert [row.overrides for row in rows(tmp_path, [])] == [("model=0.onnx",), ("model=1.onnx",), ("model=3.onnx",)]


def test_a_result_of_an_earlier_sweep_is_none_of_this_one(tmp_path: Path) -> None:
    files = job(tmp_path, 0, {"exit_code": 0, "status": "found"}, ["a"])
    before = {path: path.stat().st_mtime_ns for path in files}
    found = [rows(tmp_path, [("a",)], before)[0].status]
    for path in files:
        os.utime(path, (1.0, 1.0))
        found += [rows(tmp_path, [("a",)], before)[0].status]
    assert found == ["not run", "died", "died", "found"]
    assert rows(tmp_path, [("b",)], before)[0].status == "died", "this is another job's result"


def test_a_message_of_several_lines_stays_one_item_of_the_list() -> None:
    table = markdown([Row("0", (), "could_not_judge", 3, message="it cannot judge.\ncheck: python check.py")])
    assert table.splitlines()[-1] == "- job 0: it cannot judge. check: python check.py"


def test_what_a_person_may_type_again_is_shown_as_typed() -> None:
    words = ("checker.command='python c.py {model}'", "inputs.shapes={x: [1]}")
    table = [Row(str(number), words, "died", message="[Errno 2] resume=~/a_b_[1]") for number in range(2)]
    shown = "\n".join(screen(table, None))
    assert f"All jobs: {' '.join(words)}\n" in shown and "- job 1: [Errno 2] resume=~/a_b_[1]\n" in shown
    assert "&#" not in shown and "{model}" in markdown(table)
