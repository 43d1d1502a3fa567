"""Configurations, replay files and lists of run folders from anywhere: no code runs, nothing is opened outside.

All of them are tried by ``python -m benchmarks.hostile_configs``; here a few of every kind, and what the rules are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.hostile_configs import MODULE, Hostile, attempt, configurations, genuine_replay, lists, prepare, replays
from runner.cli.arguments import options
from runner.cli.bounded_yaml import BoundedLoader, read_yaml
from runner.cli.paths import PATH_KEYS
from runner.exit_codes import UsageError
from runner.schema.settings import PathUse
from tests.harness import ROOT

SEED = 11
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cases run in forks, watched by an audit hook")


@pytest.mark.slow
def test_a_few_of_each_kind(tmp_path: Path) -> None:
    canary = prepare(tmp_path)
    cases = [*configurations(SEED, 26, canary), *replays(SEED, 4, genuine_replay(tmp_path))]
    found = [attempt(case, tmp_path / str(number), canary) for number, case in enumerate(cases)]
    assert [(row.file, row.problems, row.said) for row in found if row.problems] == []


def test_lists_of_run_folders(tmp_path: Path) -> None:
    prepare(tmp_path)
    assert [row for row in lists(SEED, 40, tmp_path) if row.problems] == []


def test_each_key_that_names_a_program_or_a_library_is_said_to_run_code() -> None:
    """Also what `strategy=versions` installs: wheels are imported, and interpreters of its cache are started."""
    text = (ROOT / "docs" / "configurations.md").read_text()
    said = text.partition("can make Winnow run code")[2].partition("Look")[0]
    named = {key for key, use in PATH_KEYS.items() if use & (PathUse.PROGRAM | PathUse.LIBRARY)}
    named |= {f"strategy.{name}" for name in ("package", "besides", "pip", "cache")}
    assert [key for key in sorted(named) if not {key, key.rpartition(".")[2]} & {*said.split("`")}] == []


def test_they_are_always_the_same_and_enough(tmp_path: Path) -> None:
    cases = configurations(1, 48, tmp_path)
    assert cases == configurations(1, 48, tmp_path) != configurations(2, 48, tmp_path)
    assert len({case.kind for case in cases}) >= 10


def test_the_watcher_sees_code_that_runs(tmp_path: Path) -> None:
    """The check itself can fail: on the command line all of Hydra's keys are the user's own."""
    canary = prepare(tmp_path)
    files: dict[str, str | bytes] = {"bug.yaml": "model: nowhere.onnx\n"}
    option = f"+hydra.callbacks.x={{_target_:{MODULE}.run}}"
    row = attempt(Hostile("own", "callback", files, (option,)), tmp_path / "a", canary)
    assert any(one.startswith("code ran") for one in row.problems), row.said


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("callbacks: {x: {_target_: a.b}}", "hydra.callbacks"),
        ("job_logging: {handlers: {x: {class: a.b}}}", "hydra.job_logging"),
        ("job: {env_set: {LD_PRELOAD: x.so}}", "hydra.job.env_set"),
        ("searchpath: ['pkg://a']", "hydra.searchpath"),
        ("launcher: {x: [{_target_: a.b}]}", r"hydra.launcher.x.0._target_"),
        ("sweeper: {params: {+hydra.callbacks.x: y}}", r"hydra.sweeper.params: \+hydra.callbacks.x"),
        ('sweeper: {params: "a\\nb"}', "hydra.sweeper.params: a b"),
        ("run: {dir: [x]}", "hydra.run.dir"),
        ("verbose: [{_target_: a.b}]", "hydra.verbose"),
        ("job: {name: ../x}", "hydra.job.name"),
    ],
)
def test_the_line_names_the_file_the_key_and_what_is_allowed(tmp_path: Path, text: str, key: str) -> None:
    files: dict[str, str | bytes] = {"bug.yaml": f"model: nowhere.onnx\nhydra: {{{text}}}\n"}
    row = attempt(Hostile("a key", key, files), tmp_path / "a", prepare(tmp_path))
    assert not row.problems, row
    assert row.said.startswith(f"winnow: bug.yaml: {key}".replace("\\", "")), row.said


@pytest.mark.slow
def test_what_files_may_set_of_hydras(tmp_path: Path) -> None:
    content = {
        "mode": "MULTIRUN",
        "sweep": {"dir": "out"},
        "launcher": {"n_jobs": "${oc.decode:'1'}"},
        "sweeper": {"params": {"model": "a.onnx,b.onnx"}, "max_batch_size": 1},
        "verbose": ["some.module"],
        "job": {"config": {"override_dirname": {"exclude_keys": ["model"], "kv_sep": ":", "item_sep": "+"}}},
    }
    files: dict[str, str | bytes] = {"bug.yaml": yaml.safe_dump({"hydra": content})}
    row = attempt(Hostile("allowed", "", files), tmp_path / "a", prepare(tmp_path))
    assert row.code == 7, row.said
    assert "model=b.onnx: no such file" in row.said


def test_no_pickle_is_loaded() -> None:
    with pytest.raises(UsageError, match="unrecognized arguments"):
        options(["--experimental-rerun", "config.pickle"])


def test_aliases_count_as_what_they_stand_for(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &a [1, 2]\nb: [*a, *a]\n")
    assert read_yaml(path, BoundedLoader) == {"a": [1, 2], "b": [[1, 2], [1, 2]]}
    for text, said in (
        ("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)), "more than 50000"),
        ("a: &a [*a]", "an alias within what it stands for"),
        ("[" * 100_000, "deeper than 50"),
        ("x" * (1 << 21), "at most 1048576"),
        ("2026-02-31", "not valid YAML"),
        ("a: " + "9" * 5000, "not valid YAML"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            read_yaml(path, BoundedLoader)
