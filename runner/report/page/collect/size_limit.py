"""A page within its size: what is dear and least missed goes first, and the page says what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, cast, get_origin, get_type_hints

from runner.report.page.collect.graph_columns import without_bodies
from runner.report.page.data import Page, PageGraph, Section
from runner.report.page.html import page_text

MOST_BYTES = 9_000_000
"""Of what a page tells; its style and its scripts take less than a megabyte."""
MOST_ROWS, FEW_ROWS, MOST_WARNINGS = 2000, 100, 100
_DRAWN: Any = {"reduced": None, "whole": None, "tensors": [], "layers": [], "trials": [], "curve": []}
"""What only scripts read; all else is text in HTML."""


def fitted(page: Page, most: int = MOST_BYTES) -> Page:
    """Return a page that takes no more than so many bytes, with tables that a browser shows at once."""
    page = _cut(page, MOST_ROWS)
    for what, leave in _STEPS:
        if size_of(page) <= most:
            return page
        page = leave(page)
        page["warnings"] = [*page["warnings"], f"this page would be too large: {what}"]
    return page


def size_of(page: Page) -> int:
    """Return the bytes of what a page tells: as HTML, and as JSON where a script draws it, which is packed later."""
    drawn = {key: value for key, value in page.items() if key in _DRAWN}
    text = json.dumps(drawn, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return len(text) + len(page_text({**page, **_DRAWN}).encode()) - surroundings()


@cache
def surroundings() -> int:
    """Return the bytes of a page that tells nothing."""
    told: Any = {key: [] if get_origin(kind) is list else "" for key, kind in get_type_hints(Page).items()}
    return len(page_text(cast(Page, {**told, **_DRAWN})).encode())


def _cut(page: Page, most: int) -> Page:
    """Return a page whose tables have no more than so many rows, and say so."""
    long = [one["title"] for one in page["sections"] if len(one["rows"]) > most]
    said = [f"{title or 'a table'}: the first {most} rows are shown" for title in long]
    if len(page["jobs"]) > most:
        said.append(f"of {len(page['jobs'])} jobs the first {most} are shown")
    warnings = [*page["warnings"], *said]
    if len(warnings) > MOST_WARNINGS:
        warnings = [*warnings[:MOST_WARNINGS], f"{len(warnings) - MOST_WARNINGS} further warnings are not shown"]
    sections = [Section({**one, "rows": one["rows"][:most]}) for one in page["sections"]]
    return {**page, "warnings": warnings, "sections": sections, "jobs": page["jobs"][:most]}


def _whole(page: Page, change: Callable[[PageGraph], PageGraph]) -> Page:
    return {**page, "whole": change(page["whole"]) if page["whole"] else None}


_STEPS: tuple[tuple[str, Callable[[Page], Page]], ...] = (
    (
        "what the checks printed is left out",
        lambda page: {**page, "trials": [{**one, "log": ""} for one in page["trials"]]},
    ),
    (
        "attributes of the original's nodes are left out",
        lambda page: _whole(page, lambda graph: {**graph, "attributes": {}}),
    ),
    (
        "nested graphs of the original cannot be opened",
        lambda page: _whole(page, without_bodies),
    ),
    (
        "what each check kept is left out",
        lambda page: {**page, "trials": [{**one, "kept": []} for one in page["trials"]]},
    ),
    (
        "types of the original's tensors are left out",
        lambda page: _whole(page, lambda graph: {**graph, "types": [""] * len(graph["types"])}),
    ),
    (f"tables are cut to {FEW_ROWS} rows", lambda page: _cut(page, FEW_ROWS)),
    ("the graph of the original is left out", lambda page: {**page, "whole": None}),
    ("errors of layers are left out", lambda page: {**page, "layers": []}),
    ("values are left out", lambda page: {**page, "tensors": []}),
    ("the checks are left out", lambda page: {**page, "trials": []}),
    ("the reduced graph is left out", lambda page: {**page, "reduced": None}),
    ("tables and texts are left out; REPORT.md has them", lambda page: {**page, "sections": [], "jobs": []}),
)
