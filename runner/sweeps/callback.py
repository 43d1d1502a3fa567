"""The sweep that runs: what is refused before anything starts, and the table at its end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from runner.cli import logs
from runner.cli.claim_folder import KEYS, claim_sweep, lock
from runner.cli.explain_errors import chain_of
from runner.cli.launcher_memory import Memory
from runner.cli.signals import Phase
from runner.cli.terminal import say
from runner.errors import UsageError, WinnowError
from runner.files import write_text
from runner.status import FAILED_JOBS, Status
from runner.sweeps import plan
from runner.sweeps.table import markdown, rows, show, traces

#: where ours are published for Hydra (`runner.sweeps.launcher`)
LAUNCHERS = "hydra_plugins.winnow_launcher."


@dataclass
class Sweep:
    """The sweep that runs.

    ``asked``: whether one was asked for. ``folder``: where, once it has begun. ``before``: files of an earlier sweep
    there, with the times of their last change (ns). ``planned``: the overrides of each job, as far as Hydra's own
    sweeper makes them. ``silent``: the table is written and not shown. ``phase``: what signals do.
    """

    asked: bool = False
    folder: Path | None = None
    before: dict[Path, int] = field(default_factory=dict)
    planned: list[tuple[str, ...]] = field(default_factory=list)
    silent: bool = False
    phase: Phase = Phase.starting
    memory: Memory | None = None
    _lock: int | None = None

    def begin(self, config: DictConfig) -> None:
        """Have the folder where the sweep that starts now will write.

        Raises UsageError for a sweep that would lose or mix up results, OSError where nothing can be written.
        """
        self.asked = True
        folder = plan.sweep_folder(config)
        self.planned = plan.planned(config)
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock(folder, "sweep", KEYS[True])
        from runner.sweeps.launcher import WinnowLauncher, publish  # noqa: PLC0415 - a single run needs none

        publish(WinnowLauncher)
        claim_sweep(folder)
        self.before = {path: path.stat().st_mtime_ns for path in traces(folder)}
        self.silent = _silent(config)
        # launchers of ours take the signals over, others are stopped by an exception
        ours = str(config.hydra.launcher.get("_target_")).startswith(LAUNCHERS)
        self.phase = Phase.waiting if ours else Phase.working
        self.folder = folder

    def finish(self) -> int:
        """Print the table, write sweep.md and sweep.json; return the exit code.

        0; 7 if a job has no answer; 2 if all have one, and the table cannot be written.
        """
        if self.folder is None:
            return 0
        self.phase = Phase.ended
        table = rows(self.folder, self.planned, self.before)
        code = 0 if table and all(row.ended_well for row in table) else FAILED_JOBS
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
        if not self.silent:
            say(f"{sum(row.ended_well for row in table)} of {len(table)} jobs ended well: {self.folder / 'sweep.md'}")
        return code

    @contextmanager
    def watching(self, memory: Memory | None) -> Iterator[None]:
        """Have the sweep that Hydra starts inside; ``memory``: it is a job of one. Raises what it is refused for."""
        if find_spec("hydra_plugins.hydra_submitit_launcher") is not None:
            from runner.sweeps import slurm  # noqa: PLC0415 - the plugin is optional

            slurm.take_its_place()
        self.memory = memory
        token = _current.set(self)
        try:
            yield
        except _Refusal as refusal:
            raise refusal.error from None
        finally:
            _current.reset(token)

    def release(self) -> None:
        """Let another sweep have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


_current: ContextVar[Sweep] = ContextVar("sweep")


class _Refusal(BaseException):
    """Carries an error out of a callback: Hydra makes a warning of every ``Exception`` there, and goes on."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class SweepCallback(Callback):
    """Named in ``conf/config.yaml``: Hydra tells it when a run or a sweep begins."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a run that would lie in a sweep's own folder."""
        sweep = _current.get(None)
        if sweep is not None:
            with _refusing():
                if sweep.memory is not None:
                    sweep.memory.restore_values(config)
                plan.check_run_folder(config)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Pass it on to whoever watches."""
        sweep = _current.get(None)
        if sweep is not None:
            with _refusing():
                sweep.begin(config)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - it is raised again outside Hydra
        # what it came from would be lost on the way: an error of ours, where a resolver raised it
        told = next((link for link in chain_of(error) if isinstance(link, WinnowError)), error)
        raise _Refusal(told) from None


def _silent(config: DictConfig) -> bool:
    try:
        return logs.levels_of(config).silent
    except UsageError:
        return False  # each job says so
