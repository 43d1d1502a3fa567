"""Ctrl-C, SIGTERM and SIGHUP while jobs run: told to the jobs, not raised where the launcher happens to be."""

from __future__ import annotations

import signal
import time

from runner.cli.signals import Arrived, Terminated

#: seconds that a job has to write down what it knows after SIGTERM or SIGHUP
GRACE = 10.0


class Interruption:
    """What the signals mean for the jobs of a sweep. ``arrived``: those so far; it grows while jobs run."""

    def __init__(self, arrived: Arrived) -> None:
        self._arrived = arrived
        arrived.heard = True
        self._patience: float | None = None

    @property
    def asked(self) -> bool:
        """Whether the sweep is to stop."""
        return bool(self._arrived)

    @property
    def signal(self) -> int | None:
        """The signal that a job gets now: the first that arrived, SIGKILL after a second one or a long wait."""
        if not self._arrived:
            return None
        if self._patience is None:
            self._patience = time.monotonic() + GRACE if self._arrived[0] != signal.SIGINT else float("inf")
        if len(self._arrived) > 1 or time.monotonic() > self._patience:
            return signal.SIGKILL
        return self._arrived[0]

    def pass_on(self) -> None:
        """Raise what the first signal means: KeyboardInterrupt or Terminated; nothing if there was none."""
        self._arrived.heard = False
        if self._arrived:
            raise KeyboardInterrupt if self._arrived[0] == signal.SIGINT else Terminated
