"""The report of a triage: one page with each decision, what it rests on, and what to do now."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from runner.report.markup import block, bullets, code, section, table, text
from runner.report.sections.passes_section import session_code
from runner.report.summary import Summary


def title(summary: Summary) -> str:
    """Return the report's title."""
    failure = (summary.triage or {}).get("reproduced", {}).get("failure")
    if not failure:
        return "triage: nothing fails here" if summary.exit_code != 0 else "triage"
    return f"triage: {text(failure)}"


def triage_page(summary: Summary, command: Sequence[str] = ()) -> str:
    """Return the whole report."""
    told = summary.triage or {}
    steps = [_row(one) for one in told.get("steps", ())]
    parts = [
        f"# {title(summary)}",
        text(summary.message),
        section("What to do now", bullets(_advice(summary))),
        section("How it was decided", bullets(map(_decision, told.get("decisions", ())))),
        section("Steps", table(("step", "how it ended", "checks", "seconds"), steps, names=1)),
        section("Versions", table(("package", "version"), sorted(summary.versions.items()))),
        section("How it was run", block(shlex.join(command), "sh") if command else ""),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _decision(one: Mapping[str, Any]) -> str:
    if not one["step"]:
        return f"**{text(one['question'])}** Not asked: {text(one['why'])}"
    return f"**{text(one['question'])}** {text(one['answer'])} ({code(one['step'])}). Why asked: {text(one['why'])}"


def _row(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    asked = bool(one["folder"])
    ended = f"{one['status']}: {one['answer']}" if asked else f"not asked: {one['why']}"
    return (
        one["folder"] or one["name"],
        ended,
        str(one["checks"]) if asked else "",
        f"{one['seconds']:.1f}" if asked else "",
    )


def _advice(summary: Summary) -> list[str]:
    """Return what a reader does next, the surest first."""
    found = []
    for one in summary.workarounds:
        if one.get("passes"):
            how = one.get("code") or shlex.join(one.get("overrides") or ())
            found.append(f"Work around it: {text(one.get('what', ''))}" + (f"\n\n{block(str(how))}\n" if how else ""))
            break
    else:
        if off := session_code((summary.passes or {}).get("settings") or {}):
            found.append(f"Turn off what it needs:\n\n{block(off, 'python')}\n")
    good = [(summary.releases or {}).get(name) for name in ("good_after", "good_before")]
    package = (summary.releases or {}).get("package", "")
    found += [f"Or take a release without it: {code(f'{package}=={one}')}" for one in good if one][:1]
    if summary.model:
        folder = summary.model.rpartition("/")[0]
        found.append(f"Report it with {code(f'{folder}/repro.py')}, which shows it on {code(summary.model)}")
    return found
