"""The table at the end of a sweep: what was asked, run and reused, as wide as the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_it_is_no_wider_than_the_terminal(columns: int) -> None:
    lines = "\n".join(screen(TABLE, columns)).split("\n")
    assert max(len(line) for line in lines if not line.startswith("- job")) <= columns
    assert lines[0].split() == ["job", "status", "nodes", "asked", "run", "reused", "trust", "seconds", "culprits"]
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
    (tmp_path / "0" / ".hydra").mkdir(parents=True)
    (tmp_path / "0" / ".hydra" / "hydra.yaml").write_text("hydra: {job: {num: 0}}\n")
    checks = {"search": 11, "refine": 2, "cause": 1, "trust": 8, "reused": 5, "preflight": 2, "repeats": 4}
    told = {"exit_code": 0, "status": "found", "checks": checks, "seconds": {"total": True}, "culprits": "none"}
    (tmp_path / "0" / "result.json").write_text(json.dumps(told))
    (tmp_path / "0" / "ended.json").write_text('{"overrides": ["a=1"]}')
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
    (tmp_path / "0" / ".hydra").mkdir(parents=True)
    (tmp_path / "0" / ".hydra" / "hydra.yaml").write_text("hydra: {job: {num: 0}}\n")
    told = {"exit_code": 0, "status": "found", "culprits": ["a", "b"], "cause": {"status": status}, **more}
    (tmp_path / "0" / "result.json").write_text(json.dumps(told))
    (tmp_path / "0" / "ended.json").write_text('{"overrides": ["a=1"]}')
    (row,) = rows(tmp_path, [("a=1",)])
    assert f"| {said} |" in markdown([row])
    assert f"  {said}  " in screen([row], None)[1]
