"""What a job's process is told, and how it composes from that what Hydra's basic launcher would have composed.

Nothing is pickled: an order is JSON. It names where configurations are found and what overrides them, and holds what
exists in the launcher's memory only: a user's file as it was when the sweep began, and the values that Hydra computes
once for all jobs (``${now:...}``).
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime, run_job, setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.cli.config.loader import Loader
from runner.cli.config.user_file import NAME
from runner.cli.folder import KEYS, claim
from runner.cli.task import Task
from runner.schema.register import register
from runner.status import Status

_VERSION_BASE = "1.3"


@dataclass(frozen=True)
class StoredConfig:
    """A configuration that no file holds. ``text``: YAML."""

    group: str | None
    package: str | None
    provider: str | None
    text: str


@dataclass(frozen=True)
class Order:
    """One job. ``resolved``: for each of Hydra's caching resolvers the arguments and values so far."""

    number: int
    command: tuple[str, ...]
    config_name: str | None
    search_path: tuple[tuple[str, str], ...]
    hydra_overrides: tuple[str, ...]
    overrides: tuple[str, ...]
    program: str
    resolved: Mapping[str, Sequence[tuple[Any, Any]]]
    stored: tuple[StoredConfig, ...]

    def to_json(self) -> str:
        """Return this as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Order:
        """Return the order that ``to_json`` wrote."""
        data = json.loads(text)
        return Order(
            number=data["number"],
            command=tuple(data["command"]),
            config_name=data["config_name"],
            search_path=tuple((provider, path) for provider, path in data["search_path"]),
            hydra_overrides=tuple(data["hydra_overrides"]),
            overrides=tuple(data["overrides"]),
            program=data["program"],
            resolved={name: [(key, value) for key, value in pairs] for name, pairs in data["resolved"].items()},
            stored=tuple(StoredConfig(**item) for item in data["stored"]),
        )

    def carry_out(self) -> int:
        """Run the job in this process as Hydra's basic launcher would; return its exit code."""
        register()
        version.setbase(_VERSION_BASE)
        store = ConfigStore.instance()
        for item in self.stored:
            node = OmegaConf.create(item.text)
            store.store(name=NAME, node=node, group=item.group, package=item.package, provider=item.provider)
        JobRuntime.instance().set("name", self.program)
        Plugins.instance()
        setup_globals()
        search_path = ConfigSearchPathImpl()
        for provider, path in self.search_path:
            search_path.append(provider, path)
        loader = Loader(search_path)
        config = compose(loader, self._master(), self.overrides, self.number)
        task = Task(self.command)
        claim(folder_of(config), key=KEYS[True])
        try:
            run_job(
                task_function=task,
                config=config,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
                hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks(config)),
            )
        except KeyboardInterrupt as error:
            return getattr(error, "exit_code", Status.interrupted.exit_code)
        return task.ended[-1].exit_code if task.ended else 1

    def _master(self) -> DictConfig:
        """Return what ``load_sweep_config`` reads of the sweep's own configuration."""
        job = {"config_name": self.config_name}
        master = OmegaConf.create({"hydra": {"overrides": {"hydra": list(self.hydra_overrides)}, "job": job}})
        cache: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        for name, pairs in self.resolved.items():
            cache[name] = {_tuples(key): value for key, value in pairs}
        OmegaConf.set_cache(master, cache)
        return master


def order(
    number: int, overrides: Sequence[str], command: Sequence[str], master: DictConfig, loader: ConfigLoader
) -> Order:
    """Write down job ``number`` of the sweep whose configuration is ``master``."""
    cache = OmegaConf.get_cache(master)
    return Order(
        number=number,
        command=tuple(command),
        config_name=master.hydra.job.config_name,
        search_path=tuple((item.provider, item.path) for item in loader.get_search_path().get_path()),
        hydra_overrides=tuple(cast("list[str]", OmegaConf.to_container(master.hydra.overrides.hydra))),
        overrides=tuple(overrides),
        program=JobRuntime.instance().get("name"),
        resolved={
            name: [(key, value) for key, value in known.items() if _plain(value)] for name, known in cache.items()
        },
        stored=tuple(_stored(ConfigStore.instance().repo, None)),
    )


def compose(loader: ConfigLoader, master: DictConfig, overrides: Sequence[str], number: int) -> DictConfig:
    """Return the whole configuration of job ``number``."""
    config = loader.load_sweep_config(master, list(overrides))
    with open_dict(config):
        config.hydra.job.id = number
        config.hydra.job.num = number
    return config


def folder_of(config: DictConfig) -> Path:
    """Return the folder of the job with ``config``, as Hydra will compute it. Not thread-safe."""
    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    try:
        folder, inside = (str(OmegaConf.select(config, f"hydra.sweep.{key}")) for key in ("dir", "subdir"))
        return Path(os.path.abspath(Path(folder) / inside))  # noqa: PTH100 - as Hydra does: links are not followed
    finally:
        HydraConfig.instance().cfg = before


def _stored(repository: Mapping[str, Any], group: str | None) -> Iterator[StoredConfig]:
    for name, item in repository.items():
        if isinstance(item, ConfigNode):
            if item.name == f"{NAME}.yaml":
                yield StoredConfig(item.group, item.package, item.provider, OmegaConf.to_yaml(item.node))
        elif isinstance(item, Mapping):
            yield from _stored(item, name if group is None else f"{group}/{name}")


def _tuples(key: Any) -> Any:
    return tuple(_tuples(part) for part in key) if isinstance(key, list) else key


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))
