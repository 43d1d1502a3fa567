"""What Hydra composes of Winnow's files and a user's, asked by its public interface alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.cli.compose import FILES, NAME, register, searching, store_user_file
from runner.exit_codes import UsageError
from runner.schema.installed_choices import CONF
from tests.harness import ROOT

PRIVATE = re.compile(r"(hydra|omegaconf)\._[a-z]|from (hydra|omegaconf)[\w.]* import .*\b_")
#: what both have by a name that begins so, and the project has not
INTERNALS = re.compile(
    r"\._(get_node|get_flag|set_flag|get_parent|is_none|is_missing|is_interpolation|metadata|content|value\(\)|iter_ex"
    r"|normalize_file_name|load_single_config|compose_config\w*|find_object_source|option_string_actions)\b"
)


def composed(name: str, overrides: Sequence[str], folder: Path | None = None) -> DictConfig:
    register()
    with searching(None, str(folder) if folder else None), hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return GlobalHydra.instance().config_loader().load_configuration(name, list(overrides), RunMode.RUN)


def test_no_private_name_of_theirs_is_touched() -> None:
    found = []
    for folder in ("runner", "strategies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            theirs = re.search(r"^\s*(import|from) (hydra|omegaconf)\b", text, re.MULTILINE)
            lines = text.splitlines() if theirs else []
            found += [f"{path.name}: {one}" for one in lines if PRIVATE.search(one) or INTERNALS.search(one)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: " + "[" * 60_000, "nested deeper than 50 levels"), ("a: &a [*a]", "an alias within what it stands for")],
)
def test_a_text_in_a_value_is_bounded(text: str, said: str) -> None:
    """Such texts come out of files too, by `oc.create`."""
    register()
    config = OmegaConf.create({"cwd": f"${{oc.create:{text!r}}}"})
    with pytest.raises(OmegaConfBaseException, match=said):
        config.cwd  # noqa: B018


EVIL = {"common/evil": "_target_: os.abort\n", "hydra/callbacks/evil": "x: {_target_: os.abort}\n"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"mine": "defaults: [config, /common/evil@hydra.callbacks.x]"}, "defaults: /common/evil@hydra.callbacks.x"),
        ({"mine": "defaults: [config, {/common@_global_.hydra.x: evil}]"}, "defaults: /common@_global_.hydra.x"),
        ({"mine": "defaults: [config, '/common/evil@[hydra].x']"}, "defaults: /common/evil@"),
        ({"mine": "defaults: [config, {hydra/callbacks: evil}]"}, "hydra.callbacks"),
        ({"mine": "defaults: [config, {override hydra/launcher: in}]", "hydra/launcher/in": "defaults: [/common/evil]"},
         "defaults: /common/evil"),
        ({"mine": "defaults: [config, /a]", "a": "# @package hydra.callbacks\nx: {_target_: b}"}, "hydra.callbacks"),
        ({"mine": "defaults: [config, /a]", "a": "# @package _global_.hydra\ncallbacks: {}"}, "hydra.callbacks"),
        ({"mine": "defaults: [config, /a@_global_]", "a": "hydra: {job: {env_set: {A: b}}}"}, "hydra.job.env_set"),
        ({"mine": "defaults: [config, {'[hydra]/callbacks': evil}]", "[hydra]/callbacks/evil": "x: 1"}, "[hydra]"),
    ],
)  # fmt: skip
def test_whatever_way_a_file_takes_to_hydras_own_section(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in {**EVIL, **files}.items():
        (tmp_path / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)):
        composed("mine", [], tmp_path)


def test_a_file_outside_the_groups_has_its_paths_from_its_folder(tmp_path: Path) -> None:
    for name, text in (
        ("common/judge", "file: judge.py\n"),
        ("checker/ours", "defaults: [python, /common/judge@_here_, _self_]\n"),
        ("hydra-bugs/one", "# @package _global_\nmodel: net.onnx\ninputs: {path: a.npz}\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    config = composed("config", ["checker=ours", "+hydra-bugs=one", "inputs=files"], tmp_path)
    assert config.checker.file == str(tmp_path / "common" / "judge.py")
    assert config.model == str(tmp_path / "hydra-bugs" / "net.onnx")


def test_the_users_own_file_is_nothing_to_choose(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("checker: {name: finite}\nmodel: a.onnx\n")
    register()
    try:
        name = store_user_file(tmp_path / "my.yaml")
        assert composed(name, []).checker.name == "finite"
        with _initialized() as loader:
            assert NAME not in loader.get_group_options("checker") and "finite" in loader.get_group_options("checker")
            assert "command" in loader.get_group_options("schema/checker", ObjectType.CONFIG)
            assert loader.get_group_options("schema", ObjectType.GROUP)[0] == "artifacts"
    finally:
        FILES.clear()


@contextmanager
def _initialized() -> Iterator[hydra.core.config_loader.ConfigLoader]:
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


def test_folders_that_another_program_has_hydra_search_are_left_alone(tmp_path: Path) -> None:
    register()
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.3"):
        places = [one.path for one in GlobalHydra.instance().config_loader().get_search_path().get_path()]
    assert places == ["pkg://hydra.conf", str(tmp_path), "structured://"]
