"""Names of earlier versions are taken for those of today, on the command line and in any file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException

from runner.cli.app import CONF
from runner.cli.config.argv import rewrite
from runner.cli.config.compose import to_settings
from runner.cli.config.paths import PATH_KEYS
from runner.cli.config.renamed import CHOICES, KEYS, content
from runner.cli.config.user_file import read_user_file
from runner.cli.explain_errors import explain, unknown_key
from runner.errors import UsageError
from runner.schema.checker import FiniteChecker, NonFiniteOutput
from runner.schema.inputs import InputsSettings
from runner.schema.register import SCHEMAS, register
from runner.schema.root import Settings
from tests.harness import ROOT


def keys() -> set[str]:
    """All keys of sections, of all choices."""
    sections = {name: [item.default_factory] for name, item in Settings.__dataclass_fields__.items()}
    held = {**sections, **{group: list(schemas.values()) for group, schemas in SCHEMAS.items()}}
    names = ((group, getattr(kind, "__dataclass_fields__", ())) for group, kinds in held.items() for kind in kinds)
    return {f"{group}.{key}" for group, own in names for key in own} | set(PATH_KEYS)


def test_new_names_are_there_and_old_ones_are_not() -> None:
    assert set(KEYS.values()) <= keys() and not set(KEYS) & keys()
    files = [now for now in CHOICES.values() if not now.startswith(("schema/", "hydra/"))]  # those are no files of ours
    assert files and all((ROOT / "conf" / f"{now}.yaml").is_file() for now in files)


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["-m", "inputs.cut=auto,input", "+workers.leases=x", "model=a"]
    told = ("-m", "cut.policy=auto,input", "+workers.lease_folder=x", "model=a")
    assert rewrite(typed).argv == told
    (line,) = capsys.readouterr().err.splitlines()
    assert "inputs.cut is cut.policy now" in line and "workers.leases is workers.lease_folder now" in line
    with pytest.raises(UsageError, match=r"inputs\.cut is cut\.policy now, and both are given"):
        rewrite(["inputs.cut=auto", "cut.policy=input"])


def test_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    held = {
        "inputs": {"name": "random", "cut": "seeded", "record_timeout": 5},
        "target": {"name": "tensorrt", "flavour": "tensorrt_rtx"},
        "cut": {"shapes": "symbolic"},
        "hydra": {"sweeper": {"params": {"inputs.record": "ahead,off"}}},
    }
    path.write_text(yaml.safe_dump(held))
    assert read_user_file(path) == {
        "inputs": {"name": "random", "timeout": 5},
        "target": {"name": "tensorrt", "flavor": "tensorrt_rtx"},
        "cut": {"shapes": "symbolic", "policy": "seeded"},
        "hydra": {"sweeper": {"params": {"cut.record": "ahead,off"}}},
    }
    assert len(capsys.readouterr().err.splitlines()) == 1
    twice = {"inputs.cut": "auto", "cut.policy": "auto"}
    for both in ({"cut": {"policy": "auto"}, "inputs": {"cut": "auto"}}, {"hydra": {"sweeper": {"params": twice}}}):
        with pytest.raises(UsageError, match=r"mine\.yaml: inputs\.cut is cut\.policy now, and both are given"):
            content(both, str(path))


def test_true_and_false_as_a_nan_may_be_given_for_the_check_that_had_them() -> None:
    """Not where outputs are compared: there `ignore` would make a check weaker than anybody has asked for."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for given, now in (("1", "fail"), ("'True'", "fail"), ("false", "ignore"), ("off", "ignore")):
            for chosen in ("checker=finite", "+experiment=fp16_overflow"):
                checker = to_settings(compose("config", overrides=[chosen, f"checker.nan={given}"])).checker
                assert isinstance(checker, FiniteChecker)
                assert (checker.nan, checker.inf) == (NonFiniteOutput(now), NonFiniteOutput.fail)
        with pytest.raises(UsageError, match=r"checker\.nan=compare: checker\.nan takes fail \| ignore"):
            to_settings(compose("config", overrides=["checker=finite", "checker.nan=compare"]))
        with pytest.raises(ConfigCompositionException, match=r"checker\.nan=false"):
            compose("config", overrides=["checker=compare", "checker.nan=false"])


def test_an_old_key_that_nothing_can_be_taken_for_is_explained() -> None:
    assert unknown_key("inputs.cut", InputsSettings) == "inputs.cut is cut.policy now."
    assert "inputs.cut is cut.policy now" in explain(ValueError("Could not delete: 'inputs.cut' does not exist."))


def test_a_key_that_is_gone_is_said_to_be_gone_and_a_replay_may_have_it_off() -> None:
    assert unknown_key("audit", Settings, "audit=true").startswith("audit=true: audit is gone, as it tested Winnow's")
    replay = {"strategy": {"name": "reduce"}, "recorded": {"context": {}}}
    assert "audit" not in content({**replay, "audit": False}, "replay.yaml")
    assert "audit" in content({**replay, "audit": True}, "replay.yaml")


def test_a_replay_of_an_earlier_version_has_keys_that_nobody_read() -> None:
    strategy = {"defaults": ["repeat", "_self_"], "name": "repeat", "subject": "command", "until": "3", "find": "cause"}
    replay = {"strategy": strategy, "recorded": {"context": {}}}
    assert "find" not in content(replay, "replay.yaml")["strategy"]
    assert content(replay, "replay.yaml")["strategy"]["until"] == "3"
    assert "find" in content({"strategy": strategy}, "mine.yaml")["strategy"]


def test_a_replay_keeps_what_its_strategy_reads_where_two_have_one_subject() -> None:
    mine = {"search": "reduce", "subject": "subgraph"}
    extract = {"name": "extract", "subject": "subgraph", "nodes": ["a"], "inputs": [], "outputs": ["y"]}
    derived = extract | {"name": "mine", "defaults": ["extract", "_self_"]}
    renamed = {"name": "of an earlier version", "subject": "command", "until": "3", "find": "cause"}
    for strategy, left_out in (
        (extract, set()),
        (derived, set()),
        (mine | {"name": "mine", "find": "one"}, set()),
        (renamed, {"find"}),
    ):
        read = content({"strategy": strategy, "recorded": {"context": {}}}, "replay.yaml")["strategy"]
        assert {*strategy} - {*read} == left_out


def test_in_options_of_a_users_own_and_by_the_name_of_an_option(tmp_path: Path) -> None:
    for name, text in (
        ("inputs/mine", "defaults: [random, _self_]\ncut: seeded\n"),
        ("strategy/mine", "defaults: [/schema/strategy/strategy@_here_, _self_]\nname: mine\n"),
        (
            "mine",
            "defaults: [config, override inputs: mine, _self_]\n",
        ),
    ):
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    argv = ["--config-dir", str(tmp_path), "--config-name", "mine", "--cfg", "job"]
    argv += ["strategy=mine", "+experiment=quantised"]
    done = subprocess.run(
        [sys.executable, "-m", "runner", *argv], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    settings = yaml.safe_load(done.stdout)
    assert (settings["cut"]["policy"], settings["strategy"]["search"]) == ("seeded", "reduce")
    assert settings["checker"]["metric"] == "fraction"
    assert done.stderr.count("inputs/mine.yaml: inputs.cut is cut.policy now") == 1
    assert done.stderr.count("experiment/quantised is experiment/quantized now") == 1
