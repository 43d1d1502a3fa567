"""The page of a sweep: its jobs side by side, each with a link to the page of its own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.files import inside
from runner.report.page.collect.commands import program_of
from runner.report.page.collect.run_page import PAGE_NAME, made_now, version
from runner.report.page.collect.size_limit import fitted
from runner.report.page.data import Command, Job, Page
from runner.report.result import read_result
from runner.status import ENDED_WELL
from runner.text import counted, listed

_MOST_NAMES = 20
_LONGEST_MESSAGE = 1000
_TRUSTED = ("preflight", "control", "recheck", "samples", "repeats")


def sweep_page(folder: Path, rows: Sequence[Mapping[str, Any]], command: Sequence[str] = ()) -> Page:
    """Return the page. ``rows``: the jobs, as sweep.json has them; ``command``: what was typed."""
    shared = _shared(rows)
    jobs = [_job(folder, row, shared) for row in rows]
    well = sum(row.get("exit_code") in ENDED_WELL for row in rows)
    asked, run, reused = (sum(job[key] for job in jobs) for key in ("asked", "run", "reused"))
    facts = [
        ["jobs", f"{len(jobs)}, of which {well} ended well"],
        ["all jobs", shlex.join(shared)],
        ["checks", f"{asked} asked, {run} run, {reused} reused"],
        ["seconds", f"{sum(job['seconds'] for job in jobs):.1f}, of all jobs together"],
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
            "verdict": f"{well} of {counted(len(jobs), 'job')} ended well",
            "cause": "",
            "status": "found" if rows and well == len(rows) else "not_as_expected",
            "strategy": "",
            "labels": [],
            "facts": [fact for fact in facts if fact[1]],
            "warnings": troubled,
            "reduced": None,
            "whole": None,
            "tensors": [],
            "layers": [],
            "elements": "",
            "trials": [],
            "curve": [],
            "sections": [],
            "commands": _commands(folder, command),
            "jobs": jobs,
            "made": made_now(),
            "version": version(),
        }
    )


def _commands(folder: Path, command: Sequence[str]) -> list[Command]:
    if not command:
        return []
    onward = [*(word for word in command if not word.startswith("resume=")), f"resume={folder}"]
    kept = [*program_of(command), "strategy=recheck", f"strategy.results=[{folder}/*/replay.yaml]"]
    return [
        {"what": "Run it again", "command": shlex.join(command)},
        {"what": "Run the jobs that have no answer", "command": shlex.join(onward)},
        {"what": "Check the kept models again", "command": shlex.join(kept)},
    ]


def _shared(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the overrides that every one of several jobs has: they tell nothing apart."""
    if len(rows) < 2:
        return []
    return [one for one in rows[0]["overrides"] if all(one in row["overrides"] for row in rows)]


def _job(folder: Path, row: Mapping[str, Any], shared: Sequence[str]) -> Job:
    place = str(row.get("folder") or "")
    held = bool(place) and inside(folder / place, folder)
    result = (read_result(folder / place) or {}) if held and row.get("exit_code") is not None else {}
    checks = result.get("checks") if isinstance(result.get("checks"), dict) else {}
    counts = {name: _count(checks, name) for name in ("search", "refine", "cause", "trust", "reused", *_TRUSTED)}
    run = sum(counts[name] for name in ("search", "refine", "cause", "trust"))
    code, minimality = row.get("exit_code"), result.get("minimality")
    cause = result.get("cause")
    shown = [f"{counts[name]} {name}" for name in _TRUSTED if counts[name]]
    trust = [minimality, f"cause {cause['status']}" if isinstance(cause, dict) and "status" in cause else None]
    return {
        "number": str(row.get("job", "")),
        "overrides": [str(one) for one in row.get("overrides", ()) if one not in shared],
        "status": str(row.get("status", "")),
        "exit_code": code if isinstance(code, int) else -1,
        "answer": _answer(row),
        "trust": ", ".join([*(str(part) for part in trust if part), *shown]),
        "asked": run + counts["reused"],
        "run": run,
        "reused": counts["reused"],
        "seconds": float(row.get("seconds") or 0.0),
        "page": f"{place}/{PAGE_NAME}" if held and (folder / place / PAGE_NAME).is_file() else "",
    }


def _answer(row: Mapping[str, Any]) -> str:
    names = listed([*map(str, row.get("culprits", ()))], _MOST_NAMES)
    before, after = row.get("before"), row.get("after")
    of = f" ({after} of {before} nodes)" if after is not None and before else ""
    return f"{names}{of}" if names else ""


def _count(checks: Any, name: str) -> int:
    value = checks.get(name) if isinstance(checks, dict) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
