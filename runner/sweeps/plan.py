"""What a sweep is about to do: its jobs, and the folders where it and they will write, checked before anything starts.

Every launcher is bound by this: it happens before Hydra gives the jobs to one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import filter_overrides
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from runner.cli.next_command import resume_command
from runner.cli.run_folders import KEYS, check_resumed, claim
from runner.judgment import UsageError
from runner.run_folder import is_sweep
from runner.text import program_words

#: what tells that a folder is a run's
_OF_A_RUN = (".hydra/hydra.yaml", "journal.jsonl")
#: a folder with this in its name is each job's own
_NUMBERED = re.compile(r"hydra[.:]job\.(num|id)\b")


def planned(config: DictConfig) -> list[tuple[str, ...]]:
    """Return the overrides of each job as Hydra's basic sweeper will make them, or nothing for another sweeper.

    Raises UsageError where two jobs would write into one folder.
    """
    jobs = _jobs(config)
    _check_jobs_folders(config, jobs)
    return [tuple(filter_overrides(job)) for job in jobs]


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


def sweep_folder(config: DictConfig) -> Path:
    """Return where the sweep will write.

    Raises UsageError for a folder that is a single run's, and for ``resume`` with several folders or one that is not.
    """
    for override in _overrides(config):
        if override.is_sweep_override() and override.key_or_group == "resume":
            raise UsageError(
                f"{override.input_line}: a sweep goes on in its own folder, one at a time. Give one folder; to reuse "
                "verdicts of others: journal.reuse=[FOLDER,..]"
            )
    folder = Path(str(config.hydra.sweep.dir)).absolute()
    resume = _resumed(config, folder, KEYS[True])
    if any((folder / name).exists() for name in _OF_A_RUN) and not is_sweep(folder):
        above = folder.parent
        job_of = f"job {folder.name} of the sweep {above}" if is_sweep(above) else "a single run"
        given = f"resume={resume}" if resume else f"hydra.sweep.dir={folder}"
        advice = (
            f"To go on with the whole sweep: {_onward(above)}; with this job alone: leave out --multirun"
            if is_sweep(above)
            else "To go on with that run, leave out --multirun and give one choice each"
            if resume
            else "Give the sweep a folder of its own"
        )
        raise UsageError(f"{given}: this is the folder of {job_of}, not of a sweep. {advice}")
    if resume is not None:
        check_resumed(resume)
    return folder


def _resumed(config: DictConfig, folder: Path, key: str) -> str | None:
    """Return what is gone on with. Raises UsageError where it is empty or not ``folder``, which ``key`` names."""
    given = OmegaConf.select(config, "resume")
    if given is None:
        return None
    resume = str(given)
    there = Path(resume).expanduser()
    if resume.strip() and there.is_dir() and there.resolve() != folder.resolve():
        raise UsageError(
            f"resume={resume} {key}={folder}: a run goes on in the folder that it has, and these are two. Leave out "
            f"{key}; to begin anew with the verdicts of the first: journal.reuse=[{resume}], without resume="
        )
    return resume


def check_run_folder(config: DictConfig) -> Path:
    """Make the folder of a run its own and return it. Raises UsageError where it is a sweep's, or a user's."""
    if not OmegaConf.is_missing(config.hydra.job, "num"):  # a job of a sweep, which has looked after the rest
        folder = folder_of(config)
        claim(folder, key=KEYS[True])
        return folder
    folder = Path(str(config.hydra.run.dir)).absolute()
    resume = _resumed(config, folder, KEYS[False])
    if not is_sweep(folder):
        if resume is not None:
            check_resumed(resume)
        claim(folder, key=KEYS[False])
        return folder
    if resume:
        raise UsageError(
            f"resume={resume}: this is the folder of a sweep. To go on with it: "
            f"{_onward(folder)}; with one of its jobs: {_onward(folder / 'N')}"
        )
    raise UsageError(f"hydra.run.dir={folder}: this is the folder of a sweep. Give the run one of its own")


def _onward(folder: Path) -> str:
    return resume_command(program_words(), folder)


def _jobs(config: DictConfig) -> list[list[str]]:
    sweeper = config.hydra.sweeper
    basic: Any = next((one for one in Plugins.instance().discover(Sweeper) if one.__name__ == "BasicSweeper"), None)
    if basic is None or sweeper.get("_target_") != f"{basic.__module__}.{basic.__name__}":
        return []
    try:
        return list(basic.split_arguments(_overrides(config), None)[0])
    except (HydraException, ValueError):
        return []


def _overrides(config: DictConfig) -> list[Override]:
    """Return what was given for the jobs, on the command line and in a file; nothing where it cannot be read."""
    params = config.hydra.sweeper.get("params") or {}
    given = [f"{key}={value}" for key, value in params.items()]
    given += [str(override) for override in cast("list[str]", OmegaConf.to_container(config.hydra.overrides.task))]
    try:
        return OverridesParser.create(config_loader=_loader()).parse_overrides(given)
    except (HydraException, ValueError):
        return []


def _check_jobs_folders(config: DictConfig, jobs: Sequence[Sequence[str]]) -> None:
    """Refuse folders that jobs would share. They are told only by composing each job, unless they are numbered."""
    sweep = cast("dict[str, Any]", OmegaConf.to_container(config.hydra.sweep, resolve=False))
    if _NUMBERED.search(str(sweep.get("subdir"))):
        return
    found: dict[Path, int] = {}
    top = Path(str(config.hydra.sweep.dir)).absolute()
    for number, overrides in enumerate(jobs):
        try:
            folder = folder_of(compose(_loader(), config, overrides, number))
        except (HydraException, OmegaConfBaseException):
            return  # Hydra says what is wrong with this job
        other = found.setdefault(folder, number)
        if other != number or folder == top:
            share = f"jobs {other} and {number} would share the folder" if other != number else "a job would write into"
            raise UsageError(
                f"hydra.sweep.subdir={sweep.get('subdir')}: {share} {folder}. Give each its own: leave "
                "hydra.sweep.subdir out, or put ${hydra.job.num} into it"
            )


def _loader() -> ConfigLoader:
    return GlobalHydra.instance().config_loader()
