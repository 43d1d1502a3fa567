"""The sweep that runs: its jobs and folders, refused before anything starts where they would mix up or lose results.

Every launcher is bound by this: it happens before Hydra gives the jobs to one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import filter_overrides
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner import run_folder
from runner.cli import logs
from runner.cli.compose import HydraRecord
from runner.cli.hydra_main import compose, folder_of
from runner.cli.next_command import resume_command
from runner.cli.run_folders import KEYS, check_resumed, claim, lock, making, unmake
from runner.cli.signals import Phase
from runner.exit_codes import Status, UsageError
from runner.run_folder import is_sweep

#: what tells that a folder is a run's
_OF_A_RUN = (".hydra/hydra.yaml", "journal.jsonl")
#: a folder with this in its name is each job's own
_NUMBERED = re.compile(r"hydra[.:]job\.(num|id)\b")


@dataclass
class Sweep:
    """The sweep that runs.

    ``asked``: whether one was asked for. ``folder``: where, once it has begun. ``before``: files of an earlier sweep
    there, with the times of their last change (ns). ``planned``: the overrides of each job, as far as Hydra's own
    sweeper makes them. ``silent``: the table is written and not shown. ``phase``: what signals do.
    ``command``: what the user typed. ``record``: what the folder said of its settings before. ``fresh``: no sweep has
    had the folder before. ``made``: what was not there of it and of those above it, innermost first.
    """

    asked: bool = False
    folder: Path | None = None
    before: dict[Path, int] = field(default_factory=dict)
    planned: list[tuple[str, ...]] = field(default_factory=list)
    silent: bool = False
    phase: Phase = Phase.starting
    command: tuple[str, ...] = ()
    record: HydraRecord = field(default_factory=HydraRecord)
    fresh: bool = False
    made: tuple[Path, ...] = ()
    _lock: int | None = None

    def _begin(self, config: DictConfig) -> None:
        """Have the folder where the sweep that starts now will write.

        Raises UsageError for a sweep that would lose or mix up results, OSError where nothing can be written.
        """
        self.asked = True
        folder = folder_for(config, sweep=True)
        self.planned = planned(config)
        with making(folder) as self.made:
            self._lock = lock(folder, "sweep", KEYS[True])
            from runner.sweeps.launcher import PACKAGE, WinnowLauncher, publish  # noqa: PLC0415 - a single run needs none
            from runner.sweeps.table import traces  # noqa: PLC0415 - as above

            publish(WinnowLauncher)
            self.fresh = run_folder.read(folder) is None
            claim(folder, key=KEYS[True], sweep=True)
            self.record.keep(folder, sweep=True)
            self.before = {path: path.stat().st_mtime_ns for path in traces(folder)}
        with suppress(UsageError):  # each job says so
            self.silent = logs.levels_of(config).silent
        # launchers of ours take the signals over, others are stopped by an exception
        ours = str(config.hydra.launcher.get("_target_")).startswith(f"{PACKAGE}.")
        self.phase = Phase.waiting if ours else Phase.working
        self.folder = folder

    def finish(self) -> int:
        """Print the table, write sweep.md and sweep.json; return the exit code.

        0; 7 if a job has no answer; 2 if all have one, and the table cannot be written. Settings of which a job was
        refused are not what the sweep goes on with: those that it had before are put back.
        """
        if self.folder is None:
            return 0
        from runner.sweeps.table import rows, written  # noqa: PLC0415 - a single run needs none

        self.phase = Phase.ended
        table = rows(self.folder, self.planned, self.before)
        if any(row.exit_code == Status.usage.exit_code for row in table):
            self.record.restore()
        return written(self.folder, table, self.command, silent=self.silent)

    def withdraw(self) -> None:
        """Leave the settings and the folder as they were, where the sweep is refused before any job of it."""
        if self.folder is None:
            return
        from runner.sweeps.table import traces  # noqa: PLC0415 - as above

        if self.before == {path: path.stat().st_mtime_ns for path in traces(self.folder)}:
            self.record.restore()
            with suppress(OSError):  # where something else was put there meanwhile
                for name in (run_folder.NAME, "multirun.yaml") if self.fresh else ():
                    (self.folder / name).unlink(missing_ok=True)
            unmake(self.made)

    def prepare(self, command: tuple[str, ...]) -> None:
        """Make ready for the sweep that Hydra may begin now."""
        self.command = command
        if find_spec("hydra_plugins.hydra_submitit_launcher") is not None:
            from runner.sweeps import slurm  # noqa: PLC0415 - the plugin is optional

            slurm.take_its_place()

    def begins(self, mode: RunMode, config: DictConfig) -> None:
        """Hear from the loader of configurations that a run or a sweep begins. Raises UsageError where it must not."""
        if mode is RunMode.MULTIRUN:
            self._begin(config)
            return
        job = not OmegaConf.is_missing(config.hydra.job, "num")  # of a sweep, which has looked after the rest
        folder = folder_of(config) if job else folder_for(config, sweep=False)
        claim(folder, key=KEYS[job])
        self.record.keep(folder)

    def release(self) -> None:
        """Let another sweep have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def planned(config: DictConfig) -> list[tuple[str, ...]]:
    """Return the overrides of each job as Hydra's basic sweeper will make them, or nothing for another sweeper.

    Raises UsageError where two jobs would write into one folder.
    """
    jobs = _jobs(config)
    _check_jobs_folders(config, jobs)
    return [tuple(filter_overrides(job)) for job in jobs]


def folder_for(config: DictConfig, *, sweep: bool) -> Path:
    """Return where a run (a ``sweep``) will write.

    Raises UsageError for a folder that is a sweep's (a run's), and for ``resume`` with several folders, one that is
    none, or another one than where it would write.
    """
    key = KEYS[sweep]
    for override in _overrides(config) if sweep else ():
        if override.is_sweep_override() and override.key_or_group == "resume":
            raise UsageError(f"{override.input_line}: a sweep goes on in its own folder, one at a time. Give one")
    folder, resume = Path(str(OmegaConf.select(config, key))).absolute(), OmegaConf.select(config, "resume")
    if is_sweep(folder) is not sweep and (not sweep or any((folder / name).exists() for name in _OF_A_RUN)):
        job = f"job {folder.name} of the sweep {folder.parent}" if is_sweep(folder.parent) else "a single run"
        raise UsageError(
            f"{key}={folder}: this is the folder of {job if sweep else 'a sweep'}. To go on with it: "
            f"{resume_command(folder)}. For anything else give another folder"
        )
    if resume is not None:
        check_resumed(str(resume))
        if Path(str(resume)).expanduser().resolve() != folder.resolve():
            raise UsageError(
                f"resume={resume} {key}={folder}: a run goes on in the folder that it has, and these are two. Leave "
                f"out {key}; to begin anew with the verdicts of the first: journal.reuse=[{resume}], without resume="
            )
    return folder


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
