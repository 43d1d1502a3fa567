"""Runs the jobs of a sweep, as many at once as there are slots: each takes as many as it will keep CPUs busy."""

from __future__ import annotations

import logging
import select
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hydra.core.utils import filter_overrides

from runner.program_name import without_values
from runner.sweeps.console import Console
from runner.sweeps.interruption import Interruption
from runner.sweeps.job_process import JobProcess
from runner.sweeps.log import End, Ledger
from runner.workers.guardian import Guardian

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
