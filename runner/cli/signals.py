"""SIGTERM ends a run as Ctrl-C does, with an exit code of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

_GRACE = 10.0


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived. Whoever handles Ctrl-C handles it alike."""

    exit_code = 143


@contextmanager
def terminable(*, forward: bool = False) -> Iterator[list[int]]:
    """Raise Terminated in the main thread on SIGTERM. In another thread this does nothing. Yields the signals so far.

    ``forward``: jobs in processes of joblib get the signal first, and some seconds to write down what they know.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    arrived: list[int] = []
    again = threading.Timer(_GRACE, os.kill, (os.getpid(), signal.SIGTERM))
    again.daemon = True

    def stop(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)
        if forward and again.ident is None and _forward():
            again.start()
            return
        signal.signal(signal.SIGTERM, before)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield arrived
    finally:
        again.cancel()
        signal.signal(signal.SIGTERM, before)


def _forward() -> bool:
    """Send SIGTERM to the processes that run jobs of a sweep; return whether there are any."""
    told = False
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any("loky" in part for part in child.cmdline()) and "resource_tracker" not in " ".join(child.cmdline()):
                child.terminate()
                told = True
    return told
