"""What is wrong with the settings is said before any work, and nothing of the user's is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from runner.cli.app import CONF
from runner.cli.compose import to_settings
from runner.cli.given import check_given
from runner.cli.paths import rooted
from runner.errors import UsageError
from runner.schema.checker import CommandChecker
from runner.schema.register import register
from runner.schema.root import Settings
from runner.schema.run import BudgetSettings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"x")
    (tmp_path / "data").mkdir()
    return tmp_path


def settings(*overrides: str) -> Settings:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return to_settings(compose("config", overrides=["model=net.onnx", *overrides]))


@pytest.mark.parametrize(
    "override",
    [
        *("workers.count=0", "workers.count=5000", "budget.checks=-1", "budget.seconds=-0.5", "checker.timeout=0"),
        *("checker.memory_mb=0", "workers.timeout=-1", "target.threads=-1", "inputs.samples=0", "checker.rtol=nan"),
        *("artifacts.disk_budget_mb=-1", "result.external_data_threshold=-1", "inputs.record_timeout=0"),
    ],
)
def test_numbers_beyond_their_limits(here: Path, override: str) -> None:
    key, _, value = override.partition("=")
    with pytest.raises(UsageError, match=rf"{key}={value}: it must be "):
        check_given(settings(override))


def test_numbers_within_their_limits(here: Path) -> None:
    check_given(settings("workers.count=8", "budget.checks=0", "checker.timeout=null", "checker.rtol=0"))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model=''", "which model"),
        ("model=data", "this is a folder"),
        ("strategy=repeat model=null", "checker=auto runs one"),
        ("cwd=nowhere", "no such folder"),
        ("result.path=net.onnx", "model=net.onnx and would be written over"),
        ("result.min_good=data/../net.onnx", "would be written over"),
        ("log.file=data", "this is a folder"),
        ("result.path=net.onnx/x", "nothing can be written in .*net.onnx"),
        ("artifacts.paths=['*.onnx']", "would move model=net.onnx away"),
        ("artifacts.paths=[.]", "would move model=net.onnx away"),
    ],
)
def test_what_would_be_lost_or_is_not_there(here: Path, override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_given(settings(*override.split(" ")))


def test_paths_are_absolute_below_the_entry(here: Path) -> None:
    (here / "venv").mkdir()
    given: list[Any] = ["inputs=files", "inputs.path=[a.npz,b.npz]", "reference.python=venv", "target.python=python3"]
    found = rooted(settings(*given, "artifacts.paths=['*.log','{dir}/x']", "result.path=/else/r.onnx"), here)
    assert found.model == str(here / "net.onnx")
    assert getattr(found.inputs, "path", None) == [str(here / "a.npz"), str(here / "b.npz")]
    assert (found.reference.python, found.target.python) == (str(here / "venv"), "python3")
    assert (found.artifacts.paths, found.result.path, found.log.file) == (["*.log", "{dir}/x"], "/else/r.onnx", None)


def test_a_command_stays_as_it_was_typed(here: Path) -> None:
    checker = CommandChecker(command="python check.py {model}")
    assert rooted(replace(settings(), checker=checker, budget=BudgetSettings(checks=3)), here).checker == checker
