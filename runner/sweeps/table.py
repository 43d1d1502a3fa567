"""The table at the end of a sweep: every job, also one that died without a word or never ran.

Rows come from the jobs' result.json, read after Hydra has returned (or raised): Hydra calls no end-of-sweep hook when a
job's process died, and what a job returns does not reach the caller from another process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rich
from hydra.core.utils import filter_overrides
from rich.table import Column, Table
from rich.text import Text

from runner.cli import finished_jobs
from runner.cli.config.bounded_yaml import read_yaml
from runner.cli.terminal import say
from runner.errors import UsageError
from runner.report.markup import code, cut, text
from runner.report.result import RESULT_NAME, read_result
from runner.status import ENDED_WELL
from runner.sweeps.log import NAME as LEDGER
from runner.sweeps.log import read_ledger, words
from runner.text import listed

_MOST_NAMES = 20
_LONGEST_CELL = 1000
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True)
class Row:
    """One job of a sweep. ``exit_code`` is None where the job left no result.json."""

    job: str
    overrides: tuple[str, ...]
    status: str
    exit_code: int | None = None
    before: int | None = None
    after: int | None = None
    culprits: tuple[str, ...] = ()
    checks: int | None = None
    seconds: float | None = None
    message: str = ""
    folder: str = ""

    @property
    def ended_well(self) -> bool:
        """Whether this job has an answer."""
        return self.exit_code in ENDED_WELL


def traces(folder: Path) -> list[Path]:
    """Return what jobs leave behind below ``folder``: Hydra's record of each, results, and whose they are."""
    return [path for name in ("hydra.yaml", RESULT_NAME, finished_jobs.NAME, LEDGER) for path in folder.rglob(name)]


def rows(folder: Path, planned: Sequence[tuple[str, ...]], before: Mapping[Path, int] | None = None) -> list[Row]:
    """Return a row for each job: for those that were ``planned``, or if none is known for those that left a folder.

    Files that did not change since ``before`` are of an earlier sweep in the same folder; a result that is not noted as
    the job's own is none of it.
    """
    fresh = {path for path in traces(folder) if not before or before.get(path) != path.stat().st_mtime_ns}
    found = _folders(fresh)
    numbers = range(len(planned)) if planned else sorted(found)
    told = read_ledger(folder) if folder / LEDGER in fresh else {}
    table = [_row(n, found.get(n), planned[n] if planned else (), folder, fresh) for n in numbers]
    return [
        replace(row, message=words(told[n])) if row.status in _WITHOUT_RESULT and n in told else row
        for n, row in zip(numbers, table, strict=True)
    ]


def _folders(fresh: AbstractSet[Path]) -> dict[int, Path]:
    """Map job numbers to the folders that Hydra made for them."""
    found = {}
    for path in fresh:
        if path.name != "hydra.yaml" or path.parent.name != ".hydra":
            continue
        number = finished_jobs.number_of(path.parents[1])
        if number is not None:
            found[number] = path.parents[1]
    return found


_WITHOUT_RESULT = ("died", "not run")


def _row(number: int, job: Path | None, overrides: tuple[str, ...], folder: Path, fresh: AbstractSet[Path]) -> Row:
    if job is None:
        return Row(str(number), overrides, "not run", message="this job was never started")
    where = os.path.relpath(job, folder)
    own = not overrides or tuple(filter_overrides(finished_jobs.overrides_of(job) or ())) == overrides
    overrides = overrides or _overrides(job)
    data = read_result(job) if own and {job / RESULT_NAME, job / finished_jobs.NAME} <= fresh else None
    if data is None:
        return Row(str(number), overrides, "died", message="this job's process ended without a result", folder=where)
    nodes, checks, seconds = (_section(data, name) for name in ("nodes", "checks", "seconds"))
    return Row(
        job=str(number),
        overrides=overrides,
        status=str(data.get("status", "?")),
        exit_code=_number(data, "exit_code"),
        before=_number(nodes, "before"),
        after=_number(nodes, "after"),
        culprits=_texts(data.get("culprits")),
        checks=_number(checks, "search"),
        seconds=_number(seconds, "total"),
        message=str(data.get("message", "")),
        folder=where,
    )


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = data.get(name)
    return section if isinstance(section, Mapping) else {}


def _overrides(job: Path) -> tuple[str, ...]:
    try:
        return _texts(read_yaml(job / ".hydra" / "overrides.yaml"))
    except UsageError:
        return ()


def _number(section: Mapping[str, Any], name: str) -> Any:
    value = section.get(name)
    return value if isinstance(value, int | float) else None


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


_HEAD = ("job", "overrides", "status", "exit", "nodes before", "after", "culprits", "checks", "seconds")


def _shared(table: Sequence[Row]) -> tuple[str, ...]:
    """Return the overrides that every one of several jobs has: they tell nothing apart."""
    if len(table) < 2:
        return ()
    return tuple(override for override in table[0].overrides if all(override in row.overrides for row in table))


def _cells(row: Row, shared: tuple[str, ...]) -> tuple[str, ...]:
    own = " ".join(override for override in row.overrides if override not in shared)
    culprits = listed([name.replace("\n", "\\n") for name in row.culprits], _MOST_NAMES)
    values = (row.exit_code, row.before, row.after, culprits, row.checks)
    seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
    return (row.job, own, row.status, *("" if value is None else str(value) for value in values), seconds)


def markdown(table: Sequence[Row]) -> str:
    """Return the table in Markdown; below it what all jobs share, and the messages of those that have no answer."""
    shared = _shared(table)
    return "\n".join([*_lines(table, _escape), *_below(table, shared, code, text)]) + "\n"


def _lines(table: Sequence[Row], cell: Callable[[str], str]) -> list[str]:
    shared = _shared(table)
    lines = ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]
    return [*lines, *("| " + " | ".join(map(cell, _cells(row, shared))) + " |" for row in table)]


def _below(
    table: Sequence[Row], shared: tuple[str, ...], words: Callable[[str], str], message: Callable[[str], str]
) -> list[str]:
    lines = ["", f"All jobs: {words(cut(' '.join(shared), _LONGEST_CELL))}"] if shared else []
    troubled = [
        f"- job {row.job}: {message(cut(row.message, _LONGEST_MESSAGE))}"
        for row in table
        if not row.ended_well and row.message
    ]
    return [*lines, *(["", *troubled] if troubled else [])]


def _escape(cell: str) -> str:
    """Return a cell as it is, or else as a span or as text in which nothing is markup."""
    cell = cut(cell, _LONGEST_CELL)
    return cell if text(cell) == cell else code(cell)


def _plain(value: str) -> str:
    """Return a text as a person types it, on one line: what is shown on a screen is no Markdown."""
    return " ".join(value.split())


def show(table: Sequence[Row]) -> None:
    """Print the table, in color on a terminal. All words are as a person types them; sweep.md has them escaped."""
    console = rich.get_console()
    shared = _shared(table)
    below = "\n".join(_below(table, shared, _plain, _plain))
    if not console.is_terminal:
        say("\n".join(_lines(table, lambda cell: _plain(cut(cell, _LONGEST_CELL)))) + f"\n{below}\n")
        return
    shown = Table(*(Column(name, overflow="fold") for name in _HEAD))
    for row in table:
        shown.add_row(*(Text(cell) for cell in _cells(row, shared)))
    console.print(shown)
    say(below)
