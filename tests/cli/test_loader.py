"""A run is composed once, though Hydra asks twice, and is what Hydra would have composed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
import yaml
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.utils import setup_globals
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config.bounded_yaml import fast_yaml
from runner.cli.config.loader import CONF, Loader, loading
from runner.schema.register import register

TYPED = ["model=net.onnx", "strategy=repeat"]


def test_a_run_is_composed_at_the_question_for_its_mode() -> None:
    register()
    setup_globals()
    begun: list[tuple[RunMode, DictConfig]] = []
    path = create_automatic_config_search_path(None, None, str(CONF))
    loader, plain = (Loader(path, lambda mode, config: begun.append((mode, config))) for _ in range(2))
    asked = loader.load_configuration("config", TYPED, RunMode.MULTIRUN, validate_sweep_overrides=False)
    assert asked.hydra.mode is None and not begun
    now = [*TYPED, "hydra.mode=RUN"]  # as Hydra goes on where no mode was set
    config = loader.load_configuration("config", now, RunMode.RUN)
    (started,) = begun
    assert started[0] is RunMode.RUN and started[1] is config
    at_once = plain.load_configuration("config", now, RunMode.RUN)
    assert OmegaConf.to_container(config) == OmegaConf.to_container(at_once)
    assert len(begun) == 1, "where nobody asks for a mode nothing begins"


def test_a_sweep_is_composed_as_one() -> None:
    register()
    begun: list[RunMode] = []
    path = create_automatic_config_search_path(None, None, str(CONF))
    loader = Loader(path, lambda mode, _: begun.append(mode))
    loader.load_configuration("config", ["model=a,b"], RunMode.MULTIRUN, validate_sweep_overrides=False)
    loader.load_configuration("config", ["model=a,b", "hydra.mode=MULTIRUN"], RunMode.MULTIRUN)
    assert begun == [RunMode.MULTIRUN]


CHOSEN = [
    *(f"strategy={path.stem}" for path in sorted((CONF / "strategy").glob("*.yaml"))),
    *(f"checker={path.stem}" for path in sorted((CONF / "checker").glob("*.yaml"))),
    *("target=tensorrt", "reference=onnx_reference", "inputs=files", "workers=parallel", "hydra/launcher=basic"),
]


def test_files_that_are_merged_at_once_make_what_hydra_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    setup_globals()
    path = create_automatic_config_search_path(None, None, str(CONF))
    loader = Loader(path, lambda _mode, _config: None)
    at_once = {one: loader.load_configuration("config", [one], RunMode.RUN) for one in CHOSEN}
    monkeypatch.delattr(Loader, "_compose_config_from_defaults_list")
    for one, config in at_once.items():
        theirs = loader.load_configuration("config", [one], RunMode.RUN)
        assert OmegaConf.to_yaml(config) == OmegaConf.to_yaml(theirs), one
        assert _kinds(config) == _kinds(theirs), one


def _kinds(node: DictConfig, prefix: str = "") -> dict[str, tuple[object, ...]]:
    """Return what OmegaConf knows of each node: its type, its parent, whether it takes new keys and may be changed."""
    found: dict[str, tuple[object, ...]] = {}
    for key in map(str, node):
        inner = node._get_node(key)
        assert inner is not None and not isinstance(inner, list)
        flags = (inner._get_flag("struct"), inner._get_flag("readonly"))
        found[prefix + key] = (OmegaConf.get_type(node, key), *flags, inner._get_parent() is node)
        if isinstance(inner, DictConfig) and not (inner._is_none() or inner._is_missing()):
            found |= _kinds(inner, f"{prefix}{key}.")
    return found


def test_a_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    register()
    setup_globals()
    (tmp_path / "checker").mkdir()
    (tmp_path / "checker" / "mine.yaml").write_text(
        "defaults: [/schema/checker/runs@_here_, /shared/checker@_here_, _self_]\ntimeout: long\n"
    )
    path = create_automatic_config_search_path(None, None, str(CONF))
    path.prepend("test", str(tmp_path))
    loader = Loader(path, lambda _mode, _config: None)
    with pytest.raises(ConfigCompositionException, match="In 'checker/mine': ValidationError"):
        loader.load_configuration("config", ["checker=mine"], RunMode.RUN)


ODD = """
words: [on, off, yes, no, true, ~, "", 'a: b', 1_000, 0x1f, 0o7, 017, 1:30, 2026-01-02]
numbers: [1e3, 1e-5, .5, -.inf, .nan, 1_0.5e+3, 1E5]
a: "${b}/\\u00e9"
b: |
  two
  lines
c: >-
  folded
  once
same: &one [1, {x: 2}]
again: *one
"""


def test_yaml_is_read_as_omegaconf_reads_it() -> None:
    plain, fast = get_yaml_loader(), fast_yaml(get_yaml_loader)
    assert fast is fast_yaml(get_yaml_loader), "it is made once"
    texts = [path.read_text() for path in sorted(CONF.rglob("*.yaml"))] + [ODD]
    assert len(texts) > 30
    for text in texts:
        assert repr(yaml.load(StringIO(text), fast)) == repr(yaml.load(text, plain)) == repr(yaml.load(text, fast))
    with pytest.raises(yaml.YAMLError, match="duplicate key a"):
        yaml.load(StringIO("a: 1\nb: 2\na: 3"), fast)
    with pytest.raises(yaml.YAMLError, match="python/object/apply"):
        yaml.load(StringIO("!!python/object/apply:os.system [true]"), fast)
    with pytest.raises(yaml.YAMLError) as wrong:
        yaml.load(StringIO("a: 1\nb: ["), fast)
    assert wrong.value.problem_mark.line in (1, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: " + "[" * 60_000, "nested deeper than 50 levels"), ("a: &a [*a]", "an alias within what it stands for")],
)
def test_a_text_in_a_value_is_bounded(text: str, said: str) -> None:
    """Such texts come out of files too, by `oc.create`; libyaml's parser dies of one that nests without end."""
    config = OmegaConf.create({"cwd": f"${{oc.create:{text!r}}}"})
    with loading(lambda mode, config: None), pytest.raises(OmegaConfBaseException, match=said):
        config.cwd  # noqa: B018
