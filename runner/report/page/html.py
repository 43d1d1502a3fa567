"""Writes a page as one file of HTML."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from runner.files import write_text
from runner.report.page.data import Page

NAME = "report.html"


def page_text(page: Page) -> str:
    """Return the HTML of a page."""
    values = json.dumps(page, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    title = escape(page["title"])
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n<h1>{title}</h1>\n'
        f'<script type="application/json" id="page">{values}</script>\n</html>\n'
    )


def write_page(folder: Path, page: Page) -> None:
    """Write ``report.html`` into ``folder``. Raises OSError where it cannot be written."""
    write_text(folder / NAME, page_text(page))
