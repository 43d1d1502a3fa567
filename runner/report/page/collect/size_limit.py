"""A page within its size: what is dear and least missed goes first, and the page says what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable

from runner.report.page.data import Graph, Page

MOST_BYTES = 9_000_000
"""Of a page's values as JSON; what surrounds them takes less than a megabyte."""


def fitted(page: Page, most: int = MOST_BYTES) -> Page:
    """Return a page that takes no more than so many bytes as JSON."""
    for what, leave in _STEPS:
        if size_of(page) <= most:
            return page
        page = {**leave(page), "warnings": [*page["warnings"], f"this page would be too large: {what}"]}
    return page


def size_of(page: Page) -> int:
    """Return the bytes of a page's values as JSON in a page of HTML, where a ``<`` is written with six characters."""
    text = json.dumps(page, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + 5 * text.count("<")


def _whole(page: Page, change: Callable[[Graph], Graph]) -> Page:
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
        "what each check kept is left out",
        lambda page: {**page, "trials": [{**one, "kept": []} for one in page["trials"]]},
    ),
    (
        "types of the original's tensors are left out",
        lambda page: _whole(page, lambda graph: {**graph, "types": [""] * len(graph["types"])}),
    ),
    ("the graph of the original is left out", lambda page: {**page, "whole": None}),
    ("errors of layers are left out", lambda page: {**page, "layers": []}),
    ("values are left out", lambda page: {**page, "tensors": []}),
    ("the checks are left out", lambda page: {**page, "trials": []}),
    ("the reduced graph is left out", lambda page: {**page, "reduced": None}),
    ("tables and texts are left out; REPORT.md has them", lambda page: {**page, "sections": [], "jobs": []}),
)
