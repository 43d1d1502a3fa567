"""Runs the jobs of a sweep: threads that each wait for one process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runner.sweeps.console import Voice
from runner.sweeps.interruption import Interruption
from runner.sweeps.job_process import JobProcess
from runner.sweeps.job_spec import Order
from runner.sweeps.log import End, Ledger
from runner.sweeps.slots import Slots
from runner.workers.guardian import Guardian


@dataclass(frozen=True)
class Job:
    """A job that is about to run. ``slots``: how many it takes; None: all. ``kept``: it has this exit code already."""

    order: Order
    folder: Path
    slots: int | None = 1
    kept: int | None = None


class Crew:
    """Runs jobs. ``prepare`` makes a job of its number."""

    def __init__(
        self,
        prepare: Callable[[int], Job],
        slots: Slots,
        ledger: Ledger,
        guardian: Guardian,
        interruption: Interruption,
        voice: Voice,
    ) -> None:
        self._prepare, self._slots, self._ledger = prepare, slots, ledger
        self._guardian, self._interruption, self._voice = guardian, interruption, voice
        self._total = self._done = 0

    def run(self, jobs: Sequence[tuple[int, str]]) -> None:
        """Run all jobs, given by number and a few words. Nothing that happens to one is raised."""
        from joblib import Parallel, delayed  # noqa: PLC0415 - a single run does without

        self._total = len(jobs)
        at_once = max(1, min(len(jobs), self._slots.total))
        threads = Parallel(
            n_jobs=at_once, backend="threading", return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
        )
        for number, end in threads(delayed(self._one)(number, words) for number, words in jobs):
            self._done += end.code is not None
            self._report(number, end)

    def _one(self, number: int, words: str) -> tuple[int, End]:
        try:
            end = self._run(number, words)
        except Exception as error:  # noqa: BLE001 - one job must not cost the others
            end = End(None, last=f"{type(error).__name__}: {error}")
        if end.code is None and self._interruption.asked:
            return number, End(None)
        self._ledger.ended(number, end)
        return number, end

    def _run(self, number: int, words: str) -> End:
        if self._interruption.asked:
            return End(None)
        job = self._prepare(number)
        if job.kept is not None:
            return End(job.kept, kept=True)
        needed = self._slots.total if job.slots is None else job.slots
        with self._slots.taken(needed, lambda: self._interruption.asked) as held:
            if not held:
                return End(None)
            self._voice.tell(f"#{number} {words}")
            # a job that runs alone has the terminal: its progress moves, and it may ask questions
            alone = needed >= self._slots.total
            listener = None if alone else partial(self._voice.repeat, number)
            process = JobProcess(job.order, self._guardian, listener)
            self._ledger.running(number, process.pid, job.folder)
            return process.wait(self._interruption)

    def _report(self, number: int, end: End) -> None:
        if self._interruption.asked and end.code is None:
            return
        failed = not self._interruption.asked and (end.code is None or end.died_by is not None)
        self._voice.tell(
            f"#{number} {end.describe()}; {self._done} of {self._total} jobs have ended",
            logging.ERROR if failed else logging.INFO,
        )
