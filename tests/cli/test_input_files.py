"""What a job reads is known by its content, wherever it lies and however old it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import onnx
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from runner.cli.compose import register, to_settings
from runner.cli.paths import rooted
from runner.jobs.finished_jobs import asked_of, digests, unchanged
from runner.schema.installed_choices import CONF
from tests.chain_models import chain

GIVEN = (
    *("strategy=tactic_compare", "strategy.good=good", "strategy.bad=good/deep/b.json", "inputs=files"),
    *("inputs.path=[data]", "checker=command", "checker.command='python check.py {model} --log=out.txt'"),
    *("checker.place=placed.onnx", "target.python=python3"),
)


@cache
def configuration(*overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def read() -> dict[str, str | None]:
    return of(configuration("model=net.onnx", *GIVEN))


def of(config: DictConfig) -> dict[str, str | None]:
    return digests(rooted(to_settings(config), Path.cwd()))


def written(config: DictConfig) -> object:
    return asked_of(rooted(to_settings(config), Path.cwd()))["settings"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    chain(tmp_path / "net.onnx", 1, weight_mb=0.01)
    for name in ("check.py", "good/deep/b.json", "good/a.log", "data/x.npz", "data/test_data_set_0/input_0.pb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"old {name}")
    return tmp_path


def rewritten(path: Path) -> None:
    """Another content of the same length, with the times that the file had: its folder's do not change either."""
    times = path.stat()
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def older(here: Path) -> None:
    model = onnx.load(str(here / "net.onnx"), load_external_data=False)
    model.doc_string = "another"
    onnx.save(model, str(here / "old.onnx"))
    os.utime(here / "old.onnx", (1.0, 1.0))
    shutil.copy2(here / "old.onnx", here / "net.onnx")


READ = ("net.data", "check.py", "good/deep/b.json", "good/a.log", "data/x.npz", "data/test_data_set_0/input_0.pb")


@pytest.mark.parametrize(
    "change",
    [
        *(lambda here, name=name: rewritten(here / name) for name in READ),
        older,
        lambda here: (here / "data" / "y.npz").write_text("one more"),
        lambda here: (here / "good" / "a.log").unlink(),
        lambda here: (here / "net.data").unlink(),
    ],
)
def test_a_file_of_other_content_or_that_came_or_went_is_told(here: Path, change: Callable[[Path], object]) -> None:
    before = read()
    assert unchanged(before, read())
    change(here)
    assert not unchanged(before, read())


def test_what_a_run_writes_is_none_of_its_inputs(here: Path) -> None:
    before = read()
    (here / "placed.onnx").write_text("a candidate")
    (here / "out.txt").write_text("what the check says")
    (here / "data" / "notes.txt").write_text("no values")
    os.utime(here / "net.onnx")
    assert unchanged(before, read())


def test_the_same_words_elsewhere_are_other_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration("model=net.onnx", *GIVEN)
    before, first = read(), written(config)
    shutil.copytree(here, here / "there")
    monkeypatch.chdir(here / "there")
    assert not unchanged(before, read()) and written(config) != first
    absolute = configuration(f"model={here / 'net.onnx'}")
    from_there = of(absolute), written(absolute)
    monkeypatch.chdir(here)
    relative = configuration("model=net.onnx")
    assert (of(relative), written(relative)) == from_there


def test_a_timing_cache_decides_which_tactics_builds_choose(here: Path) -> None:
    (here / "tactics.cache").write_text("before")
    given = ("model=net.onnx", "target=tensorrt", "target.timing_cache=tactics.cache")
    before = of(configuration(*given))
    (here / "tactics.cache").write_text("other tactics")
    assert not unchanged(before, of(configuration(*given)))
