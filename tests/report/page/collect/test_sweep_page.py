"""The page of a sweep, and of jobs that share what they found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from runner.report.page.collect.sweep_page import sweep_page
from tests.fork_server import run_forked
from tests.harness import by_command, check_script
from tests.report.page.collect.pages import page_in, whole
from tests.report.page.collect.test_run_page import small


def test_jobs_are_compared_and_linked_and_reused_verdicts_are_in_the_path(tmp_path: Path) -> None:
    model = small(tmp_path, bad="Abs")
    check = check_script(tmp_path, "sys.exit(1 if 'bad' in nodes else 0)")
    words = (f"model={model}", *by_command(check), "strategy=reduce", "artifacts=none,bad", "hydra/launcher=basic")
    argv = [sys.executable, "-m", "runner", "-m", *words, f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    done = run_forked(argv, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    page = page_in(tmp_path / "sweep")
    assert page["kind"] == "sweep" and page["verdict"] == "2 of 2 jobs ended well"
    first, second = page["jobs"]
    assert (first["overrides"], second["overrides"]) == (["artifacts=none"], ["artifacts=bad"])
    assert first["run"] > second["run"] and second["reused"] > 0 and second["asked"] == second["run"] + second["reused"]
    assert first["answer"] == second["answer"] == "bad (1 of 3 nodes)" and "1-minimal" in first["trust"]
    assert [one["page"] for one in page["jobs"]] == ["0/report.html", "1/report.html"]
    path = page_in(tmp_path / "sweep" / "1")["trials"]
    known = [one for one in path if one["number"] == 0]
    assert known and all(one["kept"] for one in known if one["size"]), "known verdicts tell what they kept, too"


@pytest.mark.parametrize("folder", ["../elsewhere", "/etc", "", "none"])
def test_a_job_without_a_result_has_no_link(folder: str, tmp_path: Path) -> None:
    sweep, elsewhere = tmp_path / "sweep", tmp_path / "elsewhere"
    for place in (sweep, elsewhere):
        place.mkdir()
    (elsewhere / "report.html").write_text("")
    (elsewhere / "result.json").write_text(json.dumps({"checks": {"search": 9}, "minimality": "1-minimal"}))
    row = {"job": "0", "overrides": ["model=<b>"], "status": "died", "exit_code": None, "message": "<i>gone</i>"}
    page = sweep_page(sweep, [row | {"folder": folder}], ("winnow", "-m"))
    whole(page)
    (job,) = page["jobs"]
    assert (job["page"], job["run"], job["exit_code"], job["trust"]) == ("", 0, -1, "")
    assert page["warnings"] == ["job 0: <i>gone</i>"] and page["status"] == "not_as_expected"
