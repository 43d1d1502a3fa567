"""Ctrl-C, SIGTERM and SIGHUP while jobs run: told to the jobs, not raised where the launcher happens to be."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from runner.cli.signals import Signals, Terminated, listen

#: seconds that a job has to write down what it knows after SIGTERM or SIGHUP
GRACE = 10.0


class Interruption:
    """What has arrived so far. Read by the jobs' threads, written by the signals' handler in the main thread."""

    def __init__(self) -> None:
        self._arrived: list[int] = []
        self._patience = float("inf")

    def arrive(self, number: int) -> None:
        """Note a signal."""
        if number == signal.SIGHUP and number in self._arrived:
            return  # a closed terminal tells it twice: the kernel does, and the shell
        if number != signal.SIGINT and not self._arrived:
            self._patience = time.monotonic() + GRACE
        self._arrived.append(number)

    @property
    def asked(self) -> bool:
        """Whether the sweep is to stop."""
        return bool(self._arrived)

    @property
    def signal(self) -> int | None:
        """The signal that a job gets now: the first that arrived, SIGKILL after a second one or a long wait."""
        if not self._arrived:
            return None
        if len(self._arrived) > 1 or time.monotonic() > self._patience:
            return signal.SIGKILL
        return self._arrived[0]

    def pass_on(self) -> None:
        """Raise what the first signal means: KeyboardInterrupt or Terminated; nothing if there was none."""
        if self._arrived:
            raise KeyboardInterrupt if self._arrived[0] == signal.SIGINT else Terminated


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Collect Ctrl-C, SIGTERM and SIGHUP inside, and what came shortly before; in another thread none arrives.

    A process that was started to ignore one of them goes on doing so.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def arrive(number: int, _frame: FrameType | None) -> None:
        interruption.arrive(number)

    before = listen(arrive)
    noted = {id(handler): handler.arrived for handler in before.values() if isinstance(handler, Signals)}
    for number in itertools.chain(*noted.values()):
        interruption.arrive(number)
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
