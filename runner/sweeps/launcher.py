"""The launcher of sweeps, its scheduler, and the processes of its jobs.

What Hydra sees: the launcher ``winnow``, published where Hydra accepts launchers from.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from typing import IO

import cloudpickle
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, filter_overrides
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.cli import job_notes, logs
from runner.cli.compose import SearchPath
from runner.cli.hydra_main import HANDED_OVER, JobOfSweep, compose, folder_of
from runner.cli.job_notes import End, Ledger
from runner.cli.signals import ENDING, Arrived
from runner.cli.task import HydraTask
from runner.cli.terminal import say
from runner.exit_codes import UsageError
from runner.machine import cpus
from runner.text import without_values
from runner.workers.guardian import Guardian, kill_group
from runner.workers.process_tree import has_ended, now

# The process of one job: its command line; started, listened to, interrupted, reaped.

#: Winnow itself, started by its path: where the user stands there may be another package of this name
_WINNOW = Path(__file__).parents[1]
#: a line longer than this is passed on in pieces
_LONGEST = 1 << 20
#: seconds that are waited for the end of a job's words: a process that it left elsewhere may hold the other end
_LAST_WORDS = 5.0
#: they would make a job draw on a pipe as on a terminal; Hydra's own is the launcher's business
_NOT_FOR_JOBS = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")

#: gets each line of a job, and whether it came on stderr
Listener = Callable[[str, bool], None]


class JobProcess:
    """A fresh interpreter in a session of its own, so that signals reach it through the launcher only and once.

    ``handed``: what it finds in the file that ``HANDED_OVER`` names. ``listener``: None gives the job the terminal:
    stdin, stdout and stderr. The guardian kills the job if the launcher dies. Raises OSError if it cannot be started.
    """

    def __init__(self, handed: bytes, guardian: Guardian, listener: Listener | None) -> None:
        self._guardian, self._listener = guardian, listener
        self._start = now()
        self._signalled: int | None = None
        self._last = ""
        left_out = ("HYDRA_FULL_ERROR", *(_NOT_FOR_JOBS if listener is not None else ()))
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        streams = subprocess.PIPE if listener is not None else None
        # without a name, and in memory where that is possible: not every container has another place
        linux = sys.platform == "linux"
        with os.fdopen(os.memfd_create("job"), "w+b") if linux else tempfile.TemporaryFile() as file:
            file.write(handed)
            file.seek(0)
            # a signal waits until the job can answer it
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, str(_WINNOW)],
                    env=guardian.marked({**environment, HANDED_OVER: str(file.fileno())}),
                    stdin=subprocess.DEVNULL if listener is not None else None,
                    stdout=streams,
                    stderr=streams,
                    pass_fds=(file.fileno(),),
                    start_new_session=True,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.pid = self._process.pid
        guardian.add(self.pid)
        streams_of = ((self._process.stdout, False), (self._process.stderr, True))
        self._readers = [Thread(target=self._repeat, args=one, daemon=True) for one in streams_of if one[0] is not None]
        for reader in self._readers:
            reader.start()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself or by a signal; it is not reaped yet."""
        return has_ended(self.pid)

    def interrupt(self, arrived: Arrived) -> None:
        """Pass on a signal that has arrived."""
        number = arrived.for_jobs
        if number is not None and number != self._signalled:
            self._signalled = number
            self._process.send_signal(number)

    def end(self) -> End:
        """Reap the process, kill what it has left in its group, and hear its last words."""
        kill_group(self.pid)
        self._guardian.remove(self.pid)
        code = self._process.wait()
        for reader in self._readers:
            reader.join(_LAST_WORDS)
        return End(code, now() - self._start, self._last)

    def _repeat(self, stream: IO[bytes], error: bool) -> None:
        """Pass on each line, until the stream ends."""
        with stream:
            while line := stream.readline(_LONGEST):
                text = line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
                if error and text.strip():
                    self._last = text.strip()[:500]
                if self._listener is not None:
                    self._listener(text, error)


# What a launcher tells the user while jobs run.

#: so far into a line a job's number is looked for: before it come a time and a level
_PREFIX = 60


class Console:
    """Whole lines, one at a time, of the sweep and of its jobs. The sweep's follow `verbosity`."""

    def __init__(self, config: DictConfig) -> None:
        self._level = logs.levels_of(config).of("runner.sweeps")
        self._one_at_a_time = Lock()

    def tell(self, text: str, level: int = logging.INFO) -> None:
        """Say something of the sweep, unless the user wants to hear less."""
        if level >= self._level:
            self._say(text, error=level >= logging.WARNING)

    def repeat(self, number: int, line: str, error: bool) -> None:
        """Pass on a line of job ``number``, which is marked as this job's unless it is already."""
        mark = f"#{number} "
        self._say(line if mark in line[:_PREFIX] or not line else mark + line, error=error)

    def _say(self, text: str, *, error: bool) -> None:
        with self._one_at_a_time:
            say(text, error=error)


# Runs the jobs of a sweep, as many at once as there are slots: each takes as many as it will keep CPUs busy.

#: in short slices: neither a signal nor the end of a job ends a wait
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class SweepJob:
    """A job that is about to run in ``folder``.

    ``handed``: see `JobProcess`. ``slots``: how many it takes; None: all. ``kept``: it has this exit code already.
    """

    handed: bytes
    folder: Path
    slots: int | None = 1
    kept: int | None = None


@dataclass
class Scheduler:
    """Runs jobs in their order. ``prepare`` makes a job of its number and its overrides."""

    prepare: Callable[[int, Sequence[str]], SweepJob]
    slots: int
    ledger: Ledger
    guardian: Guardian
    arrived: Arrived
    console: Console
    _waiting: deque[tuple[int, Sequence[str]]] = field(default_factory=deque)
    _next: SweepJob | None = None
    # by process: the job's number, and the slots that it holds
    _running: dict[JobProcess, tuple[int, int]] = field(default_factory=dict)
    _total: int = 0
    _ended: int = 0

    @property
    def _free(self) -> int:
        return self.slots - sum(slots for _, slots in self._running.values())

    def run(self, jobs: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Run all jobs, given by number and overrides. Nothing that happens to one is raised."""
        for number, overrides in jobs:
            self.ledger.note(number, "queued", overrides=without_values(filter_overrides(overrides)))
        self._waiting, self._total = deque(jobs), len(jobs)
        try:
            while self._running or (self._waiting and not self.arrived):
                if not self._waiting or self.arrived or not self._start_next():
                    time.sleep(_LOOK_SECONDS)
                self._look()
        finally:
            for process in self._running:
                process.end()

    def _start_next(self) -> bool:
        """Start the job whose turn it is; return False where it has to wait for slots."""
        number, overrides = self._waiting[0]
        try:
            job = self._next = self._next or self.prepare(number, overrides)
            slots = min(job.slots or self.slots, self.slots)
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
        self.console.tell(f"#{number} {' '.join(without_values(filter_overrides(overrides)))}")
        # a job that runs alone has the terminal: its progress moves, and it may ask questions
        listener = partial(self.console.repeat, number) if slots < self.slots else None
        process = JobProcess(job.handed, self.guardian, listener)
        self._running[process] = number, slots
        self.ledger.note(number, "running", pid=process.pid, folder=str(job.folder))
        return None

    def _look(self) -> None:
        """Pass signals on, and take leave of the jobs that have ended."""
        for process in list(self._running):
            process.interrupt(self.arrived)
            if process.has_ended:
                end = process.end()
                number, _ = self._running.pop(process)
                self._report(number, end)

    def _report(self, number: int, end: End) -> None:
        self.ledger.ended(number, end)
        self._ended += end.code is not None
        failed = not self.arrived and end.state in ("not_started", "died")
        self.console.tell(
            f"#{number} {end.said}; {self._ended} of {self._total} jobs have ended",
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
            raise UsageError(f"hydra.launcher.n_jobs={n_jobs}: give how many jobs run at once, 1 or more, or null")
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
        console.tell(f"{len(job_overrides)} jobs, at most {min(slots, len(job_overrides))} at once, in {folder}")
        prepare = partial(self._prepare, only=len(job_overrides) == 1)
        with self._task.arrived.told_to_jobs(), Guardian() as guardian:
            scheduler = Scheduler(prepare, slots, Ledger(folder), guardian, self._task.arrived, console)
            scheduler.run(list(enumerate(job_overrides, initial_job_idx)))
        return [returned(overrides) for overrides in job_overrides]

    def _prepare(self, number: int, overrides: Sequence[str], *, only: bool) -> SweepJob:
        config = compose(self._loader, self._sweep, overrides, number)
        folder = folder_of(config)
        interactive = OmegaConf.select(config, "checker.name") == "interactive"
        slots = 1 if self._n_jobs else int(OmegaConf.select(config, "workers.count") or 1)
        handed = JobOfSweep(sys.argv[0], self._task.command, (SearchPath.main, SearchPath.beside), config)
        job = SweepJob(cloudpickle.dumps(handed), folder, slots=None if interactive or only else slots)
        if OmegaConf.select(config, "resume") is None or job_notes.number_of(folder) != number:
            return job
        with open_dict(config):
            del config["hydra"]  # as Hydra does for a job
        result = job_notes.earlier(folder, config)
        if result is None:
            return job
        job_notes.confirm(folder, overrides)
        return replace(job, kept=result.exit_code)


def publish(launcher: type[Launcher]) -> str:
    """Put a class where Hydra accepts launchers from; return its name there. It may be called again at no harm."""
    module = sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE, __doc__))
    launcher.__module__ = PACKAGE
    setattr(module, launcher.__name__, launcher)
    Plugins.instance().register(launcher)
    return f"{PACKAGE}.{launcher.__name__}"
