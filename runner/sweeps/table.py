"""The end of a sweep: the table and the page of its jobs, also of one that died without a word, and bugs.md.

Rows come from the jobs' result.json, read after Hydra has returned (or raised): Hydra calls no end-of-sweep hook when a
job's process died, and what a job returns does not reach the caller from another process.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from hydra.core.utils import filter_overrides

from runner.cli import job_notes, terminal
from runner.cli.bounded_yaml import read_yaml
from runner.cli.job_notes import LEDGER, read_ledger, words
from runner.cli.next_command import command as typed
from runner.cli.paths_in_configs import quote
from runner.cli.terminal import say
from runner.exit_codes import ANSWERED, ENDED_WELL, FAILED_JOBS, Status, UsageError, WinnowError
from runner.files import inside, write_text
from runner.report.diagnosis_sections import BUGS_NAME, proof, reservation
from runner.report.document import cut
from runner.report.markup import code
from runner.report.markup import text as escaped
from runner.report.page.data import Page, PageJob
from runner.report.page.html import write_page
from runner.report.page.run_page import PAGE_NAME, fitted, made_now, program_of, version
from runner.report.summary import RESULT_NAME, Summary, read_result
from runner.text import counted, listed, short, with_inside, without_values

_MOST_NAMES = 20
_MOST_SHOWN, _LONGEST_SHOWN = 3, 60
_LONGEST_CELL = 1000
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True)
class Row:
    """One job of a sweep. ``exit_code`` is None where the job left no result.json.

    ``asked``: verdicts that its run asked for, of which it has ``run`` checks for (``trust`` of them to trust the
    answer) and ``reused`` the others. ``reservation``: what has to be said with the culprits; "": nothing.
    ``others``: the culprits of each further answer.
    """

    job: str
    overrides: tuple[str, ...]
    status: str
    exit_code: int | None = None
    before: int | None = None
    after: int | None = None
    culprits: tuple[str, ...] = ()
    nested: tuple[str, ...] = field(default=(), kw_only=True)
    checks: int | None = None
    seconds: float | None = None
    message: str = ""
    folder: str = ""
    asked: int | None = None
    run: int | None = None
    reused: int | None = None
    trust: int | None = None
    reservation: str = ""
    others: tuple[tuple[str, ...], ...] = ()

    @property
    def ended_well(self) -> bool:
        """Whether this job has an answer."""
        return self.exit_code in ENDED_WELL


def traces(folder: Path) -> list[Path]:
    """Return what jobs leave behind below ``folder``: Hydra's record of each, results, and whose they are."""
    return [path for name in ("hydra.yaml", RESULT_NAME, job_notes.NAME, LEDGER) for path in folder.rglob(name)]


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
    table = [
        replace(row, message=words(told[n])) if row.status in _WITHOUT_RESULT and n in told else row
        for n, row in zip(numbers, table, strict=True)
    ]
    return [replace(row, overrides=tuple(without_values(row.overrides))) for row in table]


def _folders(fresh: AbstractSet[Path]) -> dict[int, Path]:
    """Map job numbers to the folders that Hydra made for them."""
    found = {}
    for path in fresh:
        if path.name != "hydra.yaml" or path.parent.name != ".hydra":
            continue
        number = job_notes.number_of(path.parents[1])
        if number is not None:
            found[number] = path.parents[1]
    return found


_WITHOUT_RESULT = ("died", "not run")


def _row(at: int, job: Path | None, overrides: tuple[str, ...], folder: Path, fresh: AbstractSet[Path]) -> Row:
    if job is None:
        return Row(str(at), overrides, "not run", message="this job was never started")
    where = os.path.relpath(job, folder)
    if overrides and job / job_notes.NAME in fresh and (why := job_notes.refusal(job, overrides)):
        code = Status.usage.exit_code
        return Row(str(at), overrides, str(Status.usage), code, message=why, folder=where)
    own = not overrides or tuple(filter_overrides(job_notes.overrides_of(job) or ())) == overrides
    overrides = overrides or _overrides(job)
    data = read_result(job) if own and {job / RESULT_NAME, job / job_notes.NAME} <= fresh else None
    if data is None:
        return Row(str(at), overrides, "died", message="this job's process ended without a result", folder=where)
    checks, run = data.checks, data.checks.made
    return Row(
        job=str(at),
        overrides=overrides,
        status=data.status or "?",
        exit_code=data.exit_code if data.exit_code >= 0 else None,
        before=data.nodes_before,
        after=data.nodes_after,
        culprits=data.culprits,
        nested=data.nested,
        checks=checks.search,
        seconds=data.seconds.total,
        message=data.message,
        folder=where,
        asked=run + checks.reused,
        run=run,
        reused=checks.reused,
        trust=checks.trust,
        reservation=reservation(data.cause),
        others=tuple(one.culprits for one in data.answers[1:]),
    )


def _overrides(job: Path) -> tuple[str, ...]:
    try:
        words = read_yaml(job / ".hydra" / "overrides.yaml")
        return tuple(map(str, words)) if isinstance(words, list) else ()
    except UsageError:
        return ()


_HEAD = ("job", "status", "nodes", "asked", "run", "reused", "confirm", "seconds", "culprits", "overrides")


def _shared(table: Sequence[Row]) -> tuple[str, ...]:
    """Return the overrides that every one of several jobs has: they tell nothing apart."""
    if len(table) < 2:
        return ()
    others = (override for override in table[0].overrides if not override.startswith("resume="))
    return tuple(override for override in others if all(override in row.overrides for row in table))


def _own(row: Row, shared: tuple[str, ...]) -> list[str]:
    return [one for one in row.overrides if one not in shared and not one.startswith("resume=")]


def _cells(row: Row, shared: tuple[str, ...], shown: Callable[[str], str], most: int) -> tuple[str, ...]:
    """Return a row of the table; ``shown``: names in it, of which there are at ``most`` so many."""
    nodes = _shown(row.before) if row.after is None else f"{row.after} of {row.before}"
    counts = map(_shown, (row.asked, row.run, row.reused, row.trust))
    culprits = _named(row, shown, most)
    return row.job, row.status, nodes, *counts, _seconds(row), culprits, " ".join(_own(row, shared))


def _named(row: Row, shown: Callable[[str], str], most: int) -> str:
    names, nested = (listed([*map(shown, some)], most) for some in (row.culprits, row.nested))
    culprits = with_inside(names, nested, len(row.culprits))
    culprits = "; ".join([culprits, *(listed([*map(shown, some)], most) for some in row.others)])
    return f"{row.reservation}: {culprits}" if row.reservation and culprits else culprits


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _seconds(row: Row) -> str:
    return "" if row.seconds is None else f"{row.seconds:.1f}"


def markdown(table: Sequence[Row]) -> str:
    """Return the table in Markdown; below it what all jobs share, and the messages of those that have no answer."""
    shared = _shared(table)
    cells = (_cells(row, shared, lambda name: name.replace("\n", "\\n"), _MOST_NAMES) for row in table)
    rows_of_it = [_HEAD, *(map(_escape, row) for row in cells)]
    first, *others = ("| " + " | ".join(row) + " |" for row in rows_of_it)
    return "\n".join([first, "|" + "---|" * len(_HEAD), *others, *_below(table, shared, code, escaped)]) + "\n"


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
    return cell if escaped(cell) == cell else code(cell)


def _plain(value: str) -> str:
    """Return a text as a person types it, on one line: what is shown on a screen is no Markdown."""
    return " ".join(value.split())


def screen(table: Sequence[Row], columns: int | None) -> list[str]:
    """Return the lines that are shown, all words as a person types them; ``columns``: of the terminal, None: none."""
    shared = _shared(table)
    cells = [_cells(row, shared, lambda name: short(name, _LONGEST_SHOWN), _MOST_SHOWN) for row in table]
    if columns:
        cells = [(*row, short(_plain(typed), columns - 5)) for *row, typed in cells]
    lines = terminal.wide_table(_HEAD, cells, columns, flexible=("culprits",))

    def words(value: str) -> str:
        return short(_plain(value), 3 * columns) if columns else _plain(value)

    return [*lines, *_below(table, shared, words, words), ""]


def written(folder: Path, table: Sequence[Row], command: Sequence[str], *, silent: bool) -> int:
    """Show the table of a sweep in ``folder``, and write it with its page and bugs.md; return the exit code."""
    code = 0 if table and all(row.ended_well for row in table) else FAILED_JOBS
    if not silent:
        say("\n".join(screen(table, terminal.width())))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps([asdict(row) for row in table], indent=2, ensure_ascii=False)
        write_text(folder / "sweep.json", content + "\n")
        write_text(folder / "sweep.md", markdown(table))
    except OSError as error:
        say(f"winnow: sweep.json and sweep.md: {error.strerror or error} (in {folder})", error=True)
        return code or Status.usage.exit_code
    try:
        write_page(folder, sweep_page(folder, table, command))
    except Exception as error:  # noqa: BLE001 - the answers are there, and sweep.md says the same
        say(f"winnow: report.html: {type(error).__name__}: {error} (in {folder})", error=True)
    bugs = None
    if not any(row.exit_code is None or row.status == Status.interrupted for row in table):
        try:
            bugs = write_bugs(folder, [folder / row.folder for row in table], silent=silent)
        except NotGroupedError as error:
            say(f"winnow: {error}", error=True)
    if not silent:
        grouped = [f"failures grouped into bugs: {bugs}"] if bugs else []
        well = f"{sum(row.ended_well for row in table)} of {len(table)} jobs ended well: {folder / 'sweep.md'}"
        say("\n".join([*grouped, well]))
    return code


# The page of a sweep: its jobs side by side, each with a link to the page of its own.

_LONGEST_WARNING, _LONGEST_ANSWER = 1000, 200
_TRUSTED = ("preflight", "control", "recheck", "samples", "repeats")


def sweep_page(folder: Path, table: Sequence[Row], command: Sequence[str] = ()) -> Page:
    """Return the page. ``command``: what was typed."""
    shared = _shared(table)
    jobs = [_job(folder, row, shared) for row in table]
    well, many = sum(row.ended_well for row in table), counted(len(table), "job")
    ends = Counter(row.status.replace("_", " ") for row in table)
    status = ", ".join(f"{number} {end}" for end, number in ends.items())
    asked, run, reused = (sum(job[key] or 0 for job in jobs) for key in ("asked", "run", "reused"))
    facts = [
        ["jobs", f"{len(table)}, of which {well} ended well"],
        ["all jobs", shlex.join(shared)],
        ["checks", f"{asked} asked, {run} run, {reused} reused"],
        ["seconds", f"{sum(job['seconds'] or 0.0 for job in jobs):.1f}, of all jobs together"],
    ]
    troubled = [
        f"job {row.job}: {row.message[:_LONGEST_WARNING]}" for row in table if not row.ended_well and row.message
    ]
    interrupted = any(row.exit_code == Status.interrupted.exit_code for row in table)
    return fitted(
        Page(
            kind="sweep",
            title=f"sweep of {many}",
            made=made_now(),
            version=version(),
            verdict=f"{well} of {many} ended well: {status}",
            status="" if ends.keys() == {str(Status.found)} else status,
            labels=["interrupted"] if interrupted else [],
            facts=[fact for fact in facts if fact[1]],
            warnings=troubled,
            commands=_commands(folder, table, command),
            jobs=jobs,
        )
    )


def _commands(folder: Path, table: Sequence[Row], command: Sequence[str]) -> list[list[str]]:
    if not command:
        return []
    found = [("Run it again", without_values(command))]
    if not all(row.ended_well for row in table):
        found.append(("Run the jobs that have no answer", [*program_of(command), "resume", str(folder)]))
    kept = [place for row in table if (place := _place(folder, row)) and _result(place, row).model]
    if kept:
        words = map(str, kept if len(kept) <= _MOST_NAMES else {place.parent: None for place in kept})
        found.append(("Check the kept models again", [*program_of(command), "recheck", *words]))
    return [[what, shlex.join(words)] for what, words in found]


def _place(folder: Path, row: Row) -> Path | None:
    """Return the folder of a job; None where it has none below the sweep's."""
    return folder / row.folder if row.folder and inside(folder / row.folder, folder) else None


def _result(place: Path | None, row: Row) -> Summary:
    return (read_result(place) if place and row.exit_code is not None else None) or Summary()


def _job(folder: Path, row: Row, shared: tuple[str, ...]) -> PageJob:
    place = _place(folder, row)
    result = _result(place, row)
    ran = row.exit_code not in (None, Status.usage.exit_code)
    asked, run, reused = (count or 0 if ran else None for count in (row.asked, row.run, row.reused))
    shown = [f"{number} {name}" for name in _TRUSTED if (number := getattr(result.checks, name))]
    trust = [result.minimality, proof(result.cause) if result.cause else None]
    return {
        "number": row.job,
        "overrides": _own(row, shared),
        "status": row.status,
        "exit_code": -1 if row.exit_code is None else row.exit_code,
        "answer": _answer(row),
        "trust": ", ".join([*filter(None, trust), *shown]),
        "asked": asked,
        "run": run,
        "reused": reused,
        "seconds": row.seconds or 0.0 if ran else None,
        "page": f"{row.folder}/{PAGE_NAME}" if place and (place / PAGE_NAME).is_file() else "",
    }


def _answer(row: Row) -> str:
    names = _named(row, str, _MOST_NAMES)
    of = f" ({row.after} of {row.before} nodes)" if row.after is not None and row.before else ""
    return f"{names}{of}" if names else row.message.partition("\n")[0][:_LONGEST_ANSWER]


# The last step of a sweep of triages: its failures as bugs, in a run of its own, and bugs.md in the sweep's folder.

FOLDER = "bugs"
_WELL = (Status.nothing_to_find, Status.planned)
_GROUPED = (*ANSWERED, Status.could_not_judge)
_WINNOW = Path(__file__).resolve().parents[1]


class NotGroupedError(WinnowError):
    """The failures of a sweep could not be grouped."""


def write_bugs(sweep: Path, jobs: Sequence[Path], *, silent: bool) -> Path | None:
    """Group what the jobs in these folders found, and return the path of bugs.md; None where no triage found anything.

    Raises NotGroupedError that says why there is none, and how to try again. Native code stays out of this process, so
    another one does it, which writes the page of the sweep that its folder lies in as well.
    """
    results = {job: result for job in jobs if (result := read_result(job))}
    found = [job for job, one in results.items() if one.strategy == "triage" and one.status not in _WELL]
    if not any(results[job].signature for job in found):
        return None
    folder = _free(sweep, jobs)
    # a word for each job: the system limits the length of one
    words = ["bugs", *(str(job.absolute()) for job in found), f"hydra.run.dir={quote(str(folder))}"]
    words += [f"resume={quote(str(folder))}"] if folder.is_dir() else []
    argv = [sys.executable, str(_WINNOW), *words, "verbosity=silent" if silent else "verbosity=warning"]
    code: int | str | None
    try:
        code = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL).returncode
    except OSError as error:  # there are too many
        code = error.strerror
    result = read_result(folder)
    if code not in [status.exit_code for status in _GROUPED] or result is None or result.status not in _GROUPED:
        raise NotGroupedError(
            f"{BUGS_NAME} was not written, because strategy=bugs in {folder} ended with {code}; to try again: "
            f"{typed('bugs', str(sweep))}"
        )
    return sweep / BUGS_NAME


def _free(sweep: Path, jobs: Sequence[Path]) -> Path:
    """Return a folder in the sweep's that no job lies in."""
    taken = {part for job in jobs for part in (job, *job.parents)}
    names = (FOLDER, *(f"{FOLDER}-{number}" for number in range(1, len(taken) + 2)))
    return next(sweep / name for name in names if sweep / name not in taken)
