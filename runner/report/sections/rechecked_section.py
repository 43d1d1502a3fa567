"""The section of a report that says how kept results end by now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.report.markup import section, table
from runner.text import counted


def title_of_kept(strategy: str, *, found: bool, bugs: int) -> str:
    """Return the title of a report about kept results that ended well, "" for another one."""
    if strategy == "bugs" and found:
        return f"{counted(bugs, 'bug')}: failures grouped by what heals them"
    return "kept results are as expected" if strategy == "recheck" and found else ""


def rechecked_section(rechecked: Sequence[Mapping[str, Any]]) -> str:
    """Return the section; "" where nothing was checked again. What is not as expected comes first."""
    rows = sorted(rechecked, key=lambda one: one["outcome"] == one["expect"])
    cells = [(one["folder"], one["outcome"], one["expect"], one["said"]) for one in rows]
    return section("Kept results", table(("folder", "by now", "expected", "what the check says"), cells, names=1))
