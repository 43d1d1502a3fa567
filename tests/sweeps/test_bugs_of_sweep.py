"""bugs.md of a sweep: whatever its jobs are called, however many there are, and where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.sweeps.table import NotGroupedError, write_bugs

LOST = {"strategy": "triage", "status": "found", "signature": {"kind": "mismatch"}, "model": "gone.onnx"}


def jobs(sweep: Path, *names: str) -> list[Path]:
    """Make folders of triages whose models are gone."""
    sweep.mkdir(exist_ok=True)
    (sweep / "multirun.yaml").touch()
    for name in names:
        (sweep / name).mkdir(parents=True)
        (sweep / name / "result.json").write_text(json.dumps(LOST))
    return [sweep / name for name in names]


@pytest.mark.slow
def test_jobs_may_be_many_and_may_lie_where_the_bugs_would(tmp_path: Path) -> None:
    """More names than fit into one word of a command line: 128 KiB."""
    names = [f"bugs/model=x,{number:04}{'-' * 180}" for number in range(700)]
    page = write_bugs(tmp_path / "sweep", jobs(tmp_path / "sweep", *names), silent=True)
    assert page == tmp_path / "sweep" / "bugs.md" and (tmp_path / "sweep" / "bugs-1" / "result.json").is_file()
    text = page.read_text().replace("\\", "")
    assert text.startswith("# 0 bugs in 0 failures\n") and "../" not in text
    shown = sum(f"- {name}: not judged: its model gone.onnx is no file in its folder" in text for name in names)
    assert shown == 200 and "500 more; result.json has them all" in text
    kept = (tmp_path / "sweep" / "bugs-1" / "result.json").read_text()
    assert all(name in kept for name in names)


@pytest.mark.slow
def test_why_there_is_no_page_is_said(tmp_path: Path) -> None:
    found = jobs(tmp_path / "a sweep", "0")
    (tmp_path / "a sweep" / "bugs").mkdir()
    (tmp_path / "a sweep" / "bugs" / "result.json").write_text(json.dumps({"status": "found", "bugs": []}))
    with pytest.raises(NotGroupedError) as raised:
        write_bugs(tmp_path / "a sweep", found, silent=True)
    said = str(raised.value)
    assert said.startswith("bugs.md was not written, because strategy=bugs in ") and said.endswith(
        f"; to try again: winnow bugs '{tmp_path / 'a sweep'}'"
    )
    assert not (tmp_path / "a sweep" / "bugs.md").exists()
