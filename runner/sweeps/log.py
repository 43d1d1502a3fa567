"""What is known of a sweep's jobs, line by line in a file that is whole after a kill at any moment."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.files import append_json, json_lines
from runner.text import without_values

NAME = "jobs.jsonl"


@dataclass(frozen=True)
class End:
    """How a job's process ended.

    ``code``: its exit code, negative if it died by a signal; None where it never ran. ``last``: the last line that it
    wrote to stderr, or why it could not be started. ``kept``: it had ended before and was not run again.
    """

    code: int | None
    seconds: float = 0.0
    last: str = ""
    kept: bool = False

    @property
    def died_by(self) -> str | None:
        """The name of the signal that ended it, as in ``SIGKILL``; None if it ended by itself."""
        if self.code is None or self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"

    def describe(self) -> str:
        """Say it in some words."""
        if self.code is None:
            return f"could not be started: {self.last}" if self.last else "was not started"
        if self.died_by:
            return f"died by {self.died_by}"
        if self.kept:
            return f"had ended before with exit code {self.code}"
        return f"ended with exit code {self.code}"


class Ledger:
    """The file's writer; one at a time for a sweep's folder, which is locked. Each line is one write.

    States of a job: ``queued``, ``running`` (with its process), ``ended``, ``died``, ``not_started``, ``lost`` (it
    ended elsewhere and left nothing), and ``kept``: it had ended well before, in an earlier run of the sweep.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def queued(self, job: int, overrides: Sequence[str]) -> None:
        """Note a job that waits for its turn."""
        self._add(job, "queued", overrides=without_values(overrides))

    def running(self, job: int, pid: int, folder: Path) -> None:
        """Note a job whose process has been started."""
        self._add(job, "running", pid=pid, folder=str(folder))

    def ended(self, job: int, end: End) -> None:
        """Note the end of a job."""
        if end.code is None:
            self._add(job, "not_started", message=end.last)
        elif end.kept:
            self._add(job, "kept", exit_code=end.code)
        elif end.died_by:
            self._add(job, "died", signal=end.died_by, seconds=round(end.seconds, 3), message=end.last)
        else:
            self._add(job, "ended", exit_code=end.code, seconds=round(end.seconds, 3), message=end.last)

    def lost(self, job: int, message: str) -> None:
        """Note a job that has ended on another machine and left no result."""
        self._add(job, "lost", message=message)

    def _add(self, job: int, state: str, **more: Any) -> None:
        entry = {"job": job, "state": state, "time": round(time.time(), 3), **more}
        append_json(self._path, entry)


def read_ledger(folder: Path) -> dict[int, Mapping[str, Any]]:
    """Return the last entry of each job; nothing where there is no ledger. Broken lines are passed over."""
    return {entry["job"]: entry for entry in json_lines(folder / NAME) if isinstance(entry.get("job"), int)}


def words(entry: Mapping[str, Any]) -> str:
    """Say what an entry means for a job that has no result."""
    last = f": {entry['message']}" if entry.get("message") else ""
    never = "this job was never started"
    return {
        "died": f"this job's process died by {entry.get('signal')}{last}",
        "ended": f"this job's process ended with exit code {entry.get('exit_code')} and without a result{last}",
        "not_started": f"this job could not be started{last}" if last else never,
        "lost": str(entry.get("message")),
        "running": "this job's process was killed together with the sweep's",
    }.get(str(entry.get("state")), never)
