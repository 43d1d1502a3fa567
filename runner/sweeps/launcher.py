"""What Hydra sees: the launcher ``winnow``, published where Hydra accepts launchers from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.cli import finished_jobs
from runner.cli.launcher_memory import LauncherMemory
from runner.cli.task import HydraTask
from runner.errors import UsageError
from runner.machine import cpus
from runner.sweeps.console import Console
from runner.sweeps.interruption import Interruption
from runner.sweeps.job_process import command_line
from runner.sweeps.log import Ledger
from runner.sweeps.plan import compose, folder_of
from runner.sweeps.scheduler import Scheduler, SweepJob
from runner.workers.guardian import Guardian

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
        return replace(job, kept=int(result["exit_code"]))


def publish(launcher: type[Launcher]) -> str:
    """Put a class where Hydra accepts launchers from; return its name there. It may be called again at no harm."""
    module = sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE, __doc__))
    launcher.__module__ = PACKAGE
    setattr(module, launcher.__name__, launcher)
    Plugins.instance().register(launcher)
    return f"{PACKAGE}.{launcher.__name__}"
