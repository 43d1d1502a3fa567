"""What a report says, made once from a result: REPORT.md and the page are renderings of it and cannot disagree.

A document is a title, what stands below it, sections of paragraphs, lists, code, tables and pictures, and sections that
a reader opens to see. Its texts are plain: whoever renders it escapes them. In a paragraph, an item of a list and a
title `code` marks a name and `strong` what stands out, with control characters, which no renderer shows otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

from runner.text import counted, listed

_NAME, _STRONG = ("\x0e", "\x0f"), ("\x11", "\x12")
_MARKS = "".join((*_NAME, *_STRONG))
_MARKED = re.compile(f"[{_NAME[0]}{_STRONG[0]}][^{_MARKS}]*[{_NAME[1]}{_STRONG[1]}]")
_LONGEST_NAME = 60
T = TypeVar("T")
MANY, _LONG = 30, 400
"""Lines of code, or rows of a page's table, that are all in sight, and characters of such a line."""
LONGEST_CELL = 160
"""Characters of a cell; dots stand for the rest."""


@dataclass(frozen=True)
class Bullets:
    """A list of texts."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Lines of a ``language``, or of what was printed."""

    lines: str
    language: str = ""

    @property
    def folded(self) -> str:
        """What a reader opens to see them; "" where they are all in sight."""
        lines = self.lines.strip("\n").split("\n")
        return counted(len(lines), "line") if len(lines) > MANY or max(map(len, lines)) > _LONG else ""


@dataclass(frozen=True)
class Table:
    """Rows of plain cells below a head; the first ``names`` columns hold names."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 0


@dataclass(frozen=True)
class Picture:
    """A file of the run, and what it shows."""

    shows: str
    path: str


Block: TypeAlias = str | Bullets | Code | Table | Picture
"""A part of a section; a text is a paragraph."""
Blocks: TypeAlias = Sequence[Block | None]
"""Some of them; None and "" are nothing."""


@dataclass(frozen=True)
class Section:
    """A part of a report. ``aside``: the page shows the same elsewhere, in another form."""

    title: str
    blocks: tuple[Block, ...]
    aside: bool = False


@dataclass(frozen=True)
class Document:
    """A report. ``lead``: what stands below the title; ``found``: how it was found, which a reader opens to see."""

    title: str
    lead: tuple[Block, ...]
    sections: tuple[Section, ...]
    found: tuple[Section, ...] = ()


def section(title: str, blocks: Blocks, *, aside: bool = False) -> list[Section]:
    """Return a section; none where it has no blocks."""
    held = tuple(one for one in blocks if one)
    return [Section(title, held, aside)] if held else []


def table(head: Sequence[str], rows: Iterable[Sequence[object]], names: int = 0) -> Table | None:
    """Return a table; None where it has no rows."""
    held = tuple(tuple(map(str, row)) for row in rows)
    return Table(tuple(head), held, names) if held else None


def bullets(items: Iterable[str]) -> Bullets | None:
    """Return a list; None where it has no items."""
    held = tuple(items)
    return Bullets(held) if held else None


def code(name: str) -> str:
    """Mark a name, a path or a command in a text."""
    return f"{_NAME[0]}{without_marks(name)}{_NAME[1]}"


def strong(words: str) -> str:
    """Mark words that stand out in a text."""
    return f"{_STRONG[0]}{without_marks(words)}{_STRONG[1]}"


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first of many names, and how many more there are."""
    return listed([code(cut(name, _LONGEST_NAME)) for name in names], most)


def cut(value: str, longest: int = LONGEST_CELL) -> str:
    """Return a text that is not longer than this, dots in place of what is left out."""
    return value if len(value) <= longest else f"{value[: longest - 3]}..."


def each_text(value: T, change: Callable[[str], str]) -> T:
    """Return a value with each text in it changed: in dataclasses, mappings and sequences."""
    made: Any = value
    if isinstance(value, str):
        made = change(value)
    elif is_dataclass(value) and not isinstance(value, type):
        made = replace(value, **{one.name: each_text(getattr(value, one.name), change) for one in fields(value)})
    elif isinstance(value, Mapping):
        made = {name: each_text(held, change) for name, held in value.items()}
    elif isinstance(value, list | tuple):
        made = type(value)(each_text(one, change) for one in value)
    return made  # type: ignore[no-any-return]


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a text, each with what it is: ``name``, ``strong``, or "" for other words."""
    at = 0
    for found in _MARKED.finditer(text):
        yield "", text[at : found.start()]
        yield "name" if found[0][0] == _NAME[0] else "strong", found[0][1:-1]
        at = found.end()
    yield "", text[at:]


def without_marks(text: str) -> str:
    """Return a text without marks."""
    return text.translate(dict.fromkeys(map(ord, _MARKS)))
