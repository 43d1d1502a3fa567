"""Hydra from its arguments to the end of a run or a sweep, by its public interface alone.

A run is composed once; whoever asked for it sees the configuration before Hydra writes anything. What only shows
something (``--cfg``, ``--info``, completion) is Hydra's own entry.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import hydra
import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import configure_log, run_job
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.cli.bounded_yaml import invalid
from runner.cli.compose import place, refuse_borrowed, searching
from runner.cli.path_overrides import parse, quote
from runner.judgment import UsageError
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
    with searching(given.config_path, given.config_dir):
        if shown := _shown(given):
            with _hydra_argv([sys.argv[0], "--config-name", name, *shown, *overrides]):
                hydra.main(config_path=str(CONF), config_name="config", version_base=_VERSION_BASE)(task)()
            return
        with hydra.initialize_config_dir(str(CONF), job_name="winnow", version_base=_VERSION_BASE):
            loader = GlobalHydra.instance().config_loader()
            try:
                mode, config = _composed(loader, name, overrides, multirun=given.multirun)
            except yaml.YAMLError as error:  # in an installed package: all other files have been looked at
                raise invalid(getattr(getattr(error, "problem_mark", None), "name", name), error) from error
            for section in ("launcher", "sweeper"):
                refuse_borrowed(OmegaConf.select(config, f"hydra.{section}"), f"hydra.{section}")
            begins(mode, config)
            _begin(mode, config, task, loader)


def _shown(given: Namespace) -> list[str]:
    """Return the options of what only shows something, as Hydra's own entry reads them; nothing: a run is asked for."""
    found = [f"--{key}={value}" for key in ("cfg", "package", "info") if (value := getattr(given, key)) is not None]
    switches = ("resolve", "hydra_help", "shell_completion")
    found += [f"--{key.replace('_', '-')}" for key in switches if getattr(given, key)]
    return [*found, "--multirun"] if found and given.multirun and not given.cfg else found


def _search_path(word: str) -> str:
    """Return an override in which folders that Hydra is to search are read as all folders of users are."""
    made = parse(word) if word.lstrip("+").startswith("hydra.searchpath=") else None
    folders = made.value() if made is not None else None
    if not isinstance(folders, list):
        return word
    return f"{word.partition('=')[0]}=[{','.join(quote(place(str(one))) for one in folders)}]"


def _composed(loader: ConfigLoader, name: str, overrides: list[str], *, multirun: bool) -> tuple[RunMode, DictConfig]:
    if multirun:
        return RunMode.MULTIRUN, _sweep(loader, name, [*overrides, "hydra.mode=MULTIRUN"])
    try:
        config = loader.load_configuration(name, overrides, RunMode.RUN)
    except Exception:
        with suppress(Exception):  # a file may be a sweep's, and choices of one have been typed
            config = _sweep(loader, name, overrides)
            if config.hydra.mode is RunMode.MULTIRUN:
                return RunMode.MULTIRUN, config
        raise
    if config.hydra.mode is RunMode.MULTIRUN:
        return RunMode.MULTIRUN, _sweep(loader, name, overrides)
    if config.hydra.mode is None:  # as if it had been typed
        config.hydra.mode = RunMode.RUN
        config.hydra.overrides.hydra.append("hydra.mode=RUN")
    return RunMode.RUN, config


def _sweep(loader: ConfigLoader, name: str, overrides: list[str]) -> DictConfig:
    return loader.load_configuration(name, overrides, RunMode.MULTIRUN)


def _begin(mode: RunMode, config: DictConfig, task: TaskFunction, loader: ConfigLoader) -> None:
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    callbacks = Callbacks(config)
    context = _context(loader, callbacks)
    name = config.hydra.job.config_name
    if mode is RunMode.RUN:
        callbacks.on_run_start(config=config, config_name=name)
        done = run_job(task, config, job_dir_key="hydra.run.dir", job_subdir_key=None, hydra_context=context)
        callbacks.on_run_end(config=config, config_name=name, job_return=done)
        _ = done.return_value  # raises what the task has raised
        return
    callbacks.on_multirun_start(config=config, config_name=name)
    sweeper = Plugins.instance().instantiate_sweeper(hydra_context=context, task_function=task, config=config)
    sweeper.sweep(arguments=cast("list[str]", OmegaConf.to_container(config.hydra.overrides.task, resolve=False)))
    callbacks.on_multirun_end(config=config, config_name=name)


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
        with searching(*self.folders), hydra.initialize_config_dir(str(CONF), version_base=_VERSION_BASE):
            begins(RunMode.RUN, self.config)
            context = _context(GlobalHydra.instance().config_loader(), Callbacks(self.config))
            run_job(task, self.config, "hydra.sweep.dir", "hydra.sweep.subdir", context)


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


def _context(loader: ConfigLoader, callbacks: Callbacks) -> HydraContext:
    return HydraContext(config_loader=loader, callbacks=cast("Any", callbacks))


class Callbacks:
    """What a user's ``hydra.callbacks`` hear, as Hydra tells them: a mistake in one of them is a warning."""

    def __init__(self, config: DictConfig) -> None:
        given = OmegaConf.select(config, "hydra.callbacks") or {}
        self.heard_by = [hydra.utils.instantiate(one) for one in given.values()]

    def __getattr__(self, event: str) -> Callable[..., None]:
        if not event.startswith("on_"):
            raise AttributeError(event)

        def tell(**told: Any) -> None:
            for one in reversed(self.heard_by) if event.endswith("_end") else self.heard_by:
                try:
                    getattr(one, event)(**told)
                except Exception as error:  # noqa: BLE001, PERF203 - it is code of the user's
                    what = f"{type(one).__name__}.{event} raised {type(error).__name__}: {error}"
                    warnings.warn(f"Callback {what}", stacklevel=2)

        return tell


@contextmanager
def _hydra_argv(argv: list[str]) -> Iterator[None]:
    """Hydra's entry reads sys.argv, and exits by itself on an error unless it is told to raise."""
    before, sys.argv = sys.argv, argv
    full_error = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = before
        if full_error is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error
