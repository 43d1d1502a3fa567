"""bugs.md, and the sections of a report that it consists of: each bug with all that its failures are known by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from runner.report.markup import bullets, code, section, some, text
from runner.text import counted

BUGS_NAME = "bugs.md"


def bugs_page(bugs: Sequence[Mapping[str, Any]], apart: Sequence[str] = ()) -> str:
    """Return bugs.md. ``apart``: failures that could not be judged, and why."""
    failures = sum(bug["count"] for bug in bugs)
    head = f"# {counted(len(bugs), 'bug')} in {counted(failures, 'failure')}"
    left = section("Not judged", bullets(map(text, apart)))
    return "\n\n".join(part for part in (head, bugs_section(bugs), left) if part) + "\n"


def bugs_section(bugs: Sequence[Mapping[str, Any]]) -> str:
    """Return a section for each bug; "" where there is none."""
    return "\n\n".join(section(f"{number}. {text(bug['name'])}", _body(bug)) for number, bug in enumerate(bugs, 1))


def _body(bug: Mapping[str, Any]) -> str:
    hows = Counter(one["how"] for one in bug["evidence"] if one["said"])
    signature = ": ".join(str(bug["signature"][key]) for key in ("stage", "kind") if bug["signature"].get(key))
    items = [
        f"{counted(bug['count'], 'failure')}: {some(bug['failures'], 12)}",
        f"Smallest example: {code(bug['smallest'])}",
        f"Operators: {', '.join(map(code, bug['culprit_operators']))}",
        f"How it fails: {text(signature)}",
        *(f"It passes with {text(one)}" for one in bug["passes"]),
        *([f"Releases: {text(bug['releases'])}"] if bug["releases"] else []),
        f"Models: {some(bug['hosts'], 12)}",
        *([f"Winnow passes it with {', '.join(map(code, bug['workaround']))}"] if bug["workaround"] else []),
        *([f"Why these are one bug: {', '.join(f'{n} {how}' for how, n in hows.items())}"] if hows else []),
    ]
    said = [f"{code(one['failure'])}: {text(one['said'])}" for one in bug["evidence"] if one["said"]]
    return "\n\n".join(part for part in (bullets(items), bullets(said)) if part)
