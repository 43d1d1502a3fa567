"""Subject `engine`: the model, built anew; a trial is the number of an iteration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.candidate import Candidate
from runner.jobs.repeat.command import Command
from strategies.trial import Trial

REQUEST = "request.json"
"""What a build is asked about tactics, in the candidate's folder (see `runner.backends.trt.pin_tactics`)."""
CACHE = "timing.cache"


def write_request(folder: Path, *, load: Sequence[Path], pins: Mapping[str, str], save: Path | None) -> None:
    """Write what the build in ``folder`` is asked: pins forbid that anything is timed."""
    asked: dict[str, Any] = {
        "load": [str(path) for path in load],
        "pins": dict(pins),
        "save": str(save) if save else None,
        "error_on_miss": bool(pins),
    }
    (folder / REQUEST).write_text(json.dumps(asked), encoding="utf-8")


@dataclass(frozen=True)
class Engine(Command):
    """Repeats a build: each starts with an empty timing cache, so that all tactics are timed again."""

    def identity(self) -> dict[str, str]:
        """Return nothing more than the kind: the run's context says which model it is."""
        return {"kind": "engine"}

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the model, to be built."""
        write_request(folder, load=(), pins={}, save=folder / CACHE)
        return super().make(trial, folder)
