"""REPORT.md read back as the tables and texts that it is made of, so that a page says what the report says.

What Winnow writes is read: a heading, tables, lists, blocks of code, running text. In these whatever is no markup is
written as character references or in code spans; whatever is another's markup is text here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from runner.judgment import Status
from runner.report.page.data import Row, Section

_REFERENCE = re.compile(r"&#(\d{1,7});")
_SPAN = re.compile(r"`([^`]*)`")
_RULE = re.compile(r"\|( ?:?-+:? ?\|)+")
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_FENCE = re.compile(r"(`{3,})\w*")
_FOLD = re.compile(r"</?details>|<summary>[^<]*</summary>")
_STRONG = re.compile(r"\*\*([^*]*)\*\*")
_STATUSES = frozenset(map(str, Status))
CODE = " " * 4
"""What a line of code begins with on a page."""
ON_THE_PAGE = frozenset({"How it was run", "Warnings", "Steps"})
"""Sections that a page has in another form."""


def title_of(report: str) -> str:
    """Return the heading of a report; "" where it has none."""
    first = report.partition("\n")[0]
    return _plain(first[2:]) if first.startswith("# ") else ""


def sections_of(report: str) -> list[Section]:
    """Return the sections of a report in their order; one with several tables is several, the later ones nameless."""
    found: list[Section] = []
    for title, lines in _parts(report):
        if title in ON_THE_PAGE:
            continue
        for at, one in enumerate(_tables(lines)):
            found.append({**one, "title": title if at == 0 else ""})
    return found


def _parts(report: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each section's title and lines; a heading within a block of code is none."""
    title, fence = "", ""
    lines: list[str] = []
    for line in report.splitlines()[1:]:
        fence = _after(line, fence)
        if not fence and _FOLD.fullmatch(line):
            continue
        if line.startswith("## ") and not fence:
            if title:
                yield title, lines
            title, lines = _plain(line[3:]), []
        else:
            lines.append(line)
    if title:
        yield title, lines


def _after(line: str, fence: str) -> str:
    """Return the fence of the block of code that is open after a line; "" where none is."""
    if fence:
        return "" if line == fence else fence
    opened = _FENCE.fullmatch(line)
    return opened[1] if opened else ""


def _tables(lines: list[str]) -> Iterator[Section]:
    """Yield each table with the text before it, and the text after the last one; without titles."""
    said: list[str] = []
    head: Row = []
    rows: list[Row] = []
    fence = ""
    for line in [*lines, ""]:
        before, fence = fence, _after(line, fence)
        if before or fence:
            said += [f"{CODE}{line}"] if before and fence else []
        elif line.startswith("| "):
            cells = [] if _RULE.fullmatch(line) else [_plain(cell) for cell in line[2:-2].split(" | ")]
            if cells and not head:
                head = cells
            elif cells:
                rows.append(cells)
        else:
            if head:
                yield _told(said, head, rows)
                said, head, rows = [], [], []
            if not _PICTURE.fullmatch(line):
                said.append(_plain(line))
    if "".join(said).strip():
        yield _told(said, [], [])


def _told(said: list[str], head: Row, rows: list[Row]) -> Section:
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(said)).strip("\n")
    return {"title": "", "text": text, "head": head if any(head) else [], "rows": rows}


def _plain(text: str) -> str:
    """Return a text as it was before it was made Markdown; what is a status, in words."""
    parts = _SPAN.split(text)  # every second one is a span of code
    parts[::2] = [_STRONG.sub(r"\1", one) for one in parts[::2]]
    plain = _REFERENCE.sub(lambda found: chr(min(int(found[1]), 0x10FFFF)), "".join(parts))
    return plain.replace("_", " ") if plain in _STATUSES else plain
