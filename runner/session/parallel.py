"""Checks that are under way, as many at once as there are workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType

from runner.session.reliability import Ruling
from strategies.search import Ask
from strategies.trial import Trial

Check = Callable[[Ask, threading.Event], "Ruling | None"]
"""Checks what is asked; None if the event was set meanwhile, which says that nobody waits for the answer any more."""


class ParallelChecks:
    """Has ``check`` called for what is asked, ``size`` at once; where that is one, in the caller's own thread.

    A context manager. Checks still under way at its end are given up, whatever ends it: ``kill`` ends the processes
    that work on them, so nobody waits for the rest of a long check (or its time-out).
    """

    def __init__(self, size: int, check: Check, kill: Callable[[], None]) -> None:
        self._size = size
        self._check = check
        self._kill = kill
        self._given_up = threading.Event()
        self._running: dict[Future[Ruling | None], Ask] = {}
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="check") if size > 1 else None

    def __enter__(self) -> ParallelChecks:
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
    def busy(self) -> frozenset[Trial]:
        """What is being checked."""
        return frozenset(ask.trial for ask in self._running.values())

    @property
    def free(self) -> int:
        """How many more checks can start."""
        return self._size - len(self._running)

    def start(self, ask: Ask) -> None:
        """Begin a check; where one runs at once, it is done when this returns."""
        if self._threads is not None:
            self._running[self._threads.submit(self._check, ask, self._given_up)] = ask
            return
        future: Future[Ruling | None] = Future()
        try:
            future.set_result(self._check(ask, self._given_up))
        except Exception as error:  # noqa: BLE001 - as a thread would hand it over; an interruption goes through
            future.set_exception(error)
        self._running[future] = ask

    def finished(self) -> Iterator[tuple[Ask, Future[Ruling | None]]]:
        """Wait for a check to end; yield those that have."""
        # in slices: a wait without end could not be interrupted on every system
        for future in wait(self._running, timeout=0.5, return_when=FIRST_COMPLETED).done:
            yield self._running.pop(future), future
