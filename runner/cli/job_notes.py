"""What is noted of the jobs of a sweep.

Beside the result of each: whose it is, and whether it need not run again. In the folder of the sweep: how it stands
with all of them, line by line in a file that is whole after a kill at any moment.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.utils import filter_overrides
from omegaconf import DictConfig

from runner.cli.bounded_yaml import read_yaml
from runner.cli.compose import to_settings
from runner.cli.paths import rooted
from runner.exit_codes import ENDED_WELL, UsageError
from runner.files import append_json, json_lines, json_of, write_text
from runner.jobs.finished_jobs import asked_of, asked_the_same
from runner.report.summary import RESULT_NAME, Summary, read_result

#: beside a job's result: whose it is, and with what settings and files it came about
NAME = "ended.json"
#: in the folder of a sweep: the states of its jobs
LEDGER = "jobs.jsonl"


def note(
    folder: Path,
    exit_code: int,
    overrides: Sequence[str],
    asked: Mapping[str, Any] | None,
    *,
    refused: str | None = None,
) -> None:
    """Write down that a job has ended in ``folder``.

    ``overrides``: by which a sweep knows its jobs. ``asked``: see `asked_of`, when it began; None: it never did.
    ``refused``: why these settings were, where the folder has an answer of other ones, which is kept.
    """
    noted: dict[str, Any] = {"exit_code": exit_code, "overrides": list(overrides), "asked": asked}
    if refused is not None:
        noted = {**_noted(folder), "refused": {"overrides": list(overrides), "message": refused}}
    with suppress(OSError):  # it would only run once more
        write_text(folder / NAME, json.dumps(noted) + "\n")


def ended_well(folder: Path) -> bool:
    """Whether the folder holds an answer of a job of a sweep."""
    code = _noted(folder).get("exit_code")
    return isinstance(code, int) and code in ENDED_WELL and code == (read_result(folder) or Summary()).exit_code


def refusal(folder: Path, overrides: Sequence[str]) -> str | None:
    """Return why the settings given by ``overrides`` were refused last, and the answer before kept; None: not so."""
    refused = _noted(folder).get("refused")
    if not isinstance(refused, dict) or tuple(filter_overrides(refused.get("overrides") or ())) != tuple(overrides):
        return None
    return f"{refused.get('message')} (the answer of the settings before is kept)"


def overrides_of(folder: Path) -> tuple[str, ...] | None:
    """Return the overrides of the job whose result lies in ``folder``; None where no job of a sweep has ended there."""
    overrides = _noted(folder).get("overrides")
    return tuple(map(str, overrides)) if isinstance(overrides, list) else None


def forget(folder: Path) -> None:
    """Begin anew: whatever was noted is of an earlier run."""
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)


def earlier(folder: Path, config: DictConfig) -> Summary | None:
    """Return the result in ``folder``, if ``config`` (of one job) led to it, it is an answer, and no input changed."""
    if not ended_well(folder):
        return None
    try:
        asked = asked_of(rooted(to_settings(config), Path.cwd()))
    except (UsageError, OSError, ValueError):  # the job says so
        return None
    return read_result(folder) if asked_the_same(_noted(folder).get("asked"), asked) else None


def number_of(folder: Path) -> int | None:
    """Return the number that the job in ``folder`` had, as Hydra wrote it down."""
    try:
        return int(read_yaml(folder / ".hydra" / "hydra.yaml")["hydra"]["job"]["num"])
    except (UsageError, ValueError, KeyError, TypeError, IndexError, OverflowError):
        return None


def confirm(folder: Path, overrides: Sequence[str]) -> None:
    """Make the result count as that of this sweep's job with ``overrides``: tables leave out what was there before."""
    noted = {key: value for key, value in _noted(folder).items() if key != "refused"}
    with suppress(OSError):
        write_text(folder / NAME, json.dumps({**noted, "overrides": list(overrides)}) + "\n")
    for path in (folder / ".hydra" / "hydra.yaml", folder / RESULT_NAME):
        with suppress(OSError):
            os.utime(path)


def _noted(folder: Path) -> dict[str, Any]:
    noted = json_of(folder / NAME)
    return noted if isinstance(noted, dict) else {}


# The states of all jobs of a sweep.


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
        self._path = folder / LEDGER

    def note(self, job: int, state: str, **more: Any) -> None:
        """Note the state of a job, and what is known of it."""
        append_json(self._path, {"job": job, "state": state, "time": round(time.time(), 3), **more})

    def ended(self, job: int, end: End) -> None:
        """Note the end of a job."""
        said = f"{end.said}: {end.last}" if end.last else end.said
        self.note(job, end.state, exit_code=end.code, seconds=round(end.seconds, 3), message=said)


def read_ledger(folder: Path) -> dict[int, Mapping[str, Any]]:
    """Return the last entry of each job; nothing where there is no ledger. Broken lines are passed over."""
    return {entry["job"]: entry for entry in json_lines(folder / LEDGER) if isinstance(entry.get("job"), int)}


def words(entry: Mapping[str, Any]) -> str:
    """Say what an entry means for a job that has no result."""
    if entry.get("state") == "running":
        return "this job's process was killed together with the sweep's"
    said = entry.get("message")
    return f"this job left no result. It {said}" if said else "this job was never started"
