"""Where Hydra finds configurations: in Winnow's folder, in those of users, whose files bring no code, and in memory.

Hydra asks plugins for the configurations that a search path names by a scheme of theirs. Files of users are bounded and
checked when they are read, and their paths are made absolute there: they start at the file's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from runner import machine
from runner.cli.config import allowed
from runner.cli.config.bounded_yaml import BoundedLoader, read_yaml
from runner.cli.config.file_paths import content_from_file
from runner.cli.config.user_file import FILES
from runner.errors import UsageError
from runner.schema.installed_choices import CONF, SCHEMAS, added
from runner.schema.option_files import config_of
from runner.schema.root import Settings

#: how much of a path a message shows
_SHOWN = 200
#: libyaml's parser is ten times faster, and knows no bounds: it is for files of ours
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HEADER = re.compile(r"#\s*@(\w+)\s+(\S+)")


class Folder(ConfigSource):
    """A folder of YAML files: ``folder:///home/me/bugs``. Raises UsageError for a file that is no configuration."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self._folder = Path(self.path)
        self._own = self._folder.resolve() == CONF

    @staticmethod
    def scheme() -> str:
        """Return what begins the path of such a folder."""
        return "folder"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return what a file holds, by its name without the suffix; a user's file checked, with absolute paths."""
        file = self._file(config_path)
        if not file.is_file():
            raise ConfigLoadError(f"Config not found : {file}")
        if not self._own:
            if not Path(os.path.normpath(file)).is_relative_to(os.path.normpath(self._folder)):
                raise UsageError(
                    f"{config_path}: this configuration lies outside {self._folder}. Put it there, or give its folder."
                )
            read_yaml(file)
        package = _package(file)
        config = OmegaConf.create(yaml.load(file.read_bytes(), _FAST)) if self._own else OmegaConf.load(file)  # noqa: S506
        if not self._own and isinstance(config, DictConfig):
            place = config_path.rpartition("/")[0].replace("/", ".") if package in (None, "_group_") else str(package)
            place = re.sub(r"^_global_\.?", "", place)
            content = cast("dict[str, Any]", OmegaConf.to_container(config))
            allowed.check(content, place, str(file))
            config = OmegaConf.create(content_from_file(content, file, place))
        return ConfigResult(self.provider, self.full_path(), config, {"package": package})

    def available(self) -> bool:
        """Whether the folder is there."""
        return self._folder.is_dir()

    def is_group(self, config_path: str) -> bool:
        """Whether this is a folder in it."""
        return os.path.isdir(self._folder / config_path)  # noqa: PTH112 - False also for what can be no name

    def is_config(self, config_path: str) -> bool:
        """Whether this is a file in it."""
        return os.path.isfile(self._file(config_path))  # noqa: PTH113 - as above

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return the names of files, of folders, or of both."""
        there = [one for one in (self._folder / config_path).iterdir() if one.name != "__pycache__"]
        groups = [one.name for one in there if one.is_dir() and results_filter is not ObjectType.CONFIG]
        files = [one.stem for one in there if one.suffix == ".yaml" and results_filter is not ObjectType.GROUP]
        return sorted({*groups, *files})

    def _file(self, config_path: str) -> Path:
        return self._folder / f"{config_path.removesuffix('.yaml')}.yaml"


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
            one.path = place(self.main or str(CONF))
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
    for plugin in (Folder, Memory, SearchPath):
        Plugins.instance().register(plugin)


def run_folder(resume: str | None, fresh: str) -> str:
    """Return where a run writes: the folder it goes on with, or a fresh one. Raises UsageError if it is not there."""
    if not resume:
        return fresh
    try:
        folder = Path(resume).expanduser().absolute()
        there = folder.is_dir()
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, no such user
        there = False
    if not there:
        resume = f"{resume[:_SHOWN]}..." if len(resume) > _SHOWN else resume
        raise UsageError(f"resume={resume}: no such folder. Give the run folder of an interrupted run.")
    return str(folder)


def _create(value: Any, _parent_: Any) -> Any:
    """Do what OmegaConf's own does; a text, which may come out of a file, is bounded as a file is."""
    if isinstance(value, str):
        yaml.load(value, BoundedLoader)  # noqa: S506 - a SafeLoader
    return OmegaConf.create(value, parent=_parent_)


def _schemas() -> dict[str, type]:
    named = {f"schema/{group}/{name}": kind for group, kinds in SCHEMAS.items() for name, kind in kinds.items()}
    return {"schema/settings": Settings, **named}


def _package(file: Path) -> str | None:
    """Return the package that the first lines of a file name, as Hydra reads them."""
    with file.open(encoding="utf-8-sig") as lines:
        for line in filter(None, map(str.strip, lines)):
            found = _HEADER.fullmatch(line)
            if found is None:
                return None
            if found[1] == "package":
                return found[2]
    return None
