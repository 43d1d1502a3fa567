"""The sweep that runs: what is refused before anything starts, and the table at its end."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from hydra.types import RunMode
from omegaconf import DictConfig

from runner import run_folder
from runner.cli import logs
from runner.cli.compose import HydraRecord
from runner.cli.run_folders import KEYS, claim_sweep, lock, making, unmake
from runner.cli.signals import Phase
from runner.judgment import Status, UsageError
from runner.sweeps import plan


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
        folder = plan.sweep_folder(config)
        self.planned = plan.planned(config)
        with making(folder) as self.made:
            self._lock = lock(folder, "sweep", KEYS[True])
            from runner.sweeps.launcher import PACKAGE, WinnowLauncher, publish  # noqa: PLC0415 - a single run needs none
            from runner.sweeps.table import traces  # noqa: PLC0415 - as above

            publish(WinnowLauncher)
            self.fresh = run_folder.read(folder) is None
            claim_sweep(folder)
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
        folder = plan.check_run_folder(config)
        self.record.keep(folder)

    def release(self) -> None:
        """Let another sweep have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
