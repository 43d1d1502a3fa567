"""The page of a sweep, and of jobs that share what they found."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.report.page.html import page_text
from runner.sweeps.table import Row, sweep_page
from tests.fork_server import run_forked
from tests.harness import by_command, check_script
from tests.report.page.pages import page_in, whole
from tests.report.page.test_run_page import small


@pytest.mark.slow
def test_jobs_are_compared_and_linked_and_reused_verdicts_are_in_the_path(tmp_path: Path) -> None:
    model = small(tmp_path, bad="Abs")
    check = check_script(tmp_path, "sys.exit(1 if 'bad' in nodes else 0)")
    words = (f"model={model}", *by_command(check), "strategy=reduce", "artifacts=none,bad", "hydra/launcher=basic")
    argv = [sys.executable, "-m", "runner", "-m", *words, f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    done = run_forked(argv, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    page = page_in(tmp_path / "sweep")
    assert page.kind == "sweep" and page.verdict == "2 of 2 jobs ended well: 2 found" and not page.labels
    first, second = page.jobs
    assert (first["overrides"], second["overrides"]) == (["artifacts=none"], ["artifacts=bad"])
    assert first["run"] > second["run"] and second["reused"] > 0 and second["asked"] == second["run"] + second["reused"]
    assert first["answer"] == second["answer"] == "bad (1 of 3 nodes)" and "1-minimal" in first["trust"]
    assert [one["page"] for one in page.jobs] == ["0/report.html", "1/report.html"]
    again = page.commands[-1][1].split()
    assert again[-3:] == ["recheck", f"{tmp_path / 'sweep'}/0", f"{tmp_path / 'sweep'}/1"]
    path = page_in(tmp_path / "sweep" / "1").trials
    known = [one for one in path if one["number"] == 0]
    assert known and all(one["kept"] for one in known if one["size"]), "known verdicts tell what they kept, too"


@pytest.mark.parametrize("folder", ["../elsewhere", "/etc", "", "none"])
def test_a_job_without_a_result_has_no_link(folder: str, tmp_path: Path) -> None:
    sweep, elsewhere = tmp_path / "sweep", tmp_path / "elsewhere"
    for place in (sweep, elsewhere):
        place.mkdir()
    (elsewhere / "report.html").write_text("")
    (elsewhere / "result.json").write_text(json.dumps({"checks": {"search": 9}, "minimality": "1-minimal"}))
    row = Row("0", ("model=<b>",), "died", message="<i>gone</i>", folder=folder)
    page = sweep_page(sweep, [row], ("winnow", "-m"))
    whole(page)
    (job,) = page.jobs
    assert (job["page"], job["run"], job["exit_code"], job["trust"]) == ("", None, -1, "")
    assert not any("kept models" in what for what, _ in page.commands)
    assert page.warnings == ["job 0: <i>gone</i>"] and page.status == "1 died"


def test_a_sweep_says_how_its_jobs_ended_what_they_said_and_nothing_of_what_never_ran(tmp_path: Path) -> None:
    told: dict[str, Any] = {"asked": 6, "run": 4, "reused": 2, "seconds": 1.5}
    rows = [
        Row("0", (), "found", 0, message="3 fail, 1 pass\nmore", **told),
        Row("1", (), "interrupted", 130, message="interrupted", **told),
        Row("2", (), "usage", 2, message="no such file", **{**told, "seconds": 0.0, "run": 0}),
        Row("3", (), "not run", message="never started"),
    ]
    page = sweep_page(tmp_path, rows, ("winnow",))
    whole(page)
    assert page.verdict == "1 of 4 jobs ended well: 1 found, 1 interrupted, 1 usage, 1 not run"
    assert page.labels == ["interrupted"] and "as expected" not in page.status
    assert [one["answer"] for one in page.jobs] == ["3 fail, 1 pass", "interrupted", "no such file", "never started"]
    assert [(one["asked"], one["seconds"]) for one in page.jobs] == [(6, 1.5)] * 2 + [(None, None)] * 2
    assert "None" not in page_text(page).partition("<script")[0]


def test_the_command_for_kept_models_names_folders_that_have_one_however_they_are_called(tmp_path: Path) -> None:
    places = ["a=1,b/0", "a=1,b/1 x", "2"]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        held = {"model": "reduced.onnx" if place != "2" else None}
        (tmp_path / place / "result.json").write_text(json.dumps(held))
    rows = [Row(str(at), (), "found", 0, folder=place) for at, place in enumerate(places)]
    page = sweep_page(tmp_path, rows, ("python", "-m", "runner", "-m", "x=1,2"))
    kept = shlex.split(page.commands[-1][1])
    assert kept == ["python", "-m", "runner", "recheck", *(str(tmp_path / place) for place in places[:2])]
    assert len(page.commands) == 2, "no job is without an answer"
