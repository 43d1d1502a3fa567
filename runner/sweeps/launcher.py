"""The launcher of sweeps, and its scheduler.

What Hydra sees: the launcher ``winnow``, published where Hydra accepts launchers from.
"""

from __future__ import annotations

import logging
import select
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, filter_overrides
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.cli import finished_jobs
from runner.cli.launcher_memory import LauncherMemory
from runner.cli.task import HydraTask
from runner.errors import UsageError
from runner.machine import cpus
from runner.sweeps.job_process import Console, Interruption, JobProcess, command_line
from runner.sweeps.log import End, Ledger
from runner.sweeps.plan import compose, folder_of
from runner.text import without_values
from runner.workers.guardian import Guardian

# Runs the jobs of a sweep, as many at once as there are slots: each takes as many as it will keep CPUs busy.

_LOOK_MS = 50


@dataclass(frozen=True)
class SweepJob:
    """A job that is about to run: its command line, what it finds of the launcher's memory, and its folder.

    ``slots``: how many it takes; None: all. ``kept``: it has this exit code already.
    """

    arguments: Sequence[str]
    memory: str
    folder: Path
    slots: int | None = 1
    kept: int | None = None


class Scheduler:
    """Runs jobs in their order. ``prepare`` makes a job of its number and its overrides."""

    def __init__(
        self,
        prepare: Callable[[int, Sequence[str]], SweepJob],
        slots: int,
        ledger: Ledger,
        guardian: Guardian,
        interruption: Interruption,
        console: Console,
    ) -> None:
        self._prepare, self._slots, self._free = prepare, slots, slots
        self._ledger, self._guardian, self._interruption, self._console = ledger, guardian, interruption, console
        self._waiting: deque[tuple[int, Sequence[str]]] = deque()
        self._next: SweepJob | None = None
        # by process: the job's number, and the slots that it holds
        self._running: dict[JobProcess, tuple[int, int]] = {}
        self._total = self._ended = 0

    def run(self, jobs: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Run all jobs, given by number and overrides. Nothing that happens to one is raised."""
        for number, overrides in jobs:
            self._ledger.queued(number, filter_overrides(overrides))
        self._waiting, self._total = deque(jobs), len(jobs)
        try:
            while self._running or (self._waiting and not self._interruption.asked):
                started = bool(self._waiting) and not self._interruption.asked and self._start_next()
                self._look(0 if started else _LOOK_MS)
        finally:
            for process in self._running:
                process.end()

    def _start_next(self) -> bool:
        """Start the job whose turn it is; return False where it has to wait for slots."""
        number, overrides = self._waiting[0]
        try:
            job = self._next = self._next or self._prepare(number, overrides)
            slots = min(job.slots or self._slots, self._slots)
            if job.kept is None and slots > self._free:
                return False
            end = self._start(number, overrides, job, slots)
        except Exception as error:  # noqa: BLE001 - one job must not cost the others
            end = End(None, last=f"{type(error).__name__}: {error}")
        self._waiting.popleft()
        self._next = None
        if end is not None:
            self._report(number, end)
        return True

    def _start(self, number: int, overrides: Sequence[str], job: SweepJob, slots: int) -> End | None:
        """Start a job; return its end where it needs no start."""
        if job.kept is not None:
            return End(job.kept, kept=True)
        self._console.tell(f"#{number} {' '.join(without_values(filter_overrides(overrides)))}")
        # a job that runs alone has the terminal: its progress moves, and it may ask questions
        listener = partial(self._console.repeat, number) if slots < self._slots else None
        process = JobProcess(job.arguments, job.memory, self._guardian, listener)
        self._running[process] = number, slots
        self._free -= slots
        self._ledger.running(number, process.pid, job.folder)
        return None

    def _look(self, milliseconds: int) -> None:
        """Wait so long for news, and hear them."""
        poller = select.poll()
        for process in self._running:
            process.interrupt(self._interruption)
            for descriptor in process.descriptors():
                poller.register(descriptor, select.POLLIN)
        if self._running:  # in short slices: neither a signal nor the end of a job that has the terminal ends a wait
            poller.poll(milliseconds)
        for process in list(self._running):
            process.hear()
            if process.has_ended:
                end = process.end()
                number, slots = self._running.pop(process)
                self._free += slots
                self._report(number, end)

    def _report(self, number: int, end: End) -> None:
        self._ledger.ended(number, end)
        self._ended += end.code is not None
        failed = not self._interruption.asked and (end.code is None or end.died_by is not None)
        self._console.tell(
            f"#{number} {end.describe()}; {self._ended} of {self._total} jobs have ended",
            logging.ERROR if failed else logging.INFO,
        )


#: Hydra 1.3 takes launchers from below this package only
PACKAGE = "hydra_plugins.winnow_launcher"


def returned(overrides: Sequence[str]) -> JobReturn:
    """Return for Hydra's sweepers that nothing is to be raised: how a job ended is in its result.json."""
    made = JobReturn(overrides=list(overrides), working_dir=str(Path.cwd()), status=JobStatus.COMPLETED)
    made.return_value = None
    return made


class WinnowLauncher(Launcher):
    """Runs each job of a sweep in a process of its own.

    ``n_jobs``: jobs at once; None: as many as the CPUs carry, each counted with its ``workers.count``. Raises
    UsageError for another value.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        super().__init__()
        if n_jobs is not None and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs < 1):
            raise UsageError(
                f"hydra.launcher.n_jobs={n_jobs}: give how many jobs run at once, 1 or more, or null: as many as there "
                "are CPUs for"
            )
        self._n_jobs = n_jobs

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hear from Hydra what is to be launched."""
        assert isinstance(task_function, HydraTask), "this launcher runs Winnow's own task only"
        self._loader, self._task, self._sweep = hydra_context.config_loader, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs. Raises KeyboardInterrupt when the sweep was interrupted, and nothing for what a job did."""
        folder = Path(str(self._sweep.hydra.sweep.dir)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        slots, console = self._n_jobs or cpus(), Console(self._sweep)
        interruption = Interruption(self._task.arrived)
        console.tell(f"{len(job_overrides)} jobs, at most {min(slots, len(job_overrides))} at once, in {folder}")
        prepare = partial(self._prepare, only=len(job_overrides) == 1)
        with Ledger(folder) as ledger, Guardian() as guardian:
            scheduler = Scheduler(prepare, slots, ledger, guardian, interruption, console)
            scheduler.run(list(enumerate(job_overrides, initial_job_idx)))
        interruption.pass_on()
        return [returned(overrides) for overrides in job_overrides]

    def _prepare(self, number: int, overrides: Sequence[str], *, only: bool) -> SweepJob:
        config = compose(self._loader, self._sweep, overrides, number)
        folder = folder_of(config)
        interactive = OmegaConf.select(config, "checker.name") == "interactive"
        slots = 1 if self._n_jobs else int(OmegaConf.select(config, "workers.count") or 1)
        arguments = command_line(number, overrides, folder, self._sweep, self._loader)
        memory = LauncherMemory.of(number, self._task.command, self._sweep).to_json()
        job = SweepJob(arguments, memory, folder, slots=None if interactive or only else slots)
        if OmegaConf.select(config, "resume") is None or finished_jobs.number_of(folder) != number:
            return job
        with open_dict(config):
            del config["hydra"]  # as Hydra does for a job
        result = finished_jobs.earlier(folder, config)
        if result is None:
            return job
        finished_jobs.confirm(folder, overrides)
        return replace(job, kept=result.exit_code)


def publish(launcher: type[Launcher]) -> str:
    """Put a class where Hydra accepts launchers from; return its name there. It may be called again at no harm."""
    module = sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE, __doc__))
    launcher.__module__ = PACKAGE
    setattr(module, launcher.__name__, launcher)
    Plugins.instance().register(launcher)
    return f"{PACKAGE}.{launcher.__name__}"
