"""What is wrong with the settings is said before any work, and nothing of the user's is lost."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from runner.checkers.candidate_runs import digests_of
from runner.cli.check_given import check_given, spare_inputs
from runner.cli.paths import expand_home, rooted
from runner.exit_codes import UsageError
from runner.schema.checker import CommandChecker
from runner.schema.installed_choices import SCHEMAS, compose
from runner.schema.root import BudgetSettings, ResultSettings, Settings
from tests.chain_models import chain


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"x")
    (tmp_path / "data").mkdir()
    return tmp_path


@cache
def settings(*overrides: str) -> Settings:
    """As Hydra composes them (`tests/conf` holds both against each other), but sooner."""
    given: dict[str, Any] = {"model": "net.onnx"}
    for override in map(OverridesParser.create().parse_override, overrides):
        *groups, name = str(override.key_or_group).split(".")
        section = given
        for group in groups:
            section = section.setdefault(group, {})
        if name in SCHEMAS:
            section, name = section.setdefault(name, {}), "name"
        section[name] = override.value()
    return expand_home(compose(given))


BEYOND = [
    *("workers.count=0", "workers.count=5000", "budget.checks=-1", "budget.seconds=-0.5", "checker.timeout=0"),
    *("checker.memory_mb=0", "workers.timeout=-1", "target.threads=-1", "inputs.samples=0", "checker.rtol=nan"),
    *("artifacts.disk_budget_mb=-1", "result.external_data_threshold=-1", "inputs.timeout=0"),
]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        *((override, rf"{override}: it must be ") for override in BEYOND),
        ("model=/dev/null", "this is a device or a pipe"),
        ("strategy=repeat model=null", "checker=auto needs one.*checker=command"),
        ("cwd=nowhere", "no such folder"),
        ("cwd=''", "no such folder"),
        ("result.path=net.onnx", "model=net.onnx and would be written over"),
        ("result.min_good=data/../net.onnx", "would be written over"),
        ("log.file=data", "this is a folder"),
        ("result.path=net.onnx/x", "nothing can be written in .*net.onnx"),
        ("artifacts.paths=['*.onnx']", "would move model=net.onnx away"),
        ("artifacts.paths=[.]", "would move model=net.onnx away"),
        ("strategy=reduce_bisect strategy.subject=command", r"strategy=reduce_bisect is about subgraph.*Leave it out"),
        ("strategy.search=precision", r"Choose one of bisect, linear, minimal, reduce"),
        ("strategy=precision strategy.search=minimul", r"did you mean minimal\?"),
        ("strategy=tactic_isolate strategy.search=repeat", r"strategy=tactic_isolate is not searched so"),
        ("strategy=tactic_compare strategy.search=bisect", r"Choose one of compare"),
        ("strategy=reduce_linear strategy.first=start", r"search=linear does not read it; bisect, reduce would"),
        ("strategy=precision_bisect strategy.goal=cheapest", r"strategy\.goal=cheapest.* precision would"),
        ("strategy=precision strategy.direction=reverse", r"precision_bisect, precision_linear would"),
        ("strategy=repeat strategy.until=banana", r"strategy\.until='banana': good, bad, or a number"),
    ],
)
def test_what_cannot_be_would_be_lost_or_is_not_there(here: Path, override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_given(settings(*override.split(" ")))


def test_numbers_within_their_limits(here: Path) -> None:
    check_given(settings("workers.count=8", "budget.checks=0", "checker.timeout=null", "checker.rtol=0"))


def test_any_search_over_any_subject_that_it_makes_sense_for(here: Path) -> None:
    for override in (
        *("strategy.search=minimal", "strategy=reduce_linear strategy.search=bisect strategy.first=end"),
        *("strategy=precision strategy.search=linear", "strategy=tactic_isolate strategy.search=reduce"),
    ):
        check_given(settings(*override.split(" ")))


@pytest.mark.parametrize(
    "name", ["precision.find=all", "repeat.extra_checks=1", "reduce.until=3", "tactic_compare.until=3"]
)
def test_a_key_that_nobody_reads_is_unknown(name: str) -> None:
    choice, _, key = name.partition(".")
    with pytest.raises(UsageError, match=f"{key.partition('=')[0]}: there is no such key"):
        settings(f"strategy={choice}", f"strategy.{key}")


def test_paths_are_absolute_below_the_entry(here: Path) -> None:
    (here / "venv").mkdir()
    given: list[Any] = ["inputs=files", "inputs.path=[a.npz,b.npz]", "reference.python=venv", "target.python=python3"]
    found = rooted(settings(*given, "artifacts.paths=['*.log','{dir}/x']", "result.path=/else/r.onnx"), here)
    assert found.model == str(here / "net.onnx")
    assert getattr(found.inputs, "path", None) == [str(here / "a.npz"), str(here / "b.npz")]
    assert (found.reference.python, found.target.python) == (str(here / "venv"), "python3")
    assert (found.artifacts.paths, found.result.path, found.log.file) == (["*.log", "{dir}/x"], "/else/r.onnx", None)


def test_libraries_of_providers_are_paths_like_any_other(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here / "data"))
    (here / "lib.so").write_text("one")
    given = settings("+target.provider_libraries.A=lib.so", "+target.provider_libraries.B='~/b/x.so'")
    found = rooted(replace(given, target=replace(given.target, custom_ops=["some_package", "lib.so"])), here)
    assert found.target.provider_libraries == {"A": str(here / "lib.so"), "B": str(here / "data" / "b" / "x.so")}
    assert found.target.custom_ops == ["some_package", str(here / "lib.so")]
    before = digests_of(found.target, Path)
    (here / "lib.so").write_text("two")
    after = digests_of(found.target, Path)
    assert [path for path in before if before[path] != after[path]] == [str(here / "lib.so")]
    with pytest.raises(UsageError, match=r"log\.file=lib\.so: this is target\.provider_libraries=lib\.so"):
        check_given(settings("+target.provider_libraries.A=lib.so", "log.file=lib.so"))


def test_a_command_stays_as_it_was_typed(here: Path) -> None:
    checker = CommandChecker(command="python check.py {model}")
    assert rooted(replace(settings(), checker=checker, budget=BudgetSettings(checks=3)), here).checker == checker


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("result.path=check.sh", "result.path=check.sh: this is checker.command=check.sh and would be written over"),
        ("result.path=new.onnx result.external_data=check.sh", "check.sh lies beside it: it is checker.c"),
        ("result.path=net.data", "this is net.onnx's weights"),
        ("result.path=a.onnx result.min_good=./a.onnx", "result.path is to be written there"),
        ("result.path=my.yaml", "this is my.yaml"),
        ("result.path=pipe", "a device or a pipe"),
        ("log.file=lib.so target.custom_ops=[lib.so]", "this is target.custom_ops=lib.so"),
    ],
)
def test_what_a_run_reads_is_not_written_over(here: Path, override: str, said: str) -> None:
    for name in ("check.sh", "my.yaml", "lib.so"):
        (here / name).touch()
    os.mkfifo(here / "pipe")
    chain(here / "net.onnx", 1, weight_mb=0.01)
    command = ["checker=command", "checker.command='sh check.sh {model}'"]
    with pytest.raises(UsageError, match=said):
        check_given(settings(*command, *override.split(" ")), files=["my.yaml"])


def test_a_log_that_the_command_names_may_be_moved_but_no_program(here: Path) -> None:
    for name in ("check.sh", "out.log"):
        (here / name).touch()
    command = ["checker=command", "checker.command='sh check.sh {model} out.log'"]
    check_given(settings(*command, "artifacts.paths=[out.log]"))
    with pytest.raises(UsageError, match=r"would move checker\.command=.*check.sh away"):
        check_given(settings(*command, "artifacts.paths=['*.sh']"))


@pytest.mark.parametrize("name", ["a/b", "..", "/x", "a\\b", "result.json", "REPORT.md", "x" * 250, "reduced.onnx"])
def test_weights_have_a_name_of_their_own_before_any_work(here: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"result\.external_data="):
        check_given(replace(settings(), result=ResultSettings(external_data=name)))


def test_weights_take_no_file_of_a_users_in_the_runs_folder(here: Path) -> None:
    given = settings("result.external_data=weights.bin")
    check_given(given, foreign={"other.bin"})
    for mine in ("weights.bin", "weights.bin.0", "min_good.weights.bin"):
        with pytest.raises(UsageError, match=re.escape(f"({mine} has)")):
            check_given(given, foreign={mine})


def with_path(key: str, path: str) -> Settings:
    """Settings in which this key, or the list that it holds, names the path."""
    given: Any = settings("checker=command", "checker.command=x")
    group, _, name = key.rpartition(".")
    value = [path] if name in ("paths", "reuse", "custom_ops") else path
    return replace(given, **{group: replace(getattr(given, group), **{name: value})} if group else {name: value})


@pytest.mark.parametrize("path", ["~nouser/x", "a\0b", "x" * 300, "y/" * 3000, "\ud800"])
@pytest.mark.parametrize(
    "key", ["artifacts.paths", "result.path", "checker.place", "journal.reuse", "model", "log.file"]
)
def test_paths_that_nothing_can_have(here: Path, key: str, path: str) -> None:
    with pytest.raises(UsageError, match=f"{key}=") as caught:
        check_given(with_path(key, path))
    assert len(str(caught.value)) < 400


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")
@pytest.mark.parametrize("key", ["result.path", "checker.place"])
def test_a_place_in_a_folder_that_only_its_owner_sees(key: str) -> None:
    given = settings("checker=command", "checker.command=x", f"{key}=/root/x/y")
    os.seteuid(65534)
    try:
        with pytest.raises(UsageError, match=f"{key}=/root/x/y: nothing can be written in /root"):
            spare_inputs(given, ())
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("key", ["model", "target.model", "target.custom_ops"])
def test_paths_that_runtimes_do_not_take(here: Path, key: str) -> None:
    path = os.fsdecode(b"\xf6.onnx")
    Path(path).write_bytes(b"x")
    with pytest.raises(UsageError, match=rf"{key}=.*only paths in UTF-8"):
        check_given(with_path(key, path))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a file system in which nobody can write")
@pytest.mark.parametrize("key", ["result.path", "checker.place", "checker.iteration_info", "log.file"])
def test_places_where_nothing_can_be_written(here: Path, key: str) -> None:
    with pytest.raises(UsageError, match=f"{key}=/proc/x/y: nothing can be written in /proc"):
        check_given(settings("checker=command", "checker.command=x", f"{key}=/proc/x/y"))
