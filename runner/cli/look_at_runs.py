"""``winnow open``, ``winnow status`` and ``winnow diff``: looking at runs that are at work, or have ended.

Nothing is run and nothing is written. A run is named by its folder, which may come from anywhere: what its files hold
is read as data, within bounds.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.cli.bounded_yaml import read_yaml
from runner.cli.last_screen import duration
from runner.cli.list_runs import WHERE, began, runs_in, state
from runner.cli.next_command import resume_command, shown_path
from runner.cli.run_folders import at_work
from runner.cli.terminal import Row, put, say, table, width, write
from runner.errors import UsageError
from runner.files import read_plain
from runner.report.cause_section import in_a_word
from runner.report.summary import RESULT_NAME, Summary, read_result
from runner.text import counted, listed, one_line, program_name, program_words

_PAGE, _LOG, _JOURNALS = "report.html", "winnow.log", "journal*.jsonl"
_TAIL = 1 << 14
_LARGEST = 1 << 28
_SHOWN = 12


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
    runs = sorted(runs_in(Path(WHERE)), key=lambda one: -one.began) if not words and Path(WHERE).is_dir() else []
    live = [one.folder for one in runs if at_work(one.folder)] if verb == "status" else []
    folders = live or [one.folder for one in runs[:1]] or list(map(Path, words))
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
        return shlex.join([*program_words(), "status", shown_path(folder)])
    result = read_result(folder)
    if result is not None and result.exit_code >= 0 and result.status != "interrupted":
        return shlex.join([*program_words(), shown_path(folder)])
    return resume_command(program_words(), folder)


def _say_status(folder: Path) -> None:
    """Say what a run is about, how many checks it has made, and what it does now, or the command that fits."""
    kind, model = _about(folder)
    checks = sum(1 for _ in verdicts(folder))
    now = state(folder)
    busy = now == "at work"
    since = f" in {duration(time.time() - began(folder))}" if busy else ""
    log = read_plain(folder / _LOG, _LARGEST)[-_TAIL:].decode("utf-8", "replace").splitlines()
    rows = [Row("now", one_line(log[-1].partition(" - ")[2] or log[-1]))] if busy and log else []
    what = f"{kind} of {Path(model).name}" if model else kind
    rows += [Row("folder" if busy else "next", shown_path(folder) if busy else onward(folder), whole=True)]
    write(f"{now}: {what}, {counted(checks, 'check')}{since}", rows, "good" if busy else "strong")


def _about(folder: Path) -> tuple[str, str]:
    """Return the strategy and the model of a run, as its settings say."""
    if (folder / "multirun.yaml").exists():
        return "a sweep", ""
    try:
        held = read_yaml(folder / ".hydra" / "config.yaml")
        return str(held["strategy"]["name"]), str(held["model"] or "")
    except (UsageError, KeyError, TypeError):
        result = read_result(folder)
        return (result.strategy, result.input_model or "") if result else ("a run", "")


def verdicts(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what each check of a run said, with a key that is the same in a run about the same model."""
    for path in sorted(folder.rglob(_JOURNALS)):
        for line in read_plain(path, _LARGEST).splitlines():
            try:
                held = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(held, dict) and isinstance(held.get("verdict"), dict):
                place = path.relative_to(folder).parent.as_posix()
                yield f"{place} {held.get('key')} {held.get('attempt')} {held.get('phase')}", held


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
    names = [name for name in names if "." not in name or all(name in one for one in told)]  # else another check is
    rows = [(name, told[0].get(name, "-"), told[1].get(name, "-")) for name in names]
    head = ("", *map(shown_path, pair))
    put("\n".join(table(head, rows, width(), flexible=head[1:])) if rows else "the same answer, versions and values")
    here, there = (dict(verdicts(folder)) for folder in pair)
    both = here.keys() & there.keys()
    if len({result.context.get("subject.graph") for result in results if result}) == 1 and both:
        other = [key for key in here if key in both and _outcome(here[key]) != _outcome(there[key])]
        say(f"{counted(len(both), 'check')} in both; {len(other) or 'none'} ended otherwise")
        for key in other[:_SHOWN]:
            say(f"  {one_line(here[key].get('label') or key)}: {_outcome(here[key])}, then {_outcome(there[key])}")


def _outcome(line: Mapping[str, Any]) -> str:
    return str(line["verdict"].get("outcome")).upper()


def _facts(result: Summary) -> Iterator[tuple[str, str]]:
    """Yield what a result says, a row each."""
    failure = result.signature
    yield "status", result.status
    yield "answer", listed(result.culprits, _SHOWN)
    yield "failure", f"{failure.stage}: {failure.kind}" if failure else ""
    yield "whose bug", result.whose or ""
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
                if isinstance(row, dict) and isinstance(row.get("of_limit"), (int, float)):
                    yield f"error of {one_line(str(row.get('tensor')))} (1 passes)", f"{row['of_limit']:.3g}"
            return
