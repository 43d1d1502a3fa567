"""Sweeps that would mix up or lose results are refused before anything starts, in one line."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from runner import run_folder
from runner.cli.explain_errors import exit_code_of, explain
from runner.run_folder import Marker
from tests.cli import in_process
from tests.harness import ROOT
from tests.sweeps.test_launcher import ASKED, chain, environment, prepared, states, sweep, table, until


def refused(folder: Path, *arguments: str, single: bool = False) -> str:
    """Run a command that is refused; return its one line."""
    code, out, err = in_process.said(folder, *([] if single else ["-m"]), *arguments)
    assert (code, out, err.strip().count("\n")) == (2, "", 0), out + err
    return err.strip()


@pytest.mark.variants
@pytest.mark.parametrize(("launcher", "inside"), [("winnow", "same"), ("basic", ".")])
def test_jobs_do_not_share_a_folder(tmp_path: Path, launcher: str, inside: str) -> None:
    choices = prepared(tmp_path, ["a", "b"])
    given = ("hydra.sweep.dir=out", f"hydra.sweep.subdir={inside}", f"hydra/launcher={launcher}")
    said = refused(tmp_path, choices, *ASKED, *given)
    assert f"hydra.sweep.subdir={inside}: " in said and "${hydra.job.num}" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume=c1,c2"], ["resume=c1,c2", "one at a time"]),
        (["resume=nope"], ["resume=nope: this is no folder of a run"]),
        (["resume=run"], ["run: this is the folder of a single run", "winnow resume run"]),
        (["resume=swept/0"], ["job 0 of the sweep", "winnow resume swept/0"]),
        (["hydra.sweep.dir=run"], ["hydra.sweep.dir=", "a single run"]),
        (["hydra.sweep.dir=file/out"], ["file", "hydra.sweep.dir=FOLDER"]),
    ],
)
def test_folders_that_are_no_sweeps(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    for name in ("c1", "c2", "run/.hydra", "swept/0/.hydra"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("run/.hydra/hydra.yaml", "swept/0/.hydra/hydra.yaml", "swept/multirun.yaml", "file"):
        (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    said = refused(tmp_path, "model=a.onnx,b.onnx", *arguments)
    assert all(word in said for word in words), said
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("argument", ["resume=swept", "hydra.run.dir=swept"])
def test_a_single_run_does_not_lie_in_a_sweeps_folder(tmp_path: Path, argument: str) -> None:
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept" / "multirun.yaml").touch()
    said = refused(tmp_path, "model=a.onnx", argument, single=True)
    assert "the folder of a sweep" in said and "resume swept" in said
    assert len(list((tmp_path / "swept").iterdir())) == 1


@pytest.mark.slow
def test_two_sweeps_of_any_launcher_do_not_share_a_folder(tmp_path: Path) -> None:
    arguments = [prepared(tmp_path, ["waits", "a"]), *ASKED, "hydra.sweep.dir=out"]
    first = [sys.executable, "-m", "runner", "-m", *arguments, "hydra/launcher=basic"]
    with subprocess.Popen(
        first, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        until(lambda: (tmp_path / "waiting").exists() or process.poll() is not None)
        assert "another sweep is at work" in refused(tmp_path, *arguments, "hydra/launcher=basic")
        assert "another sweep is at work" in refused(tmp_path, *arguments)
        process.terminate()


@pytest.mark.slow
def test_a_sweep_of_which_jobs_are_refused_does_not_lose_its_settings(tmp_path: Path) -> None:
    """Those are what it goes on with, also where other jobs have run by the new ones."""
    prepared(tmp_path, ["a", "b"])
    given = ["checker=python", "checker.file=check.py", "plan=true", "hydra.sweep.dir=out"]
    assert sweep(tmp_path, "model=a.onnx,b.onnx", *given).returncode == 0
    record = tmp_path / "out" / "multirun.yaml"
    first = record.read_text()
    for models in ("a.onnx,gone.onnx", "b.onnx,gone.onnx"):
        done = sweep(tmp_path, f"model={models}", *given[:3], "resume=out")
        assert [row["status"] for row in table(tmp_path / "out")] == ["planned", "usage"], done.stderr
        assert record.read_text() == first
    assert sweep(tmp_path, "model=b.onnx,a.onnx", *given[:3], "resume=out").returncode == 0
    assert record.read_text() != first


@pytest.mark.slow
def test_a_sweep_that_is_refused_as_a_whole_is_not_the_latest(tmp_path: Path) -> None:
    prepared(tmp_path, ["a"])
    given = ["checker=python", "checker.file=check.py", "plan=true"]
    latest = tmp_path / "outputs" / "latest"
    assert sweep(tmp_path, "model=gone.onnx,nowhere.onnx", *given).returncode == 7
    assert not latest.is_symlink()
    assert sweep(tmp_path, "model=a.onnx,gone.onnx", *given).returncode == 7
    partly = latest.readlink()
    assert sweep(tmp_path, "model=gone.onnx,nowhere.onnx", *given).returncode == 7
    assert latest.readlink() == partly
    # also before any job: the second value is no number
    said = refused(tmp_path, "model=a.onnx", "budget.checks=5,many", *given)
    assert "budget.checks=many" in said and latest.readlink() == partly
    settings = tmp_path / "outputs" / partly / "multirun.yaml"
    before = settings.read_text()
    refused(tmp_path, "model=a.onnx", "budget.checks=5,many", f"resume={settings.parent}")
    assert settings.read_text() == before


@pytest.mark.variants
@pytest.mark.parametrize(
    ("given", "there"), [((), "outputs"), (("hydra.sweep.dir=out",), ""), (("hydra.sweep.dir=out",), "out")]
)
def test_a_sweep_whose_own_line_is_refused_leaves_nothing(tmp_path: Path, given: tuple[str, ...], there: str) -> None:
    """Nothing that `winnow ls` would call cut off; a folder that was there before stays."""
    (tmp_path / there).mkdir(exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    assert "budget.checks=many" in refused(tmp_path, "model=a.onnx", "budget.checks=5,many", *given)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("single", "name"), [(False, r"\${nowhere}"), (True, "x" * 300)])
def test_a_folder_that_cannot_have_its_name_leaves_nothing_of_those_above_it(
    tmp_path: Path, name: str, single: bool
) -> None:
    folder = f"hydra.{'run' if single else 'sweep'}.dir"
    said = refused(tmp_path, "model=a.onnx", "plan=true", f"{folder}=new/{name}/out", single=single)
    assert folder in said and not [*tmp_path.iterdir()]


def test_what_lies_in_a_folder_that_is_refused_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "multirun.yaml").write_text("mine")
    assert "files that are no run's" in refused(tmp_path, "model=a.onnx", "plan=true", "hydra.sweep.dir=out")
    assert (tmp_path / "out" / "multirun.yaml").read_text() == "mine"


@pytest.mark.slow
def test_keys_that_only_the_choices_have(tmp_path: Path) -> None:
    given = ("strategy=tactic_repeat,tactic_isolate", "strategy.timeout=5", "plan=true", "hydra.sweep.dir=out")
    done = sweep(tmp_path, "model=gone.onnx", *given)
    assert [row["status"] for row in table(tmp_path / "out")] == ["usage", "usage"], done.stderr
    assert all("model=gone.onnx: no such file" in row["message"] for row in table(tmp_path / "out"))
    written = (tmp_path / "out" / "1" / ".hydra" / "config.yaml").read_text()
    assert "timeout: 5" in written and "name: tactic_isolate" in written
    assert "has no key" in refused(tmp_path, "model=gone.onnx", given[0], "strategy.biuld_timeout=5")


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_costs_its_job_only_and_a_table_is_shown_anyway(tmp_path: Path) -> None:
    choices = prepared(tmp_path, ["a", "b"])
    (tmp_path / "out" / "0" / "winnow.log").mkdir(parents=True)  # also root cannot open it
    (tmp_path / "out" / "sweep.json").mkdir()
    for folder in (tmp_path / "out", tmp_path / "out" / "0"):
        run_folder.write(folder, Marker(running=True))
    done = sweep(tmp_path, choices, *ASKED, "hydra.sweep.dir=out")
    assert done.returncode == 7 and "Traceback" not in done.stderr, done.stderr
    said = next(line for line in done.stderr.splitlines() if line.startswith("#0 winnow: "))
    assert "winnow.log: Is a directory" in said and said.endswith("hydra.sweep.dir=FOLDER")
    row = next(line for line in done.stdout.splitlines() if line.endswith("model=b.onnx") and "found" in line)
    assert row.split()[:2] == ["1", "found"] and "Is a directory" in done.stdout
    assert "winnow: sweep.json and sweep.md: Is a directory" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_going_on_in_folders_named_by_their_overrides(tmp_path: Path) -> None:
    given = [prepared(tmp_path, ["a", "b"]), "checker=python", "checker.file=check.py", "plan=true"]
    named = "hydra.sweep.subdir=${hydra.job.override_dirname}"
    assert sweep(tmp_path, *given, named, "hydra.sweep.dir=out").returncode == 0
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    chain(tmp_path / "b.onnx", "b", nodes=13)
    done = sweep(tmp_path, *given, named, "resume=out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == folders
    assert {number: seen[-1] for number, seen in states(tmp_path / "out").items()} == {0: "kept", 1: "ended"}
    assert [row["status"] for row in table(tmp_path / "out")] == ["planned", "planned"]


def test_a_full_disk_and_a_folder_that_is_closed_say_what_to_do() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "out/winnow.log")
    assert explain(full, sweep=True) == (
        "out/winnow.log: No space left on device. Make room, or give a folder elsewhere: hydra.sweep.dir=FOLDER"
    )
    closed = ValueError("Unable to configure handler 'file'")
    closed.__cause__ = PermissionError(errno.EACCES, "Permission denied", "out/winnow.log")
    said = "out/winnow.log: Permission denied. Give a folder that can be written: hydra.run.dir=FOLDER"
    assert explain(closed) == said
    large = OSError(errno.EFBIG, "File too large")
    assert explain(large) == "File too large. Make room, or give a folder elsewhere: hydra.run.dir=FOLDER"
    assert [exit_code_of(error) for error in (full, large, closed)] == [1, 1, 2]


def test_a_log_takes_any_text(tmp_path: Path) -> None:
    script = (
        "import logging, logging.config, sys, yaml\n"
        "config = yaml.safe_load(open(sys.argv[1]))\n"
        "config['handlers']['file']['filename'] = sys.argv[2]\n"
        "logging.config.dictConfig(config)\n"
        "logging.getLogger('x').warning('half of a pair: %s', chr(0xd83d))\n"
    )
    conf, log = ROOT / "conf" / "hydra" / "job_logging" / "winnow.yaml", tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", script, conf, log], capture_output=True, text=True, check=True)
    assert "half of a pair: \\ud83d" in log.read_text() and not done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="files in memory are Linux's")
def test_jobs_need_no_place_for_temporary_files(tmp_path: Path) -> None:
    nowhere = "import sys, tempfile; tempfile.tempdir = '/nowhere'; from runner.__main__ import main; main()"
    argv = [sys.executable, "-c", nowhere, "-m", "model=a.onnx", "hydra.sweep.dir=out"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 7, done.stderr
    assert "could not be started" not in done.stdout and "model=a.onnx: no such file" in done.stdout
