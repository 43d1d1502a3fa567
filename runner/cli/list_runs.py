"""Runs and sweeps are looked at: ``winnow ls``, ``winnow open``, ``winnow status`` and ``winnow diff``.

Nothing is run and nothing is written. A run is named by its folder, which may come from anywhere: what its files hold
is read as data, within bounds.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from runner import run_folder
from runner.cli.bounded_yaml import read_yaml
from runner.cli.next_command import command, resume_command, shown_path
from runner.cli.run_folders import at_work
from runner.cli.terminal import Row, put, say, table, wide_table, width, write
from runner.exit_codes import ENDED_WELL, Status, UsageError
from runner.files import json_lines, json_of, read_plain
from runner.journal.journal import JOURNAL_NAME
from runner.report.diagnosis_sections import in_a_word, reservation, size_of
from runner.report.short_answer import whose_bug
from runner.report.summary import RESULT_NAME, Summary, read_result
from runner.report.typed_json import from_json
from runner.schema.installed_choices import SCHEMAS
from runner.schema.settings import context_of
from runner.text import LARGEST, counted, duration, listed, one_line, program_name, with_inside

WHERE = "outputs"
_ALL = "--all"
_SHOWN = 20
#: folders below each other that are looked through: a date, a time, and one more
_DEEPEST = 4
_HEAD = ("when", "strategy", "model", "status", "answer", "checks", "time", "folder")
_FLEXIBLE = ("model", "answer")
_LONGEST_MESSAGE = 80
_PAGE, _LOG, _JOURNALS = "report.html", "winnow.log", "journal*.jsonl"
_TAIL = 1 << 14
_BEFORE_A_MESSAGE = re.compile(r"\S+ \S+ [A-Z]+ [\w.]+: |(\[[^]]*\]){3} - ")
"""What stands before a message in a log: time, level and module, as Winnow writes them or as Hydra does."""
_OF_TRIALS = ("subject.", "stage", "further")
_LARGEST = 1 << 28
_MOST_SHOWN = 12


def list_runs(words: Sequence[str]) -> int:
    """Print the runs in the folder that the words name, the newest first; return the exit code.

    Those that were refused before their first check are shown with ``--all`` only. Raises UsageError for other words.
    """
    folders = [word for word in words if word != _ALL]
    unknown = [word for word in folders[1:] or folders if word.startswith("-") or word in folders[1:]]
    if unknown:
        raise UsageError(f"ls: {unknown[0]}: give one folder at most ({WHERE} is the default), and {_ALL}")
    top = Path(folders[0] if folders else WHERE)
    if not top.is_dir():
        raise UsageError(f"ls {top}: no such folder. Name the folder that holds your runs: {program_name()} ls FOLDER")
    found = sorted(runs_in(top), key=began, reverse=True)
    shown = found if _ALL in words else list(islice((one for one in found if not _refused(one)), _SHOWN))
    if not found:
        say(f"no runs in {shown_path(top.absolute())}")
        return 0
    put("\n".join(wide_table(_HEAD, list(map(row_of, shown)), width(), _FLEXIBLE)))
    if len(found) > len(shown):
        folder = [] if top == Path(WHERE) else [str(top)]
        say(f"{len(found) - len(shown)} more: {command('ls', *folder, _ALL)}")
    return 0


def row_of(folder: Path) -> tuple[str, ...]:
    """Return the cells of a run or a sweep, as `list_runs` shows them."""
    cells = _sweep(folder) if run_folder.is_sweep(folder) else _run(folder)
    return time.strftime("%m-%d %H:%M", time.localtime(began(folder))), *cells, shown_path(folder)


def state(folder: Path) -> str:
    """Return how it stands with a run or a sweep, in a word or two."""
    return "at work" if at_work(folder) else row_of(folder)[_HEAD.index("status")]


def runs_in(folder: Path, deep: int = 0) -> Iterator[Path]:
    """Yield runs and sweeps in a folder, and in those below it that are none themselves. Links are not followed."""
    if run_folder.is_sweep(folder) or (folder / run_folder.NAME).exists():
        yield folder.absolute()
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


def _run(folder: Path) -> tuple[str, ...]:
    result = read_result(folder)
    if result is None or not result.status:
        marker = run_folder.read(folder)
        left = "cut off" if marker is not None and marker.running else "broken"
        return "", "", "at work" if at_work(folder) else left, "", "", ""
    cost = str(result.checks.made), duration(result.seconds.total)
    return result.strategy, _model(folder, result), result.status, _answer(result), *cost


def _model(folder: Path, result: Summary) -> str:
    """Return the name of the model that was given; one in the folder of the run was made by it."""
    model = Path(result.input_model or "")
    made = model.parent.absolute() == folder.absolute()
    return Path(_about(folder)[1] or model).name if made else model.name


def _answer(result: Summary) -> str:
    if result.culprits:
        named = "; ".join(map(_named, result.answers or (result,)))
        reserved = reservation(result.cause)
        return f"{reserved}: {named}" if reserved else named
    size = f"{result.nodes_after} of {result.nodes_before} {result.unit}" if result.nodes_after is not None else ""
    return result.message[:_LONGEST_MESSAGE] or size


def _named(one: Summary) -> str:
    names = one.culprits
    named = names[0] if len(names) == 1 else f"{len(names)} nodes: {names[0]}" if names else "?"
    return with_inside(named, listed(one.nested, 1), len(names))


def _refused(folder: Path) -> bool:
    """Whether it was refused before anything was checked: a mistake in a command line is no run to come back to."""
    result = None if run_folder.is_sweep(folder) else read_result(folder)
    return result is not None and result.status == Status.usage and not result.checks.made + result.checks.reused


@dataclass(frozen=True)
class _Job:
    """What sweep.json says of a job."""

    status: str = ""
    exit_code: int | None = None
    run: int = 0
    checks: int = 0
    seconds: float = 0.0


def _sweep(folder: Path) -> tuple[str, ...]:
    rows = json_of(folder / "sweep.json")
    jobs = [from_json(_Job, row) for row in rows] if isinstance(rows, list) else []
    if not jobs:
        return "sweep", "", "at work" if at_work(folder) else "cut off", "", "", ""
    ended = sum(job.exit_code in ENDED_WELL for job in jobs)
    interrupted = any(job.status in (Status.interrupted, "not run") for job in jobs)
    status = "ended" if ended == len(jobs) else "interrupted" if interrupted else "failed jobs"
    checks = sum(job.run or job.checks for job in jobs)
    seconds = sum(job.seconds for job in jobs)  # jobs run beside each other
    answer = f"{ended} of {len(jobs)} jobs ended well"
    return "sweep", "", status, answer, str(checks), f"{duration(seconds)} in all"


# One run, or two of them: winnow open, winnow status, winnow diff.


def look(verb: str, words: Sequence[str]) -> int:
    """Do what ``verb`` asks of the runs that the words name; return the exit code.

    Raises UsageError for words that name none, and for too many or too few.
    """
    for word in words:
        if not Path(word).is_dir():
            raise UsageError(f"{verb} {word}: no such folder. {program_name()} ls lists the runs under {WHERE}/")
    count = 2 if verb == "diff" else 1
    if len(words) > count or (verb == "diff" and len(words) < count):
        raise UsageError(f"{verb}: give {'two runs' if count == 2 else 'one run at most'}, by their folders")
    if verb == "diff":
        _diff(*(Path(word).resolve() for word in words))
        return 0
    runs = sorted(runs_in(Path(WHERE)), key=began, reverse=True) if not words and Path(WHERE).is_dir() else []
    live = [one for one in runs if at_work(one)] if verb == "status" else []
    folders = live or runs[:1] or list(map(Path, words))
    if not folders:
        raise UsageError(f"{verb}: no run lies in {WHERE}/. Give the folder of one: {program_name()} {verb} FOLDER")
    for folder in folders:
        (_open if verb == "open" else _say_status)(folder.resolve())
    return 0


def _open(folder: Path) -> None:
    """Print the path of a run's page, and show it in a browser where there is one."""
    page = folder / _PAGE
    if not page.is_file():
        raise UsageError(f"open {shown_path(folder)}: it has no {_PAGE} ({state(folder)}). {onward(folder)}")
    say(shown_path(page))
    screen = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if screen and sys.stdout.isatty():
        webbrowser.open(page.as_uri())


# How it stands with a run: at work, interrupted or ended.


def onward(folder: Path) -> str:
    """Return the one command that fits how it stands with a run: look at it, or go on."""
    if at_work(folder):
        return command("status", shown_path(folder))
    result = read_result(folder)
    if result is not None and result.exit_code >= 0 and result.status != "interrupted":
        return command(shown_path(folder))
    return resume_command(folder)


def _say_status(folder: Path) -> None:
    """Say what a run is about, how many checks it has made, and what it does now, or the command that fits."""
    kind, model = _about(folder)
    checks = sum(1 for _ in verdicts(folder))
    now = state(folder)
    busy = now == "at work"
    since = f" in {duration(time.time() - began(folder))}" if busy else ""
    log = read_plain(folder / _LOG, _LARGEST)[-_TAIL:].decode("utf-8", "replace").splitlines()
    rows = [Row("now", one_line(_BEFORE_A_MESSAGE.sub("", log[-1])))] if busy and log else []
    what = f"{kind} of {Path(model).name}" if model else kind
    rows += [Row("folder" if busy else "next", shown_path(folder) if busy else onward(folder), whole=True)]
    stands = now if busy else f"ended ({now})"
    write(f"{stands}: {what}, {counted(checks, 'check')}{since}", rows, "good" if busy else "strong")


def _about(folder: Path) -> tuple[str, str]:
    """Return the strategy and the model of a run, as its settings say."""
    if run_folder.is_sweep(folder):
        return "a sweep", ""
    try:
        held = read_yaml(folder / ".hydra" / "config.yaml")
        return str(held["strategy"]["name"]), str(held["model"] or "")
    except (UsageError, KeyError, TypeError):
        result = read_result(folder)
        return (result.strategy, result.input_model or "") if result else ("a run", "")


def verdicts(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what each check of a run said, with a key that is the same in a run about the same model."""
    # a run's own journal before those of its parts, which are about other models
    for path in sorted(folder.rglob(_JOURNALS), key=lambda one: (one.parent, one.name != JOURNAL_NAME, one.name)):
        place, subject = path.relative_to(folder).parent.as_posix(), ""
        for held in json_lines(path):
            if isinstance(context := held.get("context"), dict):  # the first line: what a trial's key stands for
                subject = json.dumps([(name, context[name]) for name in sorted(context) if name.startswith(_OF_TRIALS)])
            if isinstance(held.get("verdict"), dict):
                yield f"{place} {subject} {held.get('key')} {held.get('attempt')} {held.get('phase')}", held


# What two runs say otherwise.


def _diff(*pair: Path) -> None:
    """Print what two runs found otherwise: in the answer, in what they ran on, in values of outputs, in verdicts."""
    results = [read_result(one) for one in pair]
    for folder, result in zip(pair, results, strict=True):
        if result is None or not result.status:
            raise UsageError(f"diff {shown_path(folder)}: it has no {RESULT_NAME} ({state(folder)}). {onward(folder)}")
    told = [
        dict(_facts(result)) | dict(_values(folder)) for folder, result in zip(pair, results, strict=True) if result
    ]
    names = [name for name in dict.fromkeys((*told[0], *told[1])) if told[0].get(name) != told[1].get(name)]
    names.sort(key=lambda name: name.startswith("error of "))
    # a check of another kind has other settings: of these only those tell something that were set
    names = [name for name in names if all(name in one for one in told) or any(_tells(one, name) for one in told)]
    rows = [(name, told[0].get(name, "-"), told[1].get(name, "-")) for name in names]
    head = ("", *map(shown_path, pair))
    put("\n".join(table(head, rows, width(), flexible=head[1:])) if rows else "the same answer, versions and values")
    here, there = (dict(verdicts(folder)) for folder in pair)
    both = here.keys() & there.keys()
    if len({result.context.get("subject.graph") for result in results if result}) == 1 and both:
        other = [key for key in here if key in both and _outcome(here[key]) != _outcome(there[key])]
        say(f"{counted(len(both), 'check')} in both; {len(other) or 'none'} ended otherwise")
        for key in other[:_MOST_SHOWN]:
            say(f"  {one_line(here[key].get('label') or key)}: {_outcome(here[key])}, then {_outcome(there[key])}")


def _tells(told: Mapping[str, str], name: str) -> bool:
    """Whether what only one of two runs has says something: a setting that has its usual value does not."""
    section, dot, key = name.partition(".")
    kind = SCHEMAS.get(section, {}).get(told.get(f"{section}.name", ""))
    usual = context_of(kind()).get(key) if kind else None
    return name in told and (not dot or (kind is not None and told[name] != one_line(str(usual))))


def _outcome(line: Mapping[str, Any]) -> str:
    return str(line["verdict"].get("outcome")).upper()


def _facts(result: Summary) -> Iterator[tuple[str, str]]:
    """Yield what a result says, a row each."""
    failure = result.signature
    yield "status", result.status
    yield "answer", listed(result.culprits, _MOST_SHOWN)
    yield "failure", f"{failure.stage}: {failure.kind}" if failure else ""
    yield "whose bug", whose_bug(result) or result.whose or ""
    yield "cause", in_a_word(result.cause) if result.cause else ""
    yield "minimality", result.minimality or ""
    yield "message", one_line(result.message)
    yield "model", shown_path(Path(result.input_model or ""))
    yield "check", one_line(result.check)
    yield "checks", str(result.checks.made)
    yield from ((f"version of {name}", str(version)) for name, version in result.versions.items())
    for name, text in result.context.items():
        with suppress(ValueError, AttributeError, RecursionError):  # a text, or a damaged file
            held = json.loads(text).items() if name.startswith("check.") else ()
            yield from ((f"{name.removeprefix('check.')}.{key}", one_line(str(value))) for key, value in held)


def _values(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield how far each output of the whole model was off, in tolerances, where the check compared them."""
    for _, line in verdicts(folder):
        rows = line["verdict"].get("metrics", {})
        rows = rows.get("table") if isinstance(rows, dict) else None
        if isinstance(rows, list):
            for row in rows:
                if isinstance(row, dict) and isinstance(size := row.get("of_limit"), (int, float)):
                    said = f"{size:.3g}" if size < LARGEST else size_of(str(row.get("kind")), None)
                    yield f"error of {one_line(str(row.get('tensor')))}, in tolerances", said
            return
