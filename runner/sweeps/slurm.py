"""``hydra/launcher=submitit_slurm``: submitit's launcher, but waiting for each job by itself.

The stock launcher asks for the jobs' results in order and raises at the first that has none, while others still run;
without SLURM's accounting it waits for ever for a job that was killed; and an interruption leaves its jobs in the
queue. Submission, and what runs on the node, are the stock launcher's.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, filter_overrides
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf, SlurmQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher as Stock

from runner.cli.job_notes import Ledger
from runner.cli.signals import Arrived
from runner.exit_codes import UsageError
from runner.sweeps.launcher import Console, publish, returned
from runner.text import without_values

_NAME = "submitit_slurm"
_LOOK_SECONDS = 1.0
#: between two questions to SLURM: short at first, then a cluster is left in peace
_ASK_SECONDS, _ASK_SECONDS_AT_MOST = 2.0, 60.0
#: how long a result may take to appear on a shared file system, and cancelled jobs to write down what they know
_PATIENCE, _FAREWELL = 15.0, 45.0


class SlurmLauncher(Stock):  # type: ignore[misc]  # the plugin is optional
    """One SLURM job for each of the sweep's. What a job does raises nothing here; the table says it."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs and wait for them. Raises KeyboardInterrupt when interrupted, after cancelling them."""
        folder = Path(str(self.config.hydra.sweep.dir)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        console = Console(self.config)
        ledger = Ledger(folder)
        console.tell(f"{len(job_overrides)} jobs for SLURM, in {folder}")
        numbers = range(initial_job_idx, initial_job_idx + len(job_overrides))
        for number, overrides in zip(numbers, job_overrides, strict=True):
            words = filter_overrides(overrides)
            ledger.note(number, "queued", overrides=without_values(words))
            console.tell(f"#{number} {' '.join(without_values(words))}")
        with self.task_function.arrived.told_to_jobs():
            jobs = dict(zip(numbers, self._submit(numbers, job_overrides), strict=True))
            _Wait(jobs, ledger, console, self.task_function.arrived).until_all_ended()
        return [returned(overrides) for overrides in job_overrides]

    def _submit(self, numbers: Sequence[int], job_overrides: Sequence[Sequence[str]]) -> Sequence[Any]:
        import submitit  # noqa: PLC0415 - every start of the program would wait for it

        try:
            executor = submitit.AutoExecutor(
                folder=self.params["submitit_folder"],
                cluster="slurm",
                slurm_max_num_timeout=self.params["max_num_timeout"],
            )
        except RuntimeError as error:
            raise UsageError(
                f"hydra/launcher={_NAME}: there is no SLURM here ({error}). On this machine: hydra/launcher=winnow"
            ) from error
        common = {item.name for item in fields(BaseQueueConf)}
        given = {key: value for key, value in self.params.items() if key not in {"submitit_folder", "max_num_timeout"}}
        executor.update_parameters(**{key if key in common else f"slurm_{key}": given[key] for key in given})
        # what is pickled for the nodes has to be importable there by its name, and this class is not
        stock = Stock(**self.params)
        stock.setup(hydra_context=self.hydra_context, task_function=self.task_function, config=self.config)
        state = Singleton.get_state()
        calls = [
            (list(overrides), "hydra.sweep.dir", number, f"job_id_for_{number}", state)
            for number, overrides in zip(numbers, job_overrides, strict=True)
        ]
        try:
            submitted: Sequence[Any] = executor.map_array(stock, *zip(*calls, strict=True))
        except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
            raise UsageError(f"hydra/launcher={_NAME}: SLURM refused the jobs: {error}") from error
        return submitted


class _Wait:
    """Waits for submitted jobs: a job has ended when its result lies there, or when SLURM knows it no more."""

    def __init__(self, jobs: Mapping[int, Any], ledger: Ledger, console: Console, arrived: Arrived) -> None:
        self._left = dict(jobs)
        self._total = len(jobs)
        self._ledger, self._console, self._arrived = ledger, console, arrived
        self._gone: dict[int, float] = {}
        self._ask, self._next = _ASK_SECONDS, 0.0

    def until_all_ended(self) -> None:
        """Return when no job is left, or some time after an interruption has cancelled those that are."""
        farewell = float("inf")
        while self._left and time.monotonic() < farewell:
            if self._arrived and farewell == float("inf"):
                self._cancel()
                farewell = time.monotonic() + _FAREWELL
                self._ask, self._next = _ASK_SECONDS, 0.0
            self._ask_slurm()
            for number in list(self._left):
                self._look(number, self._left[number])
            time.sleep(_LOOK_SECONDS)

    def _ask_slurm(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self._ask = now + self._ask, min(2 * self._ask, _ASK_SECONDS_AT_MOST)
        known = _queued()
        if known is None:  # SLURM does not answer: nothing is known
            return
        for number, job in self._left.items():
            if job.job_id in known:
                self._gone.pop(number, None)
            else:
                self._gone.setdefault(number, now)

    def _look(self, number: int, job: Any) -> None:
        patience = 0.0 if self._arrived else _PATIENCE
        if job.paths.result_pickle.exists():
            del self._left[number]
            self._say(number, "has ended")
        elif time.monotonic() - self._gone.get(number, float("inf")) > patience:
            del self._left[number]
            said = f"ended without a result, as SLURM's {job.job_id}; see {job.paths.stderr}"
            self._ledger.note(number, "lost", message=said)
            self._say(number, said)

    def _say(self, number: int, what: str) -> None:
        self._console.tell(f"#{number} {what}; {self._total - len(self._left)} of {self._total} jobs have ended")

    def _cancel(self) -> None:
        wholes = sorted({str(job.job_id).split("_", maxsplit=1)[0] for job in self._left.values()})
        self._console.tell(f"cancelling SLURM's {' '.join(wholes)}")
        subprocess.run(["scancel", *wholes], check=False, stdin=subprocess.DEVNULL)  # noqa: S607 - it is where SLURM is


def _queued() -> set[str] | None:
    """Return the identifiers of this user's jobs that wait, run or are ending; None if SLURM does not answer."""
    argv = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", "--format=%i"]
    try:
        done = subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(done.stdout.split())


def take_its_place() -> None:
    """Take the stock launcher's place under its name, with the same settings."""
    node = SlurmQueueConf(_target_=publish(SlurmLauncher))
    ConfigStore.instance().store(group="hydra/launcher", name=_NAME, node=node, provider="winnow")
