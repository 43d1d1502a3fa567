"""The process of one job: started, listened to, interrupted, reaped."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from runner.cli.signals import ENDING
from runner.sweeps.interruption import Interruption
from runner.sweeps.job_spec import Order
from runner.sweeps.log import End
from runner.workers.guardian import Guardian, kill_group
from runner.workers.process_end import has_ended, now, open_pidfd, pause

_CHILD = Path(__file__).with_name("child.py")
_LOOK_SECONDS = 0.2
_CHUNK = 65536
#: a line longer than this is passed on in pieces
_LONGEST = 1 << 20
#: they would make a job draw on a pipe as on a terminal; Hydra's own is the launcher's business
_NOT_FOR_JOBS = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "HYDRA_FULL_ERROR")

#: gets each line of a job, and whether it came on stderr
Listener = Callable[[str, bool], None]


def _without_name() -> IO[bytes]:
    """Return a file for an order: in memory where that is possible, since not every container has another place."""
    return os.fdopen(os.memfd_create("order"), "w+b") if sys.platform == "linux" else tempfile.TemporaryFile()


class JobProcess:
    """A fresh interpreter in a session of its own, so that signals reach it through the launcher only and once.

    The guardian kills it if the launcher dies. ``listener``: None gives the job the terminal: stdin, stdout and stderr.
    Raises OSError if it cannot be started.
    """

    def __init__(self, order: Order, guardian: Guardian, listener: Listener | None) -> None:
        self._guardian, self._listener = guardian, listener
        self._start = now()
        self._signalled: int | None = None
        self._last = ""
        environment = guardian.marked(
            {name: value for name, value in os.environ.items() if listener is None or name not in _NOT_FOR_JOBS}
        )
        environment.pop("HYDRA_FULL_ERROR", None)
        streams = subprocess.PIPE if listener is not None else None
        with _without_name() as file:
            file.write(order.to_json().encode())
            file.seek(0)
            # a signal waits until the job can answer it: threads have masks of their own, and processes inherit them
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, str(_CHILD), str(file.fileno())],
                    env=environment,
                    stdin=subprocess.DEVNULL if listener is not None else None,
                    stdout=streams,
                    stderr=streams,
                    pass_fds=(file.fileno(),),
                    start_new_session=True,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        guardian.add(self._process.pid)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def wait(self, interruption: Interruption) -> End:
        """Pass on lines, and signals that arrive, until the process ends; nothing of its session is left behind."""
        heard = [_Heard(stream, error) for stream, error in self._streams()]
        try:
            self._follow(heard, interruption)
        finally:
            kill_group(self.pid)
            self._guardian.remove(self.pid)
            code = self._process.wait()
            for part in heard:
                part.stream.close()
        return End(code, now() - self._start, self._last)

    def _streams(self) -> list[tuple[IO[bytes], bool]]:
        found = ((self._process.stdout, False), (self._process.stderr, True))
        return [(stream, error) for stream, error in found if stream is not None]

    def _follow(self, heard: list[_Heard], interruption: Interruption) -> None:
        pidfd = open_pidfd(self.pid)
        poller = select.poll()
        if pidfd >= 0:
            poller.register(pidfd, select.POLLIN)
        for part in heard:
            os.set_blocking(part.stream.fileno(), False)
            poller.register(part.stream.fileno(), select.POLLIN)
        by_number = {part.stream.fileno(): part for part in heard}
        try:
            while not has_ended(self.pid):
                self._interrupt(interruption)
                # in short slices: what arrives in the main thread wakes no other
                for number, _ in poller.poll(pause(_LOOK_SECONDS, pidfd >= 0)):
                    if number in by_number and not self._hear(by_number[number]):
                        poller.unregister(number)
            # the pipes may be held open by what the job has left behind: what is in them now counts
            for part in heard:
                while self._hear(part) and part.got:
                    pass
                self._pass_on(part, part.rest())
        finally:
            if pidfd >= 0:
                os.close(pidfd)

    def _interrupt(self, interruption: Interruption) -> None:
        number = interruption.signal
        if number is not None and number != self._signalled:
            self._signalled = number
            self._process.send_signal(number)

    def _hear(self, part: _Heard) -> bool:
        """Pass on the whole lines that came; return False at the end of the stream."""
        lines = part.read()
        if lines is None:
            return False
        self._pass_on(part, lines)
        return True

    def _pass_on(self, part: _Heard, lines: list[str]) -> None:
        for line in lines:
            if part.error and line.strip():
                self._last = line.strip()[:500]
            if self._listener is not None:
                self._listener(line, part.error)


class _Heard:
    """One of the job's streams. ``got``: whether the last look found anything."""

    def __init__(self, stream: IO[bytes], error: bool) -> None:
        self.stream, self.error = stream, error
        self.got = False
        self._open = b""

    def read(self) -> list[str] | None:
        """Return the lines that are whole by now; None at the end."""
        self.got = False
        try:
            chunk = os.read(self.stream.fileno(), _CHUNK)
        except BlockingIOError:
            return []
        if not chunk:
            return None
        self.got = True
        *lines, self._open = (self._open + chunk).split(b"\n")
        if len(self._open) > _LONGEST:
            lines, self._open = [*lines, self._open], b""
        return [_text(line) for line in lines]

    def rest(self) -> list[str]:
        """Return what came after the last line's end."""
        rest, self._open = self._open, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "backslashreplace")
