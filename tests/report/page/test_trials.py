"""The path of a search from an index that may come from anywhere, within the size of a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.report.page import run_page
from runner.report.page.data import PageData
from runner.report.page.run_page import LONGEST_LOG, trials_of

ROW = {"iteration": 1, "phase": "p", "label": "l", "outcome": "fail", "seconds": 0.5, "elements": 3, "reason": "r"}


def read(folder: Path, *rows: Any, unlisted: tuple[dict[str, Any], ...] = ()) -> tuple[list[run_page.Trial], list[str]]:
    index = folder / "index.jsonl"
    index.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return trials_of(folder, PageData(questions=frozenset({"q"}), index=index, unlisted=unlisted))


def test_sets_of_the_main_question_are_stretches_and_others_are_not_of_these_elements(tmp_path: Path) -> None:
    known = {"iteration": 0, "label": "known", "trial": "0-4", "question": "q", "outcome": "pass"}
    found, left = read(
        tmp_path,
        ROW | {"trial": "0-1,7", "question": "q"},
        ROW | {"trial": "0-2", "question": "another"},
        "no JSON",
        [1],
        unlisted=(known,),
    )
    assert [one["kept"] for one in found] == [[[0, 4]], [[0, 1], [7, 7]], []] and not left
    assert [(one["number"], one["size"]) for one in found] == [(0, 5), (1, 3), (1, 3)]


@pytest.mark.parametrize("strange", [None, 7, "a", "1-", "9" * 20, ["x"], {"a": 1}, float("nan"), -1, True])
def test_a_strange_index_does_no_harm(strange: Any, tmp_path: Path) -> None:
    row = dict.fromkeys(("iteration", "phase", "label", "outcome", "seconds", "elements", "reason", "trial"), strange)
    (one,), _ = read(tmp_path, {**row, "log": strange, "question": "q"})
    assert one["seconds"] >= 0 and one["kept"] == [] and one["log"] == ""
    json.dumps(one, allow_nan=False)


def test_what_checks_printed_is_cut_and_never_read_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    run = tmp_path / "run"
    (run / "checks").mkdir(parents=True)
    (run / "checks" / "long.log").write_bytes(b"start" + b"." * 150_000 + b"\xff end")
    (run / "checks" / "link.log").symlink_to(tmp_path / "secret", target_is_directory=False)
    found, _ = read(
        run, *(ROW | {"log": f"checks/{name}"} for name in ("long.log", "../../secret", "none.log", "link.log"))
    )
    long = found[0]["log"]
    assert long.startswith("start") and long.endswith(" end") and len(long) < LONGEST_LOG + 100
    assert f"[{150_010 - LONGEST_LOG} bytes left out]" in long
    assert [one["log"] for one in found[1:]] == ["", "", ""]


def test_too_many_checks_are_left_out_and_that_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(run_page, "MOST_TRIALS", 4)
    found, left = read(tmp_path, *(ROW | {"iteration": at} for at in range(1, 11)))
    assert [one["number"] for one in found] == [1, 2, 9, 10] and left == ["6 of 10 checks are not shown"]


def test_checks_of_a_nested_graph_name_it(tmp_path: Path) -> None:
    index = tmp_path / "index.jsonl"
    rows = [
        ROW | {"question": "inner", "label": label}
        for label in ("keep 0..1", "iff.then_branch without the node around it")
    ]
    index.write_text("".join(f"{json.dumps(row)}\n" for row in [ROW, *rows]))
    found, _ = trials_of(tmp_path, PageData(bodies={"inner": "iff.then_branch"}, index=index))
    labels = ["l", "iff.then_branch: keep 0..1", "iff.then_branch without the node around it"]
    assert [one["label"] for one in found] == labels
