"""The sweep that runs: what is refused before anything starts, and the table at its end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.types import RunMode
from omegaconf import DictConfig

from runner import run_folder
from runner.cli import logs, run_folders
from runner.cli.compose import HydraRecord
from runner.cli.launcher_memory import LauncherMemory
from runner.cli.run_folders import KEYS, claim_sweep, lock, making, unmake
from runner.cli.signals import Phase
from runner.cli.terminal import say
from runner.files import write_text
from runner.judgment import FAILED_JOBS, Status, UsageError
from runner.sweeps import plan

if TYPE_CHECKING:
    from runner.sweeps.table import Row


@dataclass
class Sweep:
    """The sweep that runs.

    ``asked``: whether one was asked for. ``folder``: where, once it has begun. ``before``: files of an earlier sweep
    there, with the times of their last change (ns). ``planned``: the overrides of each job, as far as Hydra's own
    sweeper makes them. ``silent``: the table is written and not shown. ``phase``: what signals do.
    ``command``: what the user typed. ``record``: what the folder said of its settings before. ``latest``: where
    `outputs/latest` led before. ``fresh``: no sweep has had the folder before. ``made``: what was not there of it
    and of those above it, innermost first.
    """

    asked: bool = False
    folder: Path | None = None
    before: dict[Path, int] = field(default_factory=dict)
    planned: list[tuple[str, ...]] = field(default_factory=list)
    silent: bool = False
    phase: Phase = Phase.starting
    memory: LauncherMemory | None = None
    command: tuple[str, ...] = ()
    record: HydraRecord = field(default_factory=HydraRecord)
    latest: Path | None = None
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
        self.latest = run_folders.point_to(folder)

    def finish(self) -> int:
        """Print the table, write sweep.md and sweep.json; return the exit code.

        0; 7 if a job has no answer; 2 if all have one, and the table cannot be written.
        """
        if self.folder is None:
            return 0
        from runner.sweeps.table import markdown, rows, show  # noqa: PLC0415 - a single run needs none

        self.phase = Phase.ended
        table = rows(self.folder, self.planned, self.before)
        self._keep_record(table)
        code = 0 if table and all(row.ended_well for row in table) else FAILED_JOBS
        if table and all(row.exit_code == Status.usage.exit_code for row in table):
            run_folders.lead_back(self.folder, self.latest)
        if not self.silent:
            show(table)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = json.dumps([asdict(row) for row in table], indent=2, ensure_ascii=False)
            write_text(self.folder / "sweep.json", content + "\n")
            write_text(self.folder / "sweep.md", markdown(table))
        except OSError as error:
            say(f"winnow: sweep.json and sweep.md: {error.strerror or error} (in {self.folder})", error=True)
            return code or Status.usage.exit_code
        self._write_page(table)
        self._group(table)
        if not self.silent:
            say(f"{sum(row.ended_well for row in table)} of {len(table)} jobs ended well: {self.folder / 'sweep.md'}")
        return code

    def withdraw(self) -> None:
        """Leave the link, the settings and the folder as they were, where the sweep is refused before any job of it."""
        if self.folder is None:
            return
        from runner.sweeps.table import traces  # noqa: PLC0415 - as above

        if self.before == {path: path.stat().st_mtime_ns for path in traces(self.folder)}:
            run_folders.lead_back(self.folder, self.latest)
            self.record.restore()
            with suppress(OSError):  # where something else was put there meanwhile
                for name in (run_folder.NAME, "multirun.yaml") if self.fresh else ():
                    (self.folder / name).unlink(missing_ok=True)
            unmake(self.made)

    def _keep_record(self, table: Sequence[Row]) -> None:
        """Of settings that were refused: put back what was there if no job has run by them; else keep it beside."""
        from runner.sweeps.log import NAME, read_ledger  # noqa: PLC0415 - as above

        assert self.folder is not None
        ledger = self.folder / NAME
        fresh = ledger.is_file() and self.before.get(ledger) != ledger.stat().st_mtime_ns
        told = read_ledger(self.folder) if fresh else {}
        refused = {row.job for row in table if row.exit_code == Status.usage.exit_code}
        idle = refused | {str(number) for number, entry in told.items() if entry.get("state") == "kept"}
        if refused and all(row.job in idle for row in table):
            self.record.restore()
        elif refused:
            with suppress(OSError):  # a full disk, which the table tells of
                if before := self.record.set_aside(self.folder):
                    say(f"winnow: jobs were refused; the settings that this sweep had before: {before}", error=True)

    def _write_page(self, table: Sequence[Row]) -> None:
        """Write report.html, which compares the jobs; without it sweep.md says the same."""
        from runner.report.page.html import write_page  # noqa: PLC0415 - as above
        from runner.sweeps.table import sweep_page  # noqa: PLC0415 - as above

        assert self.folder is not None
        try:
            write_page(self.folder, sweep_page(self.folder, table, self.command))
        except Exception as error:  # noqa: BLE001 - the answers are there
            say(f"winnow: report.html: {type(error).__name__}: {error} (in {self.folder})", error=True)

    def _group(self, table: Sequence[Row]) -> None:
        """Write bugs.md where jobs were triages and nobody has stopped the sweep."""
        if self.folder is None or any(row.exit_code is None or row.status == Status.interrupted for row in table):
            return
        from runner.sweeps.table import NotGroupedError, write_bugs  # noqa: PLC0415 - as above

        try:
            path = write_bugs(self.folder, [self.folder / row.folder for row in table], silent=self.silent)
        except NotGroupedError as error:
            say(f"winnow: {error}", error=True)
            return
        if path and not self.silent:
            say(f"failures grouped into bugs: {path}")

    def prepare(self, memory: LauncherMemory | None, command: tuple[str, ...]) -> None:
        """Make ready for the sweep that Hydra may begin now; ``memory``: this process is a job of one."""
        self.memory, self.command = memory, command
        if find_spec("hydra_plugins.hydra_submitit_launcher") is not None:
            from runner.sweeps import slurm  # noqa: PLC0415 - the plugin is optional

            slurm.take_its_place()

    def begins(self, mode: RunMode, config: DictConfig) -> None:
        """Hear from the loader of configurations that a run or a sweep begins. Raises UsageError where it must not."""
        if mode is RunMode.MULTIRUN:
            self._begin(config)
            return
        if self.memory is not None:
            self.memory.restore_values(config)
        folder = plan.check_run_folder(config)
        self.record.keep(folder)

    def release(self) -> None:
        """Let another sweep have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
