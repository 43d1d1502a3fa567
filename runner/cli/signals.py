"""Signals that end a run, and the three streams of a process.

The signals that end a run: Ctrl-C, SIGTERM, SIGHUP, which a terminal sends when it is closed, and SIGUSR1 and SIGUSR2,
by which queues warn of the end, where nothing else handles them.

What they do depends on how far the process is. While nothing has been begun, they end it on the spot: an exception in
the midst of an import crashes modules written in C, or is lost in a callback. While work goes on they are raised, as
KeyboardInterrupt or Terminated. Once everything is written down they do nothing. A signal that the process was started
to ignore (``nohup``, a shell's background jobs) stays ignored.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from types import FrameType
from typing import Any, TextIO

from runner.exit_codes import TERMINATED, Status

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# a queue's word before it ends a job (`sbatch --signal`): like SIGTERM, where nobody else handles it
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
#: seconds that a job has to write down what it knows after SIGTERM or SIGHUP
_GRACE = 10.0
_AGAIN = 0.1


class Terminated(KeyboardInterrupt):
    """SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 arrived. Whoever handles Ctrl-C handles it alike."""

    exit_code = TERMINATED


class Phase(Enum):
    """How far a process is, and what a signal does then.

    ``starting``: it ends the process. ``waiting``: it is noted, for the launcher of a sweep. ``working``: it is raised.
    ``ended``: nothing.
    """

    starting = "starting"
    waiting = "waiting"
    working = "working"
    ended = "ended"


def leave(number: int, _frame: FrameType | None = None) -> None:
    """End this process now: there is nothing to write down. Handles signals."""
    with suppress(OSError):
        os.write(2, b"winnow: interrupted\n")
    os._exit(Status.interrupted.exit_code if number == signal.SIGINT else Terminated.exit_code)


def listen(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Have the signals handled, except those that are ignored; return what handled them before."""
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    heard += filter(_is_unclaimed, _WARNINGS)
    return {number: signal.signal(number, handler) for number in heard}


def _is_unclaimed(number: int) -> bool:
    handler = signal.getsignal(number)
    return handler in (signal.SIG_DFL, leave) or isinstance(handler, Signals)


def ignore() -> None:
    """Let no signal change how this process ends: all is written down."""
    for number in (*ENDING, *filter(_is_unclaimed, _WARNINGS)):
        signal.signal(number, signal.SIG_IGN)


class Arrived(list[int]):
    """Signals that have arrived. ``heard``: somebody acts on each, while the jobs of a sweep run."""

    heard = False
    _patience = float("inf")

    @property
    def for_jobs(self) -> int | None:
        """The signal that a job gets now: the first that arrived, SIGKILL after a second one or a long wait."""
        if self and self[0] != signal.SIGINT:
            self._patience = min(self._patience, time.monotonic() + _GRACE)
        late = len(self) > 1 or time.monotonic() > self._patience
        return signal.SIGKILL if late else next(iter(self), None)

    @contextmanager
    def told_to_jobs(self) -> Iterator[None]:
        """Have jobs hear of each inside; raise afterwards what the first one means."""
        self.heard = True
        yield
        self.heard = False
        if self:
            raise KeyboardInterrupt if self[0] == signal.SIGINT else Terminated


class Signals:
    """Handles signals as the ``phase`` says, and remembers those that ``arrived``.

    ``forward``: jobs in processes of joblib get SIGTERM first, and some seconds to write down what they know.
    """

    def __init__(self, phase: Callable[[], Phase], *, forward: bool = False) -> None:
        self.arrived = Arrived()
        self.phase, self._forward = phase, forward
        self.timer = threading.Timer(_GRACE, os.kill, (os.getpid(), signal.SIGTERM))
        self.timer.daemon = True

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        phase = self.phase()
        if phase is Phase.ended or (number == signal.SIGHUP and number in self.arrived):
            return  # a closed terminal tells it twice: the kernel does, and the shell
        again = number in self.arrived
        self.arrived.append(number)
        if phase is Phase.starting:
            leave(number)
        if phase is Phase.waiting:
            if len(self.arrived) > 1 and not self.arrived.heard:  # no job runs yet
                leave(number)
            return
        if number == signal.SIGINT:
            if not again:
                with suppress(OSError):
                    os.write(2, b"\n" * os.isatty(2) + b"winnow: stopping; Ctrl-C again kills\n")
            raise KeyboardInterrupt
        if again and self.timer.ident is None:
            leave(number)
        if self._forward and self.timer.ident is None and _forward():
            self.timer.start()
            return
        raise Terminated


@contextmanager
def terminable(*, forward: bool = False, phase: Callable[[], Phase] = lambda: Phase.working) -> Iterator[Arrived]:
    """Handle the signals as ``phase`` says inside, in the main thread. Yields the signals so far.

    Raises at once what was noted before. In another thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Arrived()
        return
    signals = Signals(phase, forward=forward)
    before = listen(signals)
    noted = [number for handler in before.values() if isinstance(handler, Signals) for number in handler.arrived]
    hook, sys.unraisablehook = sys.unraisablehook, _raised_again(signals, sys.unraisablehook)
    try:
        if noted and phase() is Phase.working:
            signals(noted[0], None)
        yield signals.arrived
    finally:
        sys.unraisablehook = hook
        signals.timer.cancel()
        for number, handler in before.items():
            # what was begun inside is about to be written down: nothing may end it on the spot any more
            leaves = handler is leave or (isinstance(handler, Signals) and handler.phase() is Phase.starting)
            signal.signal(number, signal.SIG_IGN if leaves else handler)


@contextmanager
def held() -> Iterator[None]:
    """Hold signals back inside, in the main thread, and have them handled afterwards: for imports and the like."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = listen(lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:  # also where an error ended it: that is about to be explained away
            signal.raise_signal(arrived[0])


def _raised_again(signals: Signals, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a hook for exceptions that nobody can catch (in finalizers, say): an interruption comes once more."""

    def raised(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            hook(unraisable)
            return
        number = signals.arrived.pop() if signals.arrived else signal.SIGINT
        again = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    return raised


def _forward() -> bool:
    """Send SIGTERM to the processes that run jobs of a sweep; return whether there are any."""
    import psutil  # noqa: PLC0415 - this module is the first that a process imports

    told = False
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any("loky" in part for part in child.cmdline()) and "resource_tracker" not in " ".join(child.cmdline()):
                child.terminate()
                told = True
    return told


# The three streams of a process, whatever they were given to: a pipe that nobody reads, a full device, nothing at all.
#
# What a run has to say is in its folder; that it could not be said as well must not change how the run ends. So
# writing never fails here, and what failed first is remembered for those who have nothing but their words to hand
# over.


class Stream(io.FileIO):
    """Writes to a descriptor as far as that can be done. ``failed``: why it could not, None: it could so far."""

    failed: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write, or lose, the data; wait where whoever reads is slow."""
        while self.failed is None:
            try:
                written = super().write(data)
            except OSError as error:  # noqa: PERF203 - once at most
                self.failed = error
            else:
                if written is not None:
                    return written
                select.select([], [self], [])
        return memoryview(data).nbytes


def open_descriptors() -> None:
    """Open what is closed of descriptors 0 to 2, lest a file of a run gets the number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # noqa: PERF203 - three of them
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)


def open_streams() -> None:
    """Open closed descriptors, and both outputs anew."""
    open_descriptors()
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as the interpreter does
    sys.stdout, sys.stderr = _opened(1, sys.stdout), _opened(2, sys.stderr)


def failure() -> OSError | None:
    """Return why what was said on stdout was lost, if it was; that nobody reads a pipe to its end is no failure."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    failed = raw.failed if isinstance(raw, Stream) else None
    return None if isinstance(failed, BrokenPipeError) else failed


def _opened(number: int, before: TextIO | None) -> TextIO:
    raw = Stream(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=before.errors if before else "backslashreplace",
        line_buffering=raw.isatty() or number == 2,
    )
