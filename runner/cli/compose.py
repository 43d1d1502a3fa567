"""Composing the configuration: Hydra's loader, a user's own file, and the settings that come of both."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from runner import machine
from runner.cli.bounded_yaml import BoundedLoader, read_yaml
from runner.cli.explain_errors import explain, unknown_key
from runner.cli.paths import expand_home
from runner.cli.paths_in_configs import content_from_file, tell_of_commands
from runner.exit_codes import UsageError
from runner.files import write_text
from runner.schema.installed_choices import CONF, SCHEMAS, added, config_of
from runner.schema.root import Settings
from runner.text import note_environment, one_line


def to_settings(config: DictConfig) -> Settings:
    """Return ``config`` as frozen dataclasses, ``~`` expanded. Raises UsageError where it does not fit the schema."""
    extra = unknown_keys(config)
    if extra:
        raise UsageError(" ".join(unknown_key(key, kind) for key, kind in extra))
    try:
        settings = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise UsageError(explain(error)) from error
    if not isinstance(settings, Settings):
        raise UsageError(
            "the configuration was not composed from Winnow's: start the file's `defaults` with `config` "
            "(defaults: [config, _self_])."
        )
    return expand_home(settings)


def unknown_keys(config: DictConfig, prefix: str = "") -> list[tuple[str, type]]:
    """Return keys that ``+key=value`` forced into a section whose schema has no such key."""
    kind = OmegaConf.get_type(config)
    if kind is None or not is_dataclass(kind):
        return []
    names = {item.name for item in fields(kind)}
    found: list[tuple[str, type]] = []
    for key in map(str, config):
        if key not in names:
            found.append((prefix + key, kind))
        elif not OmegaConf.is_missing(config, key) and not OmegaConf.is_interpolation(config, key):
            section = config[key]
            if isinstance(section, DictConfig):
                found += unknown_keys(section, f"{prefix}{key}.")
    return found


# What a file that came with a bug report may set of Hydra's own section: none of them may bring code with it.
#
# Hydra takes classes, modules and environment variables from there: callbacks, handlers of logs, launchers, search
# paths. On the command line a user may set any of that. A file that is not Winnow's (or an installed plugin's) may set
# what `ALLOWED` names, and nothing else below ``hydra``, however it gets there: as a section of the primary file, as
# an option of a group beside it, by a package of another name, or as a parameter of a sweep.

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
_LAUNCHER, _PARAMS = "hydra.launcher", "hydra.sweeper.params"
#: a parameter of a sweep, as the override that it will be, that sets something of Hydra's own
_OF_HYDRA = re.compile(r"[+~]*(hydra([./@:=]|$)|[^=]*[@:]_?(hydra|global_)?([.=]|$)|[^=]*@[^=]*hydra)")
_PLACE = re.compile(r"hydra(\.\w+)*")


def check(content: Mapping[Any, Any], place: str, file: str) -> None:
    """Raise UsageError for what a ``file`` of a user's may not set.

    ``place``: the section that its content becomes unless whoever includes it names another, which no file may do of
    Hydra's own section.
    """
    of_hydra = _names_hydra(place)
    defaults = content.get("defaults")
    for entry in defaults if isinstance(defaults, list) else ():
        word = " ".join(map(str, entry)) if isinstance(entry, Mapping) else str(entry)
        package = word.partition("@")[2]
        if (
            _names_hydra(package)
            or "$" in package
            or (of_hydra and (isinstance(entry, Mapping) or set(word) & {*"/@"}))
        ):
            raise _error(f"defaults: {word}", file)
    if of_hydra:
        if not _PLACE.fullmatch(place):
            raise _error(place, file)
        content = {key: value for key, value in content.items() if key != "defaults"}
        for part in reversed(place.split(".")):
            content = {part: content}
    for key, value in _leaves(content["hydra"], "hydra") if "hydra" in content else ():
        launcher = key.startswith(f"{_LAUNCHER}.") and not _is_special(key)
        listed = key.rpartition(".")[0] in _LISTS and isinstance(value, str)
        parameter = key.startswith(f"{_PARAMS}.")  # see below
        if not (launcher or listed or parameter or key in ALLOWED) or (key == _LAUNCHER and value):
            raise _error(key, file)
    hydra = content.get("hydra")
    sweeper = hydra.get("sweeper") if isinstance(hydra, Mapping) else None
    if isinstance(sweeper, Mapping):
        refuse_parameters(sweeper.get("params"), file)


def _names_hydra(package: str) -> bool:
    return "hydra" in re.split(r"[./\[\]:@\s]+", package)


def _error(key: str, file: str) -> UsageError:
    return UsageError(
        f"{file}: {key}: a file may not set this so; much of Hydra's own section can name code to run. A file "
        f"may set {', '.join(ALLOWED)}. What else you want: on the command line"
    )


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted key of each plain or empty value at any depth, and the value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield key, value
    for name, part in inner:
        yield from _leaves(part, f"{key}.{name}")


def _is_special(key: str) -> bool:
    """Whether Hydra makes objects by what lies there: `_target_` and its like."""
    return "._" in key


def refuse_parameters(params: Any, file: str) -> None:
    """Raise UsageError for parameters of a sweep that a file may not set."""
    names = [str(name) for name in params] if isinstance(params, dict) else []
    wrong = next((name for name in names if _OF_HYDRA.match(name)), None)
    special = any(_is_special(key) for key, _ in _leaves(params, ""))
    if wrong is not None or not isinstance(params, (dict, type(None))) or special:
        raise UsageError(
            f"{file}: hydra.sweeper.params: {one_line(params if wrong is None else wrong)}: a file sweeps over keys of "
            "Winnow's only, as in {model: 'a.onnx,b.onnx'}; what else you want: on the command line"
        )


def refuse_borrowed(node: Any, prefix: str) -> None:
    """Refuse an interpolation that brings an object's description to where Hydra makes objects of such."""
    names: Any = node if isinstance(node, DictConfig) else range(len(node)) if OmegaConf.is_list(node) else ()
    for name in names:
        key = f"{prefix}.{name!s}"
        if OmegaConf.is_missing(node, name):
            continue
        if not OmegaConf.is_interpolation(node, name):
            refuse_borrowed(node[name], key)
            continue
        try:
            value = node[name]
            plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException:  # whoever reads it will say so
            continue
        for special in filter(_is_special, (inner for inner, _ in _leaves(plain, key))):
            raise UsageError(f"{special}: an interpolation stands for it, and it can name code to run. Write a value.")


# A user's own YAML file as the primary configuration.
#
# It is read here and not by Hydra: a file called ``config.yaml`` would otherwise be taken for the shipped one, and a
# file without ``defaults`` would replace the whole configuration instead of changing it.

#: under this name Hydra finds the file; no file of a user's is likely to be called so
NAME = "winnow-user-file"
FILES: dict[str, tuple[DictConfig, str]] = {}
"""What was stored, by the name that Hydra has for it: the content, and the file."""


class _Loader(BoundedLoader):
    """YAML in which off, on, yes and no are text, as in YAML 1.2, with duplicate keys refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key_node.value!r} is there twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def store_user_file(path: Path, name: str = NAME) -> str:
    """Register the file as a primary config and return its name. Raises UsageError for a file that is no such thing."""
    return store_content(read_user_file(path), path, name)


def store_content(content: dict[str, Any], path: Path, name: str = NAME) -> str:
    """Register what was read of the file at ``path``: see `store_user_file`."""
    options: dict[str, Any] = {}
    if "defaults" not in content:
        content, options = with_defaults(content, name)
    elif isinstance(content["defaults"], list) and "_self_" not in content["defaults"]:
        content = {**content, "defaults": [*content["defaults"], "_self_"]}  # as Hydra does, with a warning of its own
    try:
        for key, part in {**{f"{group}/{name}": option for group, option in options.items()}, name: content}.items():
            check(part, key.rpartition("/")[0], str(path))
            FILES[key] = OmegaConf.create(part), str(path)
    except OmegaConfBaseException as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error
    return name


def read_user_file(path: Path) -> dict[str, Any]:
    """Return the mapping that the YAML file holds, its paths from the file's folder on: see `read_settings`."""
    content = read_settings(path)
    tell_of_commands(content, path)
    return content_from_file(content, path)


def read_settings(path: Path) -> dict[str, Any]:
    """Return the mapping that the YAML file holds. Raises UsageError naming file and line otherwise."""
    content = read_yaml(path, _Loader)
    if content is None:
        content = {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UsageError(f"{path}: this is no mapping of keys to values. A line of it looks like  model: net.onnx")
    return content


def with_defaults(content: Mapping[str, Any], called: str = NAME) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the file's content with the defaults that it means, and options made of its sections, by group.

    A group may be given as the name of an option, or as a section in which ``name`` is the option (or which has
    ``defaults`` of its own, as in a replay). Such a section
    becomes an option of its own, so that another choice on the command line replaces all of it.
    """
    body, options = dict(content), {}
    defaults: list[Any] = ["config"]
    for group in SCHEMAS:
        value = body.get(group)
        if isinstance(value, str):
            defaults.append({f"override {group}": value})
            del body[group]
        elif isinstance(value, Mapping) and ("defaults" in value or isinstance(value.get("name"), str)):
            defaults.append({f"override {group}": called})
            options[group] = {"defaults": [value.get("name"), "_self_"], **value}
            del body[group]
    given = body.get("hydra")
    hydra = dict(given) if isinstance(given, Mapping) else {}
    for group in ("launcher", "sweeper"):
        if isinstance(hydra.get(group), str):
            defaults.append({f"override hydra/{group}": hydra.pop(group)})
            body["hydra"] = hydra
    return {"defaults": [*defaults, "_self_"], **body}, options


# Where Hydra finds configurations: in Winnow's folder, in those of users, whose files bring no code, and in memory.
#
# Hydra asks plugins for the configurations that a search path names by a scheme of theirs.

#: Hydra's own source of files
_Files: Any = next(
    one for one in Plugins.instance().discover(ConfigSource) if issubclass(one, ConfigSource) and one.scheme() == "file"
)


class Folder(_Files):  # type: ignore[misc]
    """A folder of a user's: ``folder:///home/me/bugs``. Its files are bounded and checked, their paths absolute."""

    @staticmethod
    def scheme() -> str:
        """Return what begins the path of such a folder."""
        return "folder"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return what a file holds, by its name. Raises UsageError for a file that is no configuration."""
        file = Path(self.path, f"{config_path.removesuffix('.yaml')}.yaml")
        if not Path(os.path.normpath(file)).is_relative_to(os.path.normpath(self.path)):
            raise UsageError(
                f"{config_path}: this configuration lies outside {self.path}. Put it there, or give its folder."
            )
        if file.exists():
            read_yaml(file)
        found: ConfigResult = super().load_config(config_path)
        if isinstance(found.config, DictConfig):
            package = (found.header or {})["package"]
            place = config_path.rpartition("/")[0].replace("/", ".") if package in (None, "_group_") else str(package)
            place = re.sub(r"^_global_\.?", "", place)
            content = cast("dict[str, Any]", OmegaConf.to_container(found.config))
            check(content, place, str(file))
            found.config = OmegaConf.create(content_from_file(content, file, place))
        return found


class Memory(ConfigSource):
    """The schemas, each in a group of its own (``schema/checker/command``), and the user's file under its name.

    The schemas are out of the way of the options that a user chooses from; the option's YAML names its schema in its
    defaults, so that a wrong key or a wrong type is an error before any work. A user's own option does the same.
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self._files = FILES  # a job in another process, to which this is sent, has not read the file

    @staticmethod
    def scheme() -> str:
        """Return what names it in a search path."""
        return "winnow"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return a schema or the user's file."""
        name = config_path.removesuffix(".yaml")
        node, provider = self._files[name] if name in self._files else (config_of(_schemas()[name]), self.provider)
        return ConfigResult(provider, self.full_path(), deepcopy(node), {"package": None})

    def available(self) -> bool:
        """Return True: it always is."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Whether this is a group of schemas."""
        return any(name.startswith(f"{config_path}/") for name in _schemas()) if config_path else True

    def is_config(self, config_path: str) -> bool:
        """Whether this is a schema or the user's file."""
        name = config_path.removesuffix(".yaml")
        return name in self._files or name in _schemas()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return the schemas of a group; the user's file is nothing to choose."""
        inner = [name.removeprefix(f"{config_path}/") for name in _schemas() if name.startswith(f"{config_path}/")]
        groups = results_filter is ObjectType.GROUP
        return sorted({name.partition("/")[0] for name in inner if not results_filter or ("/" in name) is groups})


class SearchPath(SearchPathPlugin):
    """Where Hydra looks, in this order: its own, Winnow's folder, one of the user's, installed packages, memory."""

    #: what takes the place of Winnow's folder, and a folder of the user's; None: nothing
    main: ClassVar[str | None] = None
    beside: ClassVar[str | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Change a search path that has Winnow's folder; others are another program's."""
        main = [one for one in search_path.get_path() if one.provider == "main" and one.path == str(CONF)]
        for one in main:
            one.path = place(self.main) if self.main else one.path
            if self.beside:
                search_path.append("command-line", place(self.beside))
            for package in added().conf:
                search_path.append("winnow-plugin", f"pkg://{package}")
            search_path.append("winnow", f"{Memory.scheme()}://")


@contextmanager
def searching(main: str | None, beside: str | None) -> Iterator[None]:
    """Have Hydra look in these folders: see `SearchPath`."""
    SearchPath.main, SearchPath.beside = main, beside
    try:
        yield
    finally:
        SearchPath.main = SearchPath.beside = None


def place(path: str) -> str:
    """Return a folder as a search path names it; what is no folder but a package stays as it is."""
    scheme, _, folder = path.rpartition("://")
    return f"{Folder.scheme()}://{Path(folder).absolute()}" if scheme in ("", "file", Folder.scheme()) else path


def register() -> None:
    """Tell Hydra and OmegaConf what is ours: sources of configurations, and the resolvers that ``conf/`` uses."""
    OmegaConf.register_new_resolver("run_folder", run_folder, replace=True)
    OmegaConf.register_new_resolver("cpus", machine.cpus, replace=True)
    OmegaConf.register_new_resolver("oc.create", _create, replace=True)
    OmegaConf.register_new_resolver("oc.env", _of_the_environment, replace=True)
    for plugin in (Folder, Memory, SearchPath):
        Plugins.instance().register(plugin)


def run_folder(resume: str | None, fresh: str) -> str:
    """Return where a run writes: the folder it goes on with (`check_resumed` looks whether it is there), or a fresh."""
    return os.path.abspath(os.path.expanduser(resume)) if resume else fresh  # noqa: PTH100, PTH111 - it may be no path


@contextmanager
def of_a_stranger() -> Iterator[None]:
    """Compose settings of a folder that may be anybody's: what they take from the environment stays a text."""
    OmegaConf.register_new_resolver("oc.env", lambda key, *_: f"${{oc.env:{key}}}", replace=True)
    try:
        yield
    finally:
        register()


def _of_the_environment(key: str, *default: str | None) -> str | None:
    """Do what OmegaConf's own does, and note the value."""
    value: str | None = oc.env(key, *default)
    return note_environment(key, value) if key in os.environ and value is not None else value


def _create(value: Any, _parent_: Any) -> Any:
    """Do what OmegaConf's own does; a text, which may come out of a file, is bounded as a file is."""
    if isinstance(value, str):
        yaml.load(value, BoundedLoader)  # noqa: S506 - a SafeLoader
    return OmegaConf.create(value, parent=_parent_)


def _schemas() -> dict[str, type]:
    named = {f"schema/{group}/{name}": kind for group, kinds in SCHEMAS.items() for name, kind in kinds.items()}
    return {"schema/settings": Settings, **named}


# What a folder said of its settings before Hydra wrote others: put back where those are refused.
#
# Hydra writes a run's configuration before anybody has looked at it, and `winnow resume RUN` goes on from what is
# written there: settings that were refused would otherwise be the run's from then on.

_OF_A_RUN = (".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml", "ended.json")
_OF_A_SWEEP = ("multirun.yaml",)


@dataclass
class HydraRecord:
    """The files as they were; those that were not there are not put back."""

    _before: dict[Path, str] = field(default_factory=dict)

    def keep(self, folder: Path, *, sweep: bool = False) -> None:
        """Remember what lies in the folder of a run (a ``sweep``)."""
        for name in _OF_A_SWEEP if sweep else _OF_A_RUN:
            with suppress(OSError, ValueError):
                self._before[folder / name] = (folder / name).read_text(encoding="utf-8")

    def restore(self) -> None:
        """Put it back."""
        for path, content in self._before.items():
            with suppress(OSError):
                write_text(path, content)
