"""Hydra from its arguments to the end of a run or a sweep.

A run is composed once; whoever asked for it sees the configuration before Hydra writes anything.
"""

from __future__ import annotations

import os
import pickle
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log
from hydra.types import RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runner.cli.arguments import PARSER
from runner.cli.bounded_yaml import invalid
from runner.cli.compose import place, refuse_borrowed, searching
from runner.cli.paths_in_configs import parse, quote
from runner.exit_codes import UsageError
from runner.schema.installed_choices import CONF

_VERSION_BASE = "1.3"


def run(given: Namespace, task: TaskFunction, begins: Callable[[RunMode, DictConfig], None]) -> None:
    """Do what is asked of Hydra: see `arguments.options`; ``task`` is each job's.

    ``begins``: is told of the run or sweep that is about to begin, whose configuration it may refuse. Raises what Hydra
    raises.
    """
    name = given.config_name or "config"
    overrides = [_search_path(word) for word in given.overrides]
    if given.config_dir and not Path(given.config_dir).is_dir():
        raise UsageError(f"Additional config directory '{Path(given.config_dir).absolute()}' not found")
    with searching(given.config_path, given.config_dir), _initialized() as app:
        if _shown(app, given, name, overrides):
            return
        try:
            mode, config = _composed(app.config_loader, name, overrides, multirun=given.multirun)
        except yaml.YAMLError as error:  # in an installed package: all other files have been looked at
            raise invalid(getattr(getattr(error, "problem_mark", None), "name", name), error) from error
        for section in ("launcher", "sweeper"):
            refuse_borrowed(OmegaConf.select(config, f"hydra.{section}"), f"hydra.{section}")
        begins(mode, config)
        _begin(app, mode, config, task)


@contextmanager
def _initialized() -> Iterator[Any]:
    with hydra.initialize_config_dir(str(CONF), job_name="winnow", version_base=_VERSION_BASE):
        yield GlobalHydra.instance().hydra


def _shown(app: Any, given: Namespace, name: str, overrides: list[str]) -> bool:
    """Show what is asked for; return whether anything is."""
    if given.hydra_help:
        app.hydra_help(name, PARSER, given)
    elif given.cfg:
        app.show_cfg(name, overrides, given.cfg, given.package, given.resolve)
    elif given.info:
        app.show_info(given.info, name, overrides)
    elif given.shell_completion:
        app.shell_completion(name, overrides)
    return bool(given.hydra_help or given.cfg or given.info or given.shell_completion)


def _search_path(word: str) -> str:
    """Return an override in which folders that Hydra is to search are read as all folders of users are."""
    made = parse(word) if word.lstrip("+").startswith("hydra.searchpath=") else None
    folders = made.value() if made is not None else None
    if not isinstance(folders, list):
        return word
    return f"{word.partition('=')[0]}=[{','.join(quote(place(str(one))) for one in folders)}]"


def _composed(loader: ConfigLoader, name: str, overrides: list[str], *, multirun: bool) -> tuple[RunMode, DictConfig]:
    load = partial(loader.load_configuration, name)
    if multirun:
        return RunMode.MULTIRUN, load([*overrides, "hydra.mode=MULTIRUN"], RunMode.MULTIRUN)
    try:
        config = load(overrides, RunMode.RUN)
    except Exception:
        with suppress(Exception):  # a file may be a sweep's, and choices of one have been typed
            config = load(overrides, RunMode.MULTIRUN)
            if config.hydra.mode is RunMode.MULTIRUN:
                return RunMode.MULTIRUN, config
        raise
    if config.hydra.mode is RunMode.MULTIRUN:
        return RunMode.MULTIRUN, load(overrides, RunMode.MULTIRUN)
    if config.hydra.mode is None:  # as if it had been typed
        config.hydra.mode = RunMode.RUN
        config.hydra.overrides.hydra.append("hydra.mode=RUN")
    return RunMode.RUN, config


def _begin(app: Any, mode: RunMode, config: DictConfig, task: TaskFunction) -> None:
    """Have Hydra run what was composed: whoever asked for it has seen this very configuration."""
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    app.compose_config = lambda **_: config
    (app.multirun if mode is RunMode.MULTIRUN else app.run)(config.hydra.job.config_name, task, [])


#: holds the descriptor of the file in which a launcher leaves a job
HANDED_OVER = "WINNOW_LAUNCHER"


@dataclass(frozen=True)
class JobOfSweep:
    """A job as its sweep has composed it, for a process of its own.

    ``program``: what started the sweep, as `sys.argv` names it; ``command``: what the user typed for it. ``folders``:
    see `searching`.
    """

    program: str
    command: tuple[str, ...]
    folders: tuple[str | None, str | None]
    config: DictConfig

    @staticmethod
    def received() -> JobOfSweep | None:
        """Return what the launcher that started this process left for it; None where none did."""
        descriptor = os.environ.pop(HANDED_OVER, None)
        if descriptor is None:
            return None
        with os.fdopen(int(descriptor), "rb") as file:
            job: JobOfSweep = pickle.load(file)  # noqa: S301 - nobody else can have written it
        sys.argv[0] = job.program
        return job

    def run(self, task: TaskFunction, begins: Callable[[RunMode, DictConfig], None]) -> None:
        """Run it; ``begins`` is told of it before."""
        with searching(*self.folders), _initialized() as app:
            folder, mine = str(folder_of(self.config)), self.config.hydra
            with read_write(mine), read_write(mine.run):
                mine.mode, mine.run.dir = RunMode.RUN, folder
            begins(RunMode.RUN, self.config)
            _begin(app, RunMode.RUN, self.config, task)


def compose(loader: ConfigLoader, sweep: DictConfig, overrides: Sequence[str], number: int) -> DictConfig:
    """Return the whole configuration of job ``number`` of the ``sweep`` with this configuration."""
    config = loader.load_sweep_config(sweep, list(overrides))
    with open_dict(config):
        config.hydra.job.id = number
        config.hydra.job.num = number
    return config


def folder_of(config: DictConfig) -> Path:
    """Return the folder of the job with ``config``, as Hydra will compute it."""
    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    try:
        folder, inside = (str(OmegaConf.select(config, f"hydra.sweep.{key}")) for key in ("dir", "subdir"))
        return Path(os.path.abspath(Path(folder) / inside))  # noqa: PTH100 - as Hydra does: links are not followed
    finally:
        HydraConfig.instance().cfg = before
