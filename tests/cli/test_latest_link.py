"""`outputs/latest`: the newest run in the default place, and never over what is a user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.run_folders import point_to

FIRST, SECOND = "2026-01-02/03-04-05-000006", "2026-01-02/03-04-06-000006-sweep"


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (FIRST, SECOND, "mine"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
    return tmp_path / "outputs"


def test_it_leads_to_the_newest_run(outputs: Path) -> None:
    for name in (FIRST, SECOND):
        point_to(outputs / name)
        assert str((outputs / "latest").readlink()) == name and (outputs / "latest").resolve() == outputs / name
    assert not [*(outputs / FIRST).iterdir()]
    assert sorted(path.name for path in outputs.iterdir()) == ["2026-01-02", "latest", "mine"]


def test_runs_elsewhere_have_none(outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_to(outputs / "mine")
    point_to(outputs / FIRST / "0")
    monkeypatch.chdir(outputs)
    point_to(outputs / FIRST)
    assert not (outputs / "latest").is_symlink()


def test_what_is_a_user_s_is_left_alone(outputs: Path, tmp_path: Path) -> None:
    latest = outputs / "latest"
    latest.write_text("mine")
    point_to(outputs / FIRST)
    assert latest.read_text() == "mine" and not latest.is_symlink()
    latest.unlink()
    for target in ("mine", str(tmp_path), "../elsewhere"):
        latest.symlink_to(target)
        point_to(outputs / FIRST)
        assert str(latest.readlink()) == target
        latest.unlink()
    latest.symlink_to(SECOND)
    (outputs / SECOND).rmdir()  # removed since
    point_to(outputs / FIRST)
    assert str(latest.readlink()) == FIRST


def test_of_a_job_it_leads_to_the_sweep(outputs: Path) -> None:
    (outputs / SECOND / "multirun.yaml").touch()
    point_to(outputs / SECOND / "0")
    assert str((outputs / "latest").readlink()) == SECOND
