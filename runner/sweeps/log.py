"""What is known of a sweep's jobs, line by line in a file that is whole after a kill at any moment."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.files import append_json, json_lines

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
    def state(self) -> str:
        """Its state: see `Ledger`."""
        if self.code is None:
            return "not_started"
        return "kept" if self.kept else "died" if self.code < 0 else "ended"

    @property
    def said(self) -> str:
        """The same in some words."""
        if self.code is None:
            return "could not be started"
        if self.code < 0:
            known = {one.value: one.name for one in signal.Signals}
            return f"died by {known.get(-self.code, f'signal {-self.code}')}"
        return f"{'had ended before' if self.kept else 'ended'} with exit code {self.code}"


class Ledger:
    """The file's writer; one at a time for a sweep's folder, which is locked. Each line is one write.

    States of a job: ``queued``, ``running`` (with its process), ``ended``, ``died``, ``not_started``, ``lost`` (it
    ended elsewhere and left nothing), and ``kept``: it had ended well before, in an earlier run of the sweep.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def note(self, job: int, state: str, **more: Any) -> None:
        """Note the state of a job, and what is known of it."""
        append_json(self._path, {"job": job, "state": state, "time": round(time.time(), 3), **more})

    def ended(self, job: int, end: End) -> None:
        """Note the end of a job."""
        said = f"{end.said}: {end.last}" if end.last else end.said
        self.note(job, end.state, exit_code=end.code, seconds=round(end.seconds, 3), message=said)


def read_ledger(folder: Path) -> dict[int, Mapping[str, Any]]:
    """Return the last entry of each job; nothing where there is no ledger. Broken lines are passed over."""
    return {entry["job"]: entry for entry in json_lines(folder / NAME) if isinstance(entry.get("job"), int)}


def words(entry: Mapping[str, Any]) -> str:
    """Say what an entry means for a job that has no result."""
    if entry.get("state") == "running":
        return "this job's process was killed together with the sweep's"
    said = entry.get("message")
    return f"this job left no result. It {said}" if said else "this job was never started"
