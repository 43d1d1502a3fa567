"""Each YAML of conf/ composes, says how it is used, and documents each key; together they are the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from runner.cli.compose import register, to_settings
from runner.cli.paths import expand_home
from runner.schema import installed_choices
from runner.schema.installed_choices import CONF, SCHEMAS
from runner.schema.root import Settings
from tests.matrix import slow

FILES = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*.yaml"))
GROUPS = sorted(file for file in FILES if file.split("/")[0] in SCHEMAS)
EXPERIMENTS = sorted(Path(file).stem for file in FILES if file.startswith("experiment/"))


@pytest.fixture(autouse=True, scope="module")
def _hydra() -> Iterator[None]:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


@pytest.mark.parametrize("file", FILES)
def test_first_line_is_the_command_that_uses_it(file: str) -> None:
    lines = [line for line in (CONF / file).read_text().splitlines() if not line.startswith("# @package")]
    assert lines[0].startswith("# python -m runner")
    group, option = Path(file).parent.as_posix(), Path(file).stem
    if group not in {".", "shared"}:
        assert f"{group}={option}" in lines[0]
    assert len(lines) > 1 and lines[1].startswith("# "), "the second line says what it is"


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("experiment/")])
def test_every_key_of_an_experiment_is_documented(file: str) -> None:
    previous = ""
    inside_hydra = False
    for line in (CONF / file).read_text().splitlines():
        if re.match(r"\S", line):
            inside_hydra = line.startswith("hydra:")
        key = re.match(r"\s*([A-Za-z_]\w*):", line)
        if key and key[1] not in {"defaults", "_target_"} and not inside_hydra:
            assert previous.strip().startswith("#"), f"{file}: {key[1]} has no comment"
        previous = line


@pytest.mark.parametrize("file", GROUPS)
def test_option_names_every_key_of_its_schema_with_its_default(file: str) -> None:
    group, option = Path(file).parent.name, Path(file).stem
    content = yaml.safe_load((CONF / file).read_text())
    reference, *shared = [item.removesuffix("@_here_") for item in content.pop("defaults") if item != "_self_"]
    schema = SCHEMAS[group][reference.removeprefix(f"/schema/{group}/")]
    for path in shared:
        content = {**yaml.safe_load((CONF / f"{path[1:]}.yaml").read_text()), **content}
    # a choice is what its schema is called; a subject comes with the choice of a strategy
    assert {*content, "name", "subject"} == {*(item.name for item in fields(schema)), "name", "subject"}
    default = OmegaConf.to_container(OmegaConf.structured(schema), resolve=True)
    differing = {key for key, value in content.items() if _plain(default[key]) != value}
    assert differing <= {"name", "search", "keep", "count", "optimization"}
    assert content.get("name", option) == option


def test_config_names_every_plain_section_with_its_default() -> None:
    content = yaml.safe_load((CONF / "config.yaml").read_text())
    content["cut"] = yaml.safe_load((CONF / "shared" / "cut.yaml").read_text())
    default = OmegaConf.to_container(OmegaConf.structured(Settings), resolve=True)
    for item in fields(Settings):
        if item.name not in SCHEMAS:
            assert content[item.name] == _plain(default[item.name]), item.name


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return getattr(value, "name", value)


def _together() -> Iterator[dict[str, str]]:
    """Each option of each group, of all groups at once: composing takes long."""
    options: dict[str, list[str]] = {}
    for file in GROUPS:
        options.setdefault(Path(file).parent.name, []).append(Path(file).stem)
    for row in zip_longest(*options.values()):
        yield {group: option for group, option in zip(options, row, strict=True) if option}


# further rows hold strategies and checkers alone, and the golden runs compose each of these
@pytest.mark.parametrize("chosen", [row if at < 4 else slow(row) for at, row in enumerate(_together())])
def test_every_option_composes_to_its_settings_class(chosen: dict[str, str]) -> None:
    settings = to_settings(compose("config", overrides=[f"{group}={option}" for group, option in chosen.items()]))
    assert expand_home(installed_choices.compose(chosen)) == settings  # a program has the same defaults
    for group, option in chosen.items():
        section, schemas = getattr(settings, group), SCHEMAS[group]
        base = next((name for name in schemas if option.startswith(f"{name}_")), next(iter(schemas)))
        assert type(section) is schemas.get(option, schemas[base])
        assert is_dataclass(section)
        with pytest.raises(AttributeError):
            section.name = "x"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name: str) -> None:
    assert isinstance(to_settings(compose("config", overrides=[f"+experiment={name}", "model=net.onnx"])), Settings)
    assert len(EXPERIMENTS) >= 2


def test_what_a_program_gives_means_itself() -> None:
    given = {"command": ["\\${A}", "${B}x", "$C"], "env": {"D": "${oc.env:HOME}"}, "place": Path("here.onnx")}
    checker = installed_choices.compose({"checker": {"name": "command", **given}}).checker
    assert {key: getattr(checker, key) for key in given} == {**given, "place": "here.onnx"}
    assert installed_choices.compose({"checker": checker, "cut": None}).checker is checker
