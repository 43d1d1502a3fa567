"""Checks that are under way, as many at once as there are workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from runner.session.judge import Judge
from runner.verdict import Verdict
from strategies.trial import Trial

A = TypeVar("A")
R = TypeVar("R")

SLICE = 0.5
"""Seconds that one wait takes at most: a wait without end could not be interrupted on every system."""
PATIENCE = 0.1
"""Part of a check's time that is waited for those that began with it: what they say decides what is worth asking."""


@dataclass(frozen=True)
class Workers:
    """How many checks run at once. ``kill`` ends the processes of those that are under way."""

    count: int = 1
    kill: Callable[[], None] = lambda: None

    def together(self, calls: Sequence[Callable[[threading.Event], R]]) -> list[R]:
        """Return what calls return, made as many at once as there are workers; the first error ends the others.

        Each is given the event that is set where nobody waits for its answer any more.
        """
        found: dict[int, R] = {}
        each: ParallelChecks[int, R] = ParallelChecks(self.count, lambda at, given_up: calls[at](given_up), self.kill)
        with each as checks:
            begun = 0
            while len(found) < len(calls):
                while begun < len(calls) and checks.free:
                    checks.start(begun)
                    begun += 1
                found |= {at: future.result() for at, future in checks.finished()}
        return [found[at] for at in range(len(calls))]

    def ahead(self, asked: Sequence[Expected]) -> None:
        """Check at once what is going to be asked for: whoever asks finds it in the journal. One worker does not."""
        if self.count > 1 and len(asked) > 1:
            self.together([one.made for one in asked])


@dataclass(frozen=True)
class Expected:
    """What is going to be asked of a judge; see `Judge.verdict`."""

    judge: Judge
    trial: Trial
    phase: str
    label: str
    purpose: str = "trust"
    attempt: int = 0

    def made(self, given_up: threading.Event) -> Verdict | None:
        """Return its verdict; None if it was given up meanwhile."""
        return self.judge.verdict(self.trial, self.phase, self.label, self.purpose, self.attempt, given_up=given_up)


class ParallelChecks(Generic[A, R]):
    """Has ``check`` called for what is asked, ``size`` at once; where that is one, in the caller's own thread.

    It is given what is asked, and an event: once that is set, nobody waits for the answer any more.

    A context manager. Checks still under way at its end are given up, whatever ends it: ``kill`` ends the processes
    that work on them, so nobody waits for the rest of a long check (or its time-out).
    """

    def __init__(self, size: int, check: Callable[[A, threading.Event], R], kill: Callable[[], None]) -> None:
        self._size = size
        self._check = check
        self._kill = kill
        self._given_up = threading.Event()
        self._running: dict[Future[R], A] = {}
        self._began: dict[Future[R], float] = {}
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="check") if size > 1 else None

    def __enter__(self) -> ParallelChecks[A, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._given_up.set()
        if self._threads is None:
            return
        self._threads.shutdown(wait=False, cancel_futures=True)
        # what no thread had begun is cancelled, and nobody ever reports it as done
        while waiting := {one for one in self._running if not (one.done() or one.cancelled())}:
            # again and again: what lost its process may have started another
            self._kill()
            wait(waiting, timeout=0.05)

    @property
    def busy(self) -> tuple[A, ...]:
        """What is being checked."""
        return tuple(self._running.values())

    @property
    def free(self) -> int:
        """How many more checks can start."""
        return self._size - len(self._running)

    def start(self, asked: A) -> None:
        """Begin a check; where one runs at once, it is done when this returns."""
        if self._threads is not None:
            future = self._threads.submit(self._check, asked, self._given_up)
        else:
            future = Future()
            try:
                future.set_result(self._check(asked, self._given_up))
            except Exception as error:  # noqa: BLE001 - as a thread would hand it over; an interruption goes through
                future.set_exception(error)
        self._running[future], self._began[future] = asked, time.monotonic()

    def finished(self) -> Iterator[tuple[A, Future[R]]]:
        """Wait for a check to end, and a moment for those that began with it; yield those that have ended."""
        done = wait(self._running, timeout=SLICE, return_when=FIRST_COMPLETED).done
        if done:
            first = min(self._began[one] for one in done)
            patience = min(PATIENCE * (time.monotonic() - first), SLICE)
            beside = [one for one in self._running if one not in done and abs(self._began[one] - first) < patience]
            done |= wait(beside, timeout=patience).done
        for future in done:
            del self._began[future]
            yield self._running.pop(future), future
