"""What is said on a terminal: lines, and rows and tables of plain text.

Say something to the user, whatever the terminal can show and even if nobody reads it any more.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import rich

from runner.text import short

LONGEST = 4000
"""Characters of a line that are shown; files have all of it."""


def printable(text: str) -> str:
    """Return ``text`` with escapes for control characters: names in a model must not drive the terminal.

    No line is longer than a person reads.
    """
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    more = len(line) - LONGEST
    line = f"{line[:LONGEST]}... ({more} characters more)" if more > 0 else line
    return "".join(letter if letter == "\t" or letter.isprintable() else repr(letter)[1:-1] for letter in line)


def say(text: str, *, error: bool = False) -> None:
    """Write a line (or some) to stdout, or to stderr. Characters that the terminal cannot show are escaped."""
    put(printable(text), error=error)


def put(text: str, *, error: bool = False) -> None:
    """Write what is printable already, and may have colors."""
    stream = sys.stderr if error else sys.stdout
    encoding = stream.encoding or "utf-8"
    with suppress(OSError):  # a closed pipe must not change how a run ends
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()


# Rows and tables of plain text: wrapped, cut and in color on a terminal, each row one whole line in a pipe.

_NARROWEST, _WIDEST = 40, 200
_MARGIN = 11
_BETWEEN = "  "
_COLORS = {"good": "1;32", "bad": "1;31", "warning": "33", "name": "36", "strong": "1"}
_LEAST_OF_A_COLUMN = 8


@dataclass(frozen=True)
class Row:
    """A line of a screen. ``name``: what stands in front; ``most``: lines that it takes on a terminal; ``tone``: color.

    ``whole``: it is not wrapped, so that it can be copied (a command, a path).
    """

    name: str
    text: str
    tone: str = ""
    most: int = 3
    whole: bool = False


def width(*, error: bool = False) -> int | None:
    """Return how many columns the terminal has that is written to; None where that is none."""
    stream = sys.stderr if error else sys.stdout
    columns = shutil.get_terminal_size().columns
    return max(_NARROWEST, min(columns, _WIDEST)) if stream.isatty() else None


def write(first: str, rows: Sequence[Row], tone: str = "", *, error: bool = False) -> None:
    """Write a screen: its first line and its rows."""
    columns = width(error=error)
    color = columns is not None and not rich.get_console().no_color and os.environ.get("TERM") != "dumb"
    head, *rest = _wrapped(first, columns, "", "  ", 8)
    status, colon, more = head.partition(":")
    lines = [f"{_painted(status + colon, tone if color else '')}{more}", *rest]
    for row in rows:
        name = f"  {row.name:<{_MARGIN - 3}} "
        inner = _wrapped(row.text, None if row.whole else columns, " " * _MARGIN, " " * _MARGIN, row.most)
        text = _linked(inner[0][_MARGIN:], row) if color else inner[0][_MARGIN:]
        inner[0] = _painted(name, (row.tone or "name") if color else "") + text
        lines += inner
    put("\n".join(lines), error=error)


def _linked(text: str, row: Row) -> str:
    """Return a path as a link that terminals can open (OSC 8), where something lies there."""
    there = row.whole and text == row.text and os.path.exists(text)  # noqa: PTH110 - it may be no path at all
    return f"\x1b]8;;{Path(text).absolute().as_uri()}\x1b\\{text}\x1b]8;;\x1b\\" if there else text


def _painted(text: str, tone: str) -> str:
    return f"\x1b[{_COLORS[tone]}m{text}\x1b[0m" if tone in _COLORS else text


def _wrapped(text: str, columns: int | None, first: str, later: str, most: int) -> list[str]:
    """Return printable lines; on a terminal of ``columns`` at most ``most``."""
    lines = [part for part in printable(text).split("\n") if part] or [""]
    if columns is not None:
        lines = [
            part
            for at, line in enumerate(lines)
            for part in textwrap.wrap(
                line,
                columns - 1,
                initial_indent=later if at else first,
                subsequent_indent=later,
                break_on_hyphens=False,
            )
        ]
        return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1][: columns - 5]} ..."]
    return [f"{later if at else first}{line}" for at, line in enumerate(lines)]


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None, flexible: Collection[str] = ()
) -> list[str]:
    """Return the lines of a table. On a terminal the ``flexible`` columns are cut, by name, until it fits.

    Columns in which every cell is empty are left out.
    """
    kept = [at for at in range(len(head)) if any(row[at] for row in rows)]
    cells = [[printable(" ".join(row[at].split())) for at in kept] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(kept))]
    soft = [at for at, old in enumerate(kept) if head[old] in flexible]
    while columns is not None and soft and sum(widths) + len(_BETWEEN) * (len(widths) - 1) > columns:
        widest = max(soft, key=lambda at: widths[at])
        if widths[widest] <= _LEAST_OF_A_COLUMN:
            break
        widths[widest] -= 1
    numbers = [all(_is_number(row[at]) for row in cells[1:]) for at in range(len(kept))]
    return [
        _BETWEEN.join(
            f"{short(cell, size):{'>' if right else '<'}{size}}"
            for cell, size, right in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in cells
    ]


def wide_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None, flexible: Collection[str]
) -> list[str]:
    """Return a table; where it is wider than the terminal, the last cell of each row stands below it, whole."""
    lines = table(head, rows, columns, flexible)
    if columns is None or max(map(len, lines)) <= columns:
        return lines
    first, *others = table(head[:-1], [row[:-1] for row in rows], columns, flexible)
    below = [f"     {printable(row[-1])}" if row[-1] else "" for row in rows]
    return [first, *(part for pair in zip(others, below, strict=True) for part in pair if part)]


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(".", "", 1).isdigit()
