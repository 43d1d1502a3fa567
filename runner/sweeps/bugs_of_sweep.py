"""The last step of a sweep of triages: its failures as bugs, in a run of its own, and bugs.md in the sweep's folder."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.cli.path_overrides import quote
from runner.errors import WinnowError
from runner.files import write_text
from runner.judgment import ANSWERED, Status
from runner.report.diagnosis_sections import BUGS_NAME, bugs_page
from runner.report.result_parts import KnownBug
from runner.report.summary import read_result
from runner.text import program_words

FOLDER = "bugs"
_WELL = (Status.nothing_to_find, Status.planned)
_GROUPED = (*ANSWERED, Status.could_not_judge)
_WINNOW = Path(__file__).resolve().parents[1]


class NotGroupedError(WinnowError):
    """The failures of a sweep could not be grouped."""


def write_bugs(sweep: Path, jobs: Sequence[Path], *, silent: bool) -> Path | None:
    """Group what the jobs in these folders found, and return the path of bugs.md; None where no triage found anything.

    Raises NotGroupedError that says why there is none, and how to try again. Native code stays out of this process, so
    another one does it.
    """
    results = {job: result for job in jobs if (result := read_result(job))}
    found = [job for job, one in results.items() if one.strategy == "triage" and one.status not in _WELL]
    if not any(results[job].signature for job in found):
        return None
    folder = _free(sweep, jobs)
    try:
        bugs, apart = _grouped(folder, found, silent=silent)
        page = bugs_page([_seen_from_above(one, folder) for one in bugs], [_from_above(one, folder) for one in apart])
        write_text(sweep / BUGS_NAME, page)
    except OSError as error:
        raise _not_written(sweep, f"{error.strerror or error}") from error
    except NotGroupedError as error:
        raise _not_written(sweep, str(error)) from error
    return sweep / BUGS_NAME


def _not_written(sweep: Path, why: str) -> NotGroupedError:
    again = shlex.join([*program_words(), "bugs", str(sweep)])
    return NotGroupedError(f"{BUGS_NAME} was not written, because {why}; to try again: {again}")


def _free(sweep: Path, jobs: Sequence[Path]) -> Path:
    """Return a folder in the sweep's that no job lies in."""
    taken = {part for job in jobs for part in (job, *job.parents)}
    names = (FOLDER, *(f"{FOLDER}-{number}" for number in range(1, len(taken) + 2)))
    return next(sweep / name for name in names if sweep / name not in taken)


def _grouped(folder: Path, jobs: Sequence[Path], *, silent: bool) -> tuple[tuple[KnownBug, ...], tuple[str, ...]]:
    """Return the bugs, and why other failures are in none; paths as they are seen from ``folder``."""
    # a word for each job: the system limits the length of one
    words = ["bugs", *(str(job.absolute()) for job in jobs), f"hydra.run.dir={quote(str(folder))}"]
    words += [f"resume={quote(str(folder))}"] if folder.is_dir() else []
    quiet = ["verbosity=silent" if silent else "verbosity=warning"]
    argv = [sys.executable, str(_WINNOW), *words, *quiet]
    code = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL).returncode
    result = read_result(folder)
    if code not in [status.exit_code for status in _GROUPED] or result is None or result.status not in _GROUPED:
        raise NotGroupedError(f"strategy=bugs in {folder} ended with {code}")
    return result.bugs, result.warnings


def _seen_from_above(bug: KnownBug, folder: Path) -> KnownBug:
    """Return a bug with paths as they are seen from the sweep's folder."""

    def up(path: str) -> str:
        return os.path.normpath(f"{folder.name}/{path}")

    evidence = tuple(replace(one, failure=up(one.failure)) for one in bug.evidence)
    return replace(bug, failures=tuple(map(up, bug.failures)), smallest=up(bug.smallest), evidence=evidence)


def _from_above(warning: str, folder: Path) -> str:
    """Return a line that begins with a failure's path, likewise."""
    path, sign, why = warning.partition(": ")
    return f"{os.path.normpath(f'{folder.name}/{path}')}{sign}{why}" if path.startswith("../") else warning
