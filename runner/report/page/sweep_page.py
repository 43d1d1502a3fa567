"""The page of a sweep: its jobs side by side, each with a link to the page of its own."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.files import inside
from runner.judgment import ENDED_WELL, Status
from runner.report.page.data import Page, PageCommand, PageJob
from runner.report.page.html import fitted
from runner.report.page.run_page import PAGE_NAME, made_now, program_of, version
from runner.report.summary import Summary, read_result
from runner.text import counted, listed, with_inside, without_values

_MOST_NAMES = 20
_LONGEST_MESSAGE, _LONGEST_ANSWER = 1000, 200
_INTERRUPTED = Status.interrupted.exit_code
_TRUSTED = ("preflight", "control", "recheck", "samples", "repeats")


def sweep_page(folder: Path, rows: Sequence[Mapping[str, Any]], command: Sequence[str] = ()) -> Page:
    """Return the page. ``rows``: the jobs, as sweep.json has them; ``command``: what was typed."""
    shared = _shared(rows)
    jobs = [_job(folder, row, shared) for row in rows]
    well = sum(row.get("exit_code") in ENDED_WELL for row in rows)
    ends = Counter(job["status"].replace("_", " ") for job in jobs)
    status = ", ".join(f"{number} {end}" for end, number in ends.items())
    asked, run, reused = (sum(job[key] or 0 for job in jobs) for key in ("asked", "run", "reused"))
    facts = [
        ["jobs", f"{len(jobs)}, of which {well} ended well"],
        ["all jobs", shlex.join(without_values(shared))],
        ["checks", f"{asked} asked, {run} run, {reused} reused"],
        ["seconds", f"{sum(job['seconds'] or 0.0 for job in jobs):.1f}, of all jobs together"],
    ]
    troubled = [
        f"job {row.get('job')}: {str(row.get('message'))[:_LONGEST_MESSAGE]}"
        for row in rows
        if row.get("exit_code") not in ENDED_WELL and row.get("message")
    ]
    return fitted(
        {
            "kind": "sweep",
            "title": f"sweep of {counted(len(jobs), 'job')}",
            "verdict": f"{well} of {counted(len(jobs), 'job')} ended well: {status}",
            "cause": "",
            "status": "" if ends.keys() == {str(Status.found)} else status,
            "strategy": "",
            "labels": ["interrupted"] if any(row.get("exit_code") == _INTERRUPTED for row in rows) else [],
            "facts": [fact for fact in facts if fact[1]],
            "warnings": troubled,
            "reduced": None,
            "whole": None,
            "tensors": [],
            "layers": [],
            "elements": "",
            "trials": [],
            "curve": [],
            "alone": [],
            "sections": [],
            "commands": _commands(folder, rows, command),
            "jobs": jobs,
            "made": made_now(),
            "version": version(),
        }
    )


def _commands(folder: Path, rows: Sequence[Mapping[str, Any]], command: Sequence[str]) -> list[PageCommand]:
    if not command:
        return []
    found = [("Run it again", without_values(command))]
    if any(row.get("exit_code") not in ENDED_WELL for row in rows):
        found.append(("Run the jobs that have no answer", [*program_of(command), "resume", str(folder)]))
    kept = [place for row in rows if (place := _place(folder, row)) and _result(place, row).model]
    if kept:
        words = map(str, kept if len(kept) <= _MOST_NAMES else {place.parent: None for place in kept})
        found.append(("Check the kept models again", [*program_of(command), "recheck", *words]))
    return [{"what": what, "command": shlex.join(words)} for what, words in found]


def _place(folder: Path, row: Mapping[str, Any]) -> Path | None:
    """Return the folder of a job; None where it has none below the sweep's."""
    name = str(row.get("folder") or "")
    return folder / name if name and inside(folder / name, folder) else None


def _result(place: Path | None, row: Mapping[str, Any]) -> Summary:
    return (read_result(place) if place and row.get("exit_code") is not None else None) or Summary()


def _shared(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the overrides that every one of several jobs has: they tell nothing apart."""
    if len(rows) < 2:
        return []
    return [one for one in rows[0]["overrides"] if all(one in row["overrides"] for row in rows)]


def _job(folder: Path, row: Mapping[str, Any], shared: Sequence[str]) -> PageJob:
    place = _place(folder, row)
    result = _result(place, row)
    ran = row.get("exit_code") not in (None, Status.usage.exit_code)
    asked, run, reused = (_count(row, name) if ran else None for name in ("asked", "run", "reused"))
    code = row.get("exit_code")
    shown = [f"{number} {name}" for name in _TRUSTED if (number := getattr(result.checks, name))]
    trust = [result.minimality, f"cause {result.cause.status}" if result.cause else None]
    return {
        "number": str(row.get("job", "")),
        "overrides": without_values([str(one) for one in row.get("overrides", ()) if one not in shared]),
        "status": str(row.get("status", "")),
        "exit_code": code if isinstance(code, int) else -1,
        "answer": _answer(row),
        "trust": ", ".join([*filter(None, trust), *shown]),
        "asked": asked,
        "run": run,
        "reused": reused,
        "seconds": float(row.get("seconds") or 0.0) if ran else None,
        "page": f"{row['folder']}/{PAGE_NAME}" if place and (place / PAGE_NAME).is_file() else "",
    }


def _answer(row: Mapping[str, Any]) -> str:
    culprits, nested = ([*map(str, row.get(key, ()))] for key in ("culprits", "nested"))
    names = with_inside(listed(culprits, _MOST_NAMES), len(culprits), listed(nested, _MOST_NAMES))
    before, after = row.get("before"), row.get("after")
    of = f" ({after} of {before} nodes)" if after is not None and before else ""
    return f"{names}{of}" if names else str(row.get("message") or "").partition("\n")[0][:_LONGEST_ANSWER]


def _count(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
