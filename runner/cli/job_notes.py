"""The note beside the result of each job of a sweep: whose it is, and whether it need not run again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.utils import filter_overrides
from omegaconf import DictConfig

from runner.cli.bounded_yaml import read_yaml
from runner.cli.compose import to_settings
from runner.cli.paths import rooted
from runner.files import json_of, write_text
from runner.judgment import ENDED_WELL, UsageError
from runner.reference.finished_before import asked_of, asked_the_same
from runner.report.summary import RESULT_NAME, Summary, read_result

#: beside a job's result: whose it is, and with what settings and files it came about
NAME = "ended.json"


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
