"""``winnow ls``: the runs and sweeps below a folder, the newest first, with how they ended.

Those that were refused before their first check are shown with ``--all`` only.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runner import run_folder
from runner.cli.last_screen import duration
from runner.cli.next_command import shown_path
from runner.cli.run_folders import at_work
from runner.cli.terminal import printable, put, table, width
from runner.errors import UsageError
from runner.files import json_of
from runner.judgment import ENDED_WELL, Status
from runner.report.cause_section import reservation
from runner.report.summary import Summary, read_result
from runner.report.typed_json import from_json
from runner.text import listed, program_name, program_words, with_inside

WHERE = "outputs"
_ALL = "--all"
_SHOWN = 20
#: folders below each other that are looked through: a date, a time, and one more
_DEEPEST = 4
_HEAD = ("when", "strategy", "model", "status", "answer", "checks", "time", "folder")
_OF_A_SWEEP = ("multirun.yaml", "sweep.json", "jobs.jsonl")
_FLEXIBLE = ("model", "answer")
_LONGEST_MESSAGE = 80


@dataclass(frozen=True)
class Found:
    """A folder of a run or a sweep. ``began``: seconds since 1970, as far as its files tell."""

    folder: Path
    began: float
    sweep: bool


def list_runs(words: Sequence[str]) -> int:
    """Print the runs in the folder that the words name; return the exit code. Raises UsageError for other words."""
    folders = [word for word in words if word != _ALL]
    unknown = [word for word in folders[1:] or folders if word.startswith("-") or word in folders[1:]]
    if unknown:
        raise UsageError(f"ls: {unknown[0]}: give one folder at most ({WHERE} is the default), and {_ALL}")
    top = Path(folders[0] if folders else WHERE)
    if not top.is_dir():
        raise UsageError(f"ls {top}: no such folder. Give one that runs lie in: {program_name()} ls FOLDER")
    found = sorted(runs_in(top), key=lambda one: one.began, reverse=True)
    shown = found if _ALL in words else list(islice((one for one in found if not _refused(one)), _SHOWN))
    if not found:
        put(printable(f"no runs in {shown_path(top.absolute())}"))
        return 0
    cells = list(map(row_of, shown))
    put("\n".join(lines_of(cells, width())))
    if len(found) > len(shown):
        folder = [] if top == Path(WHERE) else [str(top)]
        more = shlex.join([*program_words(), "ls", *folder, _ALL])
        put(printable(f"{len(found) - len(shown)} more: {more}"))
    return 0


def row_of(one: Found) -> tuple[str, ...]:
    """Return the cells of a run or a sweep, as `list_runs` shows them."""
    return _sweep(one) if one.sweep else _run(one)


def state(folder: Path) -> str:
    """Return how it stands with a run or a sweep, in a word or two."""
    sweep = (folder / _OF_A_SWEEP[0]).exists()
    return "at work" if at_work(folder) else row_of(Found(folder, 0.0, sweep))[_HEAD.index("status")]


def lines_of(cells: Sequence[Sequence[str]], columns: int | None) -> list[str]:
    """Return the table; where it is wider than the terminal each folder stands below its row, to be copied whole."""
    lines = table(_HEAD, cells, columns, flexible=_FLEXIBLE)
    if columns is None or max(map(len, lines)) <= columns:
        return lines
    first, *others = table(_HEAD[:-1], [row[:-1] for row in cells], columns, flexible=_FLEXIBLE)
    return [
        first,
        *(part for line, row in zip(others, cells, strict=True) for part in (line, f"    {printable(row[-1])}")),
    ]


def runs_in(folder: Path, deep: int = 0) -> Iterator[Found]:
    """Yield runs and sweeps in a folder, and in those below it that are none themselves. Links are not followed."""
    sweep = any((folder / name).exists() for name in _OF_A_SWEEP)
    if sweep or (folder / run_folder.NAME).exists():
        yield Found(folder.absolute(), began(folder), sweep)
        return
    if deep == _DEEPEST:
        return
    try:
        below = [Path(one.path) for one in os.scandir(folder) if one.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for one in below:
        yield from runs_in(one, deep + 1)


def began(folder: Path) -> float:
    """Return when a run began, in seconds since 1970, as far as its files tell; 0 where they do not."""
    for name in (".hydra/config.yaml", "multirun.yaml", run_folder.NAME):
        try:
            return (folder / name).lstat().st_mtime
        except OSError:  # noqa: PERF203 - three of them
            continue
    return 0.0


def _run(one: Found) -> tuple[str, ...]:
    result = read_result(one.folder)
    if result is None or not result.status:
        status = "at work" if at_work(one.folder) else "cut off" if _began_work(one.folder) else "broken"
        return (_when(one), "", "", status, "", "", "", shown_path(one.folder))
    return (
        _when(one),
        result.strategy,
        Path(result.input_model or "").name,
        result.status,
        _answer(result),
        *_cost(result),
        shown_path(one.folder),
    )


def _answer(result: Summary) -> str:
    if names := result.culprits:
        named = names[0] if len(names) == 1 else f"{len(names)} nodes: {names[0]}"
        named = with_inside(named, len(names), listed(result.nested, 1))
        reserved = reservation(result.cause)
        return f"{reserved}: {named}" if reserved else named
    size = f"{result.nodes_after} of {result.nodes_before} nodes" if result.nodes_after is not None else ""
    return result.message[:_LONGEST_MESSAGE] or size


def _cost(result: Summary) -> tuple[str, str]:
    return str(result.checks.made), duration(result.seconds.total)


def _refused(one: Found) -> bool:
    """Whether it was refused before anything was checked: a mistake in a command line is no run to come back to."""
    result = None if one.sweep else read_result(one.folder)
    return result is not None and result.status == Status.usage and not result.checks.made + result.checks.reused


@dataclass(frozen=True)
class _Job:
    """What sweep.json says of a job."""

    status: str = ""
    exit_code: int | None = None
    run: int = 0
    checks: int = 0
    seconds: float = 0.0


def _sweep(one: Found) -> tuple[str, ...]:
    rows = json_of(one.folder / "sweep.json")
    jobs = [from_json(_Job, row) for row in rows] if isinstance(rows, list) else []
    if not jobs:
        status = "at work" if at_work(one.folder) else "cut off"
        return (_when(one), "sweep", "", status, "", "", "", shown_path(one.folder))
    ended = sum(job.exit_code in ENDED_WELL for job in jobs)
    interrupted = any(job.status in (Status.interrupted, "not run") for job in jobs)
    status = "ended" if ended == len(jobs) else "interrupted" if interrupted else "failed jobs"
    checks = sum(job.run or job.checks for job in jobs)
    seconds = sum(job.seconds for job in jobs)  # jobs run beside each other
    answer = f"{ended} of {len(jobs)} jobs ended well"
    return (_when(one), "sweep", "", status, answer, str(checks), f"{duration(seconds)} in all", shown_path(one.folder))


def _when(one: Found) -> str:
    return time.strftime("%m-%d %H:%M", time.localtime(one.began))


def _began_work(folder: Path) -> bool:
    marker = run_folder.read(folder)
    return marker is not None and marker.running
