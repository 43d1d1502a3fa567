"""Hydra's loader of configurations, for files that came with a bug report: none of them may bring code with it.

Hydra takes classes, modules and environment variables from its own section of a configuration: callbacks, handlers of
logs, launchers, search paths. On the command line a user may set any of that. A file that is not Winnow's (or an
installed plugin's) may set what `ALLOWED` names, and nothing else below ``hydra``, however it gets there: as a section
of the primary file, as an option of a group beside it, by a package of another name, or as a parameter of a sweep.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import hydra._internal.defaults_list
import hydra._internal.hydra
import omegaconf._utils
import omegaconf.base
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config.bounded_yaml import fast_yaml, invalid, read_yaml
from runner.cli.config.compose import merged, referred_choices
from runner.cli.config.file_paths import from_file, parameters_from_file
from runner.cli.config.user_file import NAME
from runner.errors import UsageError
from runner.schema.installed_choices import CONF, added

#: what a file of a user's may set of Hydra's own; a launcher's keys are those that begin with no underscore
ALLOWED = (
    "hydra.mode",
    "hydra.run.dir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.launcher",
    "hydra.sweeper.max_batch_size",
    "hydra.sweeper.params",
    "hydra.verbose",
    "hydra.job.config.override_dirname.exclude_keys",
    "hydra.job.config.override_dirname.item_sep",
    "hydra.job.config.override_dirname.kv_sep",
)
#: those of which a value may be a list, of plain texts
_LISTS = frozenset({"hydra.verbose", "hydra.job.config.override_dirname.exclude_keys"})
#: texts whose parsed form is kept
_PARSED = 256
#: what Hydra adds where neither the command line nor a file sets the mode
_RUN = "hydra.mode=RUN"
#: a parameter of a sweep, as the override that it will be, that sets something of Hydra's own
_OF_HYDRA = re.compile(r"[+~]*(hydra([./@:=]|$)|[^=]*[@:]_?(hydra|global_)?([.=]|$)|[^=]*@[^=]*hydra)")


class Loader(ConfigLoaderImpl):
    """Composes as Hydra does. Raises UsageError for a file that sets what files may not."""

    def __init__(self, config_search_path: ConfigSearchPath, begins: Callable[[RunMode, DictConfig], None]) -> None:
        there = {item.path for item in config_search_path.get_path()}
        for path in (f"pkg://{package}" for package in added().conf):
            if path not in there:  # a sweep's job gets the sweep's own search path
                config_search_path.prepend("winnow-plugin", path, anchor="schema")
        super().__init__(config_search_path)
        # from the question for the mode to the next: what that will be, and the answer
        self._prepared: dict[tuple[Any, ...], DictConfig] | None = None
        self._begins = begins
        self.repository = _Repository(config_search_path)

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Return the composed configuration.

        Where a run or a sweep is to begin, Hydra asks for a configuration to see its mode, and only that, before it
        asks for the one that it uses. Most often this is a run with the same overrides: it is composed at the first
        question and given at the second.
        """
        if not validate_sweep_overrides:
            return self._with_mode(config_name, overrides, from_shell)
        prepared, self._prepared = self._prepared, None
        config = (prepared or {}).get((config_name, *overrides, run_mode))
        if config is None:
            config = self._composed(config_name, overrides, run_mode, from_shell)
        if prepared is not None:
            self._begins(run_mode, config)
        return config

    def _with_mode(self, config_name: str | None, overrides: list[str], from_shell: bool) -> DictConfig:
        self._prepared = {}
        try:
            config = self._composed(config_name, overrides, RunMode.RUN, from_shell)
        except Exception:  # noqa: BLE001 - a sweep, or what Hydra will come upon again
            return super().load_configuration(config_name, overrides, RunMode.MULTIRUN, from_shell, False)
        mode = config.hydra.mode
        if mode is None:  # Hydra adds it
            overrides = [*overrides, "hydra.mode=RUN"]
            config.hydra.mode = RunMode.RUN
            config.hydra.overrides.hydra.append(overrides[-1])
        self._prepared = {(config_name, *overrides, RunMode.RUN): config}
        return OmegaConf.create({"hydra": {"mode": mode}})

    def _composed(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, from_shell: bool
    ) -> DictConfig:
        config = super().load_configuration(config_name, overrides, run_mode, from_shell)
        for section in ("launcher", "sweeper"):
            _refuse_borrowed(OmegaConf.select(config, f"hydra.{section}"), f"hydra.{section}")
        return config

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        try:
            return merged([self._load_single_config(default=one, repo=repo).config for one in defaults])
        except Exception:  # noqa: BLE001 - Hydra, which merges one after the other, says in which file
            return super()._compose_config_from_defaults_list(defaults=defaults, repo=repo)

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        result = super()._load_single_config(default, repo)
        if file := _users_file(result, str(default.config_path)):
            _check(result.config, file)
            plain = OmegaConf.to_container(result.config, resolve=False)
            if isinstance(plain, dict):
                held: dict[Any, Any] = {str(key): plain[key] for key in plain}
                if not (result.path or "").startswith("structured"):  # else it was read by `user_file`
                    held = from_file(held, "", Path(file))
                sweeper = (held.get("hydra") or {}).get("sweeper") or {}
                if isinstance(params := sweeper.get("params"), dict):
                    sweeper["params"] = parameters_from_file(params, Path(file))
                result.config = OmegaConf.create(held)
        return result


@contextmanager
def loading(begins: Callable[[RunMode, DictConfig], None]) -> Iterator[None]:
    """Have Hydra load configurations by `Loader`; its own entry makes the loader by this name.

    ``begins``: is told of the run or sweep that is about to begin, whose configuration it may refuse.
    """
    entry: Any = hydra._internal.hydra
    defaults: Any = hydra._internal.defaults_list
    choices = defaults._create_interpolation_map
    values: Any = omegaconf._utils
    nodes: Any = omegaconf.base
    before = entry.ConfigLoaderImpl, values.get_yaml_loader, values.parse
    entry.ConfigLoaderImpl = partial(Loader, begins=begins)
    defaults._create_interpolation_map = partial(referred_choices, choices)
    values.get_yaml_loader = partial(fast_yaml, before[1])
    # most texts with an interpolation are parsed again where their node is copied or merged
    values.parse = nodes.parse = lru_cache(_PARSED)(before[2])
    try:
        yield
    finally:
        entry.ConfigLoaderImpl, values.get_yaml_loader, values.parse = before
        nodes.parse = values.parse
        defaults._create_interpolation_map = choices


class _Repository(ConfigRepository):
    def __deepcopy__(self, _memo: dict[int, Any]) -> _Repository:
        """Return a repository whose sources can be replaced; what they hold, all schemas among it, need no copy."""
        return copy(self)

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        """Return the options of a group that a user may choose; sections of their file are none."""
        return [name for name in super().get_group_options(group_name, results_filter) if name != NAME]

    def load_config(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        path = _path(source, config_path) if source is not None else None
        if path is not None:
            read_yaml(path)
        try:
            result = super().load_config(config_path)
        except yaml.YAMLError as error:  # in an installed package
            file = ConfigSource._normalize_file_name(config_path)
            raise invalid(f"{source.full_path() if source else ''}/{file}", error) from error
        # the search path is read before anything is composed
        if result is not None and (file := _users_file(result, config_path)):
            _check(result.config, file)
        return result


def _path(source: ConfigSource, config_path: str) -> Path | None:
    """Return the file of a user's that ``config_path`` means. Raises UsageError for one outside the source's folder."""
    if source.scheme() != "file":
        return None
    folder = Path(source.path)
    path = Path(os.path.normpath(folder / ConfigSource._normalize_file_name(config_path)))
    if not path.is_relative_to(os.path.normpath(folder)):
        raise UsageError(f"{config_path}: this configuration lies outside {folder}. Put it there, or give its folder.")
    return None if folder.resolve() == CONF else path


def _users_file(result: ConfigResult, config_path: str) -> str:
    """Return the file of a user's that this comes from; nothing: it is Winnow's or an installed package's."""
    scheme, _, place = (result.path or "").partition("://")
    if scheme == "structured":
        return str(result.provider) if config_path.removesuffix(".yaml").rpartition("/")[2] == NAME else ""
    if scheme != "file" or Path(place).resolve() == CONF:
        return ""
    return str(Path(place) / ConfigSource._normalize_file_name(config_path))


def _check(config: Any, file: str) -> None:
    if not isinstance(config, DictConfig) or config._is_none() or config._is_missing() or "hydra" not in config:
        return
    content = OmegaConf.to_container(config, resolve=False)
    assert isinstance(content, dict)
    for key in _refused(content["hydra"], "hydra", file):
        raise UsageError(
            f"{file}: {key}: a file may not set this so; much of Hydra's own section can name code to run. A file "
            f"may set {', '.join(ALLOWED)}. What else you want: on the command line"
        )


def _refused(value: Any, key: str, file: str) -> Iterator[str]:
    """Yield the keys below ``hydra`` that a file may not set, or not to such a value."""
    if key == "hydra.launcher":
        yield from [f"{key}.{inner}" for inner in _special(value)] if isinstance(value, dict) else [key]
    elif key == "hydra.sweeper.params":
        refuse_parameters(value, file)
    elif key in ALLOWED:
        texts = key in _LISTS and isinstance(value, list) and all(isinstance(one, str) for one in value)
        if isinstance(value, (dict, list)) and not texts:
            yield key
    elif isinstance(value, dict) and any(allowed.startswith(f"{key}.") for allowed in ALLOWED):
        for name, inner in value.items():
            if name != "defaults":  # on what a section stands
                yield from _refused(inner, f"{key}.{name}", file)
    else:
        yield key


def refuse_parameters(params: Any, file: str) -> None:
    """Raise UsageError for parameters of a sweep that a file may not set."""
    names = [str(name) for name in params] if isinstance(params, dict) else []
    wrong = next((name for name in names if _OF_HYDRA.match(name)), None)
    if wrong is not None or not isinstance(params, (dict, type(None))) or any(_special(params)):
        raise UsageError(
            f"{file}: hydra.sweeper.params: {wrong if wrong is not None else params}: a file sweeps over keys of "
            "Winnow's only, as in {model: 'a.onnx,b.onnx'}; what else you want: on the command line"
        )


def _special(value: Any) -> Iterator[str]:
    """Yield the keys in ``value``, at any depth, that Hydra makes objects by: `_target_` and its like."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if str(name).startswith("_"):
                yield str(name)
            yield from (f"{name}.{key}" for key in _special(inner))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from (f"{number}.{key}" for key in _special(inner))


def _refuse_borrowed(node: Any, prefix: str) -> None:
    """Refuse an interpolation that brings an object's description to where Hydra makes objects of such."""
    if not OmegaConf.is_config(node) or node._is_none() or node._is_missing():
        return
    for name in node if isinstance(node, DictConfig) else range(len(node)):
        key, inner = f"{prefix}.{name!s}", node._get_node(name)
        if inner is None or not inner._is_interpolation():
            _refuse_borrowed(inner, key)
            continue
        try:
            value = node[name]
            plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException:  # whoever reads it will say so
            continue
        for special in _special(plain):
            raise UsageError(f"{key}: it stands for a value with {special}, which can name code to run. Write a value.")
