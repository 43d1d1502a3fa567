"""The folder of a run: for one run at a time, and never over a user's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import run_folder
from runner.cli.run_folders import (
    FolderTakenError,
    claim,
    holding,
    lock,
    making,
    standing_in,
)
from runner.run_folder import Marker
from tests.harness import ROOT, winnow


def claim_sweep(folder: Path) -> None:
    claim(folder, key="hydra.sweep.dir", sweep=True)


HOLD = """
import sys
from pathlib import Path
from runner.cli.run_folders import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


FOREIGN = [
    *("inputs/a.npz", "values/v", "target/t", "test_data_set_0/input_0.pb", "reduced.onnx", "mixed.onnx"),
    *("layers.json", "answers/1/net.onnx", "store/x", "REPORT.md", "repro.py", "journal.jsonl", ".hydra/config.yaml"),
]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("beside", [None, "workers/w.log", "result.json"])
def test_files_of_a_users_are_not_a_runs(tmp_path: Path, name: str, beside: str | None) -> None:
    for file in filter(None, (name, beside)):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"exit_code": 0}')
    before = content(tmp_path)
    with pytest.raises(FolderTakenError, match=rf"{name.split('/', maxsplit=1)[0]}.*hydra.run.dir"):
        claim(tmp_path, key="hydra.run.dir")
    if not name.startswith(".hydra"):  # as a job finds it, Hydra has written there
        with pytest.raises(FolderTakenError, match="are no run's"), holding(tmp_path):
            pass
    assert content(tmp_path) == before


def test_a_project_that_looks_like_a_killed_run_is_left_as_it_is(tmp_path: Path) -> None:
    for name in ("workers/pool.py", "inputs/a.npz", "test_data_set_0/input_0.pb", "REPORT.md", "repro.py", "net.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("precious")
    before = content(tmp_path)
    done = winnow("model=net.onnx", folder=Path(), cwd=tmp_path)
    assert (done.code, done.output.count("\n")) == (2, 1), done.output
    assert "REPORT.md, inputs, repro.py" in done.output
    resumed = winnow("model=net.onnx", f"resume={tmp_path}", folder=tmp_path)
    assert (resumed.code, resumed.output.count("\n")) == (2, 1), resumed.output
    assert "is no folder of a run" in resumed.output
    assert content(tmp_path) == before


@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_folder_that_another_sweep_takes_meanwhile_stays_as_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool, claimed: bool
) -> None:
    """``first``: that one makes it too; else it is locked right after it was made here."""
    folder, make, held = tmp_path / "above" / "out", Path.mkdir, list[int]()

    def taken(path: Path, *given: Any, **more: Any) -> None:
        if not first:
            make(path, *given, **more)
        if path == folder and not held:
            make(path, parents=True, exist_ok=True)
            held.append(lock(path, "sweep", "hydra.sweep.dir"))
            if claimed:
                claim_sweep(path)
        if first:
            make(path, *given, **more)

    monkeypatch.setattr(Path, "mkdir", taken)
    with pytest.raises(FolderTakenError, match="at work"), making(folder):
        os.close(lock(folder, "sweep", "hydra.sweep.dir"))
    assert folder.is_dir() and (run_folder.read(folder) is not None) is claimed
    os.close(held[0])


def test_a_folder_that_somebody_makes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, make = tmp_path / "above" / "out", Path.mkdir

    def made(path: Path, *given: Any, **more: Any) -> None:
        make(folder.parent, exist_ok=True)
        make(path, *given, **more)

    monkeypatch.setattr(Path, "mkdir", made)
    with pytest.raises(KeyboardInterrupt), making(folder):
        raise KeyboardInterrupt
    assert [*tmp_path.iterdir()] == [folder.parent] and not folder.exists()


def test_what_a_killed_run_left_is_its_own(tmp_path: Path) -> None:
    run_folder.write(tmp_path, Marker(running=True))
    for name in ("inputs", "values", "workers", "store"):
        (tmp_path / name).mkdir()
    claim(tmp_path, key="hydra.run.dir")
    with holding(tmp_path) as foreign:
        assert not foreign


def test_a_folder_of_an_earlier_run_is_taken_again_but_not_what_somebody_put_there(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    claim(tmp_path, key="hydra.run.dir")
    with holding(tmp_path) as foreign:
        (tmp_path / "reduced.onnx").touch()
        (tmp_path / "weights.bin").touch()
        assert foreign == {"mine.txt"}
    with holding(tmp_path) as foreign:
        assert foreign == {"mine.txt"}
    assert run_folder.own(tmp_path) == {"reduced.onnx", "weights.bin"}
    (tmp_path / "inputs").mkdir()
    with pytest.raises(FolderTakenError, match="inputs"), holding(tmp_path):
        pass


LINKS = [
    *("values", "store", "winnow.log", "artifacts/index.jsonl", "artifacts/bad", ".hydra/config.yaml"),
    *("workers/call-00001.log", "caches/0", "journal.jsonl"),
]
OF_A_SWEEP = ["multirun.yaml", "jobs.jsonl", "journal", "journal/0.jsonl"]


@pytest.mark.parametrize(
    ("name", "key"),
    [*((name, "hydra.run.dir") for name in LINKS), *((name, "hydra.sweep.dir") for name in OF_A_SWEEP)],
)
def test_nothing_is_written_through_links_and_no_pipe_is_waited_for(tmp_path: Path, name: str, key: str) -> None:
    run_folder.write(tmp_path, Marker(running=True))
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    for make in (lambda: place.symlink_to(tmp_path.parent), lambda: os.mkfifo(place)):
        make()
        with pytest.raises(FolderTakenError, match=rf"{name} is a link or a pipe.*{key}"):
            claim(tmp_path, key=key, sweep=name in OF_A_SWEEP)
        place.unlink()


def test_the_folder_of_a_job_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "0").symlink_to("mine")
    with pytest.raises(FolderTakenError, match="0 is a link"):
        claim(tmp_path / "0", key="hydra.sweep.dir")
    assert content(tmp_path / "mine") == {}
    claim(tmp_path / "0", key="hydra.run.dir")  # whoever names it means it


@pytest.mark.parametrize("make", [lambda folder: claim(folder, key="hydra.run.dir"), claim_sweep])
def test_a_folder_whose_name_runtimes_do_not_take(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for folder in (tmp_path / os.fsdecode(b"\xf6"), tmp_path / "a\nb", tmp_path / "a${b}"):
        with pytest.raises(FolderTakenError, match=r"no \$\{, no line break and only characters of UTF-8"):
            make(folder)
        assert not folder.exists()


@pytest.mark.parametrize(
    "text", ["", "{}", "[" * 9000, '{"winnow": 1}', '{"winnow": 2, "running": true, "wrote": []}', "\ud800", "null"]
)
def test_a_list_that_is_none_makes_no_folder_a_runs(tmp_path: Path, text: str) -> None:
    (tmp_path / run_folder.NAME).write_text(text, errors="surrogatepass")
    assert run_folder.read(tmp_path) is None


def test_a_list_names_no_place_outside(tmp_path: Path) -> None:
    listed = ["../x", "/etc/passwd", "a/b", "ok", 7, None]
    (tmp_path / run_folder.NAME).write_text(json.dumps({"winnow": 1, "running": False, "wrote": listed}))
    assert run_folder.read(tmp_path) == Marker(running=False, wrote=frozenset({"ok"}))


def test_two_runs_do_not_share_a_folder_and_a_killed_one_frees_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(FolderTakenError, match="another run"), holding(tmp_path):
            pass
        other.kill()
        other.wait()
    with holding(tmp_path):
        pass


def test_standing_in_a_folder_ends(tmp_path: Path) -> None:
    before = Path.cwd()
    with standing_in(str(tmp_path)):
        assert Path.cwd() == tmp_path
    assert Path.cwd() == before
