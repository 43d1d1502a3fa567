"""The process of one job, told of signals, and what a launcher says meanwhile.

The process of one job: its command line; started, listened to, interrupted, reaped.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, cast

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from runner.cli import logs
from runner.cli.compose import Folder
from runner.cli.launcher_memory import VARIABLE
from runner.cli.path_overrides import quote
from runner.cli.signals import ENDING, Arrived, Terminated
from runner.cli.terminal import say
from runner.sweeps.log import End
from runner.workers.guardian import Guardian, kill_group
from runner.workers.process_tree import has_ended, now

# Ctrl-C, SIGTERM and SIGHUP while jobs run: told to the jobs, not raised where the launcher happens to be.

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


#: Winnow itself, started by its path: where the user stands there may be another package of this name
_WINNOW = Path(__file__).parents[1]
_CHUNK = 65536
#: a line longer than this is passed on in pieces
_LONGEST = 1 << 20
#: they would make a job draw on a pipe as on a terminal; Hydra's own is the launcher's business
_NOT_FOR_JOBS = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")

#: gets each line of a job, and whether it came on stderr
Listener = Callable[[str, bool], None]


def command_line(
    number: int, overrides: Sequence[str], folder: Path, sweep: DictConfig, loader: ConfigLoader
) -> list[str]:
    """Return the arguments of a run that is job ``number``, in ``folder``, of the ``sweep`` with this configuration."""
    places = {
        item.provider: item.path.removeprefix(f"{Folder.scheme()}://") for item in loader.get_search_path().get_path()
    }
    beside = ["--config-dir", places["command-line"]] if "command-line" in places else []
    typed = cast("list[str]", OmegaConf.to_container(sweep.hydra.overrides.hydra))  # interpolations as they are
    ours = {"mode": "RUN", "run.dir": quote(str(folder)), "job.id": number, "job.num": number}
    return [
        *("--config-name", str(sweep.hydra.job.config_name), "--config-path", places["main"], *beside),
        *(*typed, *overrides),
        *(f"hydra.{key}={value}" for key, value in ours.items()),
    ]


class JobProcess:
    """A fresh interpreter in a session of its own, so that signals reach it through the launcher only and once.

    ``arguments``: its command line. ``memory``: what it finds in the file that ``VARIABLE`` names. ``listener``: None
    gives the job the terminal: stdin, stdout and stderr. The guardian kills the job if the launcher dies. Raises
    OSError if it cannot be started.
    """

    def __init__(self, arguments: Sequence[str], memory: str, guardian: Guardian, listener: Listener | None) -> None:
        self._guardian, self._listener = guardian, listener
        self._start = now()
        self._signalled: int | None = None
        self._last = ""
        left_out = ("HYDRA_FULL_ERROR", *(_NOT_FOR_JOBS if listener is not None else ()))
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        streams = subprocess.PIPE if listener is not None else None
        # without a name, and in memory where that is possible: not every container has another place
        linux = sys.platform == "linux"
        with os.fdopen(os.memfd_create("memory"), "w+b") if linux else tempfile.TemporaryFile() as file:
            file.write(memory.encode())
            file.seek(0)
            # a signal waits until the job can answer it
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, str(_WINNOW), *arguments],
                    env=guardian.marked({**environment, VARIABLE: str(file.fileno())}),
                    stdin=subprocess.DEVNULL if listener is not None else None,
                    stdout=streams,
                    stderr=streams,
                    pass_fds=(file.fileno(),),
                    start_new_session=True,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        guardian.add(self._process.pid)
        found = ((self._process.stdout, False), (self._process.stderr, True))
        self._streams = [_Stream(stream, error) for stream, error in found if stream is not None]

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself or by a signal; it is not reaped yet."""
        return has_ended(self.pid)

    def descriptors(self) -> list[int]:
        """Return what can be read when there is news: both streams end with the process."""
        return [part.stream.fileno() for part in self._streams if part.open]

    def interrupt(self, interruption: Interruption) -> None:
        """Pass on a signal that has arrived."""
        number = interruption.signal
        if number is not None and number != self._signalled:
            self._signalled = number
            self._process.send_signal(number)

    def hear(self) -> bool:
        """Pass on the whole lines that came; return whether anything did."""
        heard = [part.read() for part in self._streams]
        for part in self._streams:
            self._pass_on(part)
        return any(heard)

    def end(self) -> End:
        """Reap the process, and kill what it has left in its group."""
        kill_group(self.pid)
        self._guardian.remove(self.pid)
        code = self._process.wait()
        while self.hear():
            pass
        for part in self._streams:
            part.finish()
            self._pass_on(part)
            part.stream.close()
        return End(code, now() - self._start, self._last)

    def _pass_on(self, part: _Stream) -> None:
        for line in part.lines():
            if part.error and line.strip():
                self._last = line.strip()[:500]
            if self._listener is not None:
                self._listener(line, part.error)


class _Stream:
    """What a job writes. ``open``: until its end was read."""

    def __init__(self, stream: IO[bytes], error: bool) -> None:
        os.set_blocking(stream.fileno(), False)
        self.stream, self.error, self.open = stream, error, True
        self._whole: list[bytes] = []
        self._rest = b""

    def read(self) -> bool:
        """Read some of what is there; return whether anything was."""
        if not self.open:
            return False
        try:
            chunk = os.read(self.stream.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        self.open = bool(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        self._whole += whole
        if len(self._rest) > _LONGEST:
            self.finish()
        return self.open

    def finish(self) -> None:
        """Take what came after the last line's end for a line."""
        self._whole += [self._rest] if self._rest else []
        self._rest = b""

    def lines(self) -> list[str]:
        """Return the lines that are whole by now, each once."""
        whole, self._whole = self._whole, []
        return [line.rstrip(b"\r").decode("utf-8", "backslashreplace") for line in whole]


# What a launcher tells the user while jobs run.

#: so far into a line a job's number is looked for: before it come a time and a level
_PREFIX = 60


class Console:
    """Whole lines, one at a time, of the sweep and of its jobs. The sweep's follow `verbosity`."""

    def __init__(self, config: DictConfig) -> None:
        self._level = logs.levels_of(config).of("runner.sweeps")

    def tell(self, text: str, level: int = logging.INFO) -> None:
        """Say something of the sweep, unless the user wants to hear less."""
        if level >= self._level:
            say(text, error=level >= logging.WARNING)

    def repeat(self, number: int, line: str, error: bool) -> None:
        """Pass on a line of job ``number``, which is marked as this job's unless it is already."""
        mark = f"#{number} "
        say(line if mark in line[:_PREFIX] or not line else mark + line, error=error)
