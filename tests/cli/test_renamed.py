"""Names of earlier versions are taken for those of today, on the command line and in any file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from runner.cli.config.argv import rewrite
from runner.cli.config.paths import PATH_KEYS
from runner.cli.config.renamed import CHOICES, KEYS, content
from runner.cli.config.user_file import read_user_file
from runner.errors import UsageError
from runner.schema.register import SCHEMAS
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
    assert all((ROOT / "conf" / f"{now}.yaml").is_file() for now in CHOICES.values() if not now.startswith("schema/"))


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["-m", "inputs.cut=auto,input", "+workers.leases=x", "checker.nan=true,false", "model=a"]
    told = ("-m", "cut.policy=auto,input", "+workers.lease_folder=x", "checker.nan=fail,ignore", "model=a")
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
        "checker": {"name": "finite", "nan": False},
        "cut": {"shapes": "symbolic"},
        "hydra": {"sweeper": {"params": {"inputs.record": "ahead,off"}}},
    }
    path.write_text(yaml.safe_dump(held))
    assert read_user_file(path) == {
        "inputs": {"name": "random", "timeout": 5},
        "target": {"name": "tensorrt", "flavor": "tensorrt_rtx"},
        "checker": {"name": "finite", "nan": "ignore"},
        "cut": {"shapes": "symbolic", "policy": "seeded"},
        "hydra": {"sweeper": {"params": {"cut.record": "ahead,off"}}},
    }
    assert len(capsys.readouterr().err.splitlines()) == 1
    twice = {"inputs.cut": "auto", "cut.policy": "auto"}
    for both in ({"cut": {"policy": "auto"}, "inputs": {"cut": "auto"}}, {"hydra": {"sweeper": {"params": twice}}}):
        with pytest.raises(UsageError, match=r"mine\.yaml: inputs\.cut is cut\.policy now, and both are given"):
            content(both, str(path))


def test_a_replay_of_an_earlier_version_has_keys_that_nobody_read() -> None:
    strategy = {"defaults": ["repeat", "_self_"], "name": "repeat", "subject": "command", "until": "3", "find": "cause"}
    replay = {"strategy": strategy, "recorded": {"context": {}}}
    assert "find" not in content(replay, "replay.yaml")["strategy"]
    assert content(replay, "replay.yaml")["strategy"]["until"] == "3"
    assert "find" in content({"strategy": strategy}, "mine.yaml")["strategy"]


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
    assert "inputs/mine.yaml: inputs.cut is cut.policy now" in done.stderr
