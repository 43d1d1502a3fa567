"""Markdown of which no part can be taken for markup that it is not.

Names of nodes and tensors, messages and commands come from outside and may hold anything: names of plain characters
are code spans, everything else is escaped in running text; in blocks the fence is longer than any in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runner.text import listed, one_line

_LONGEST_CELL = 160
_LONGEST_TEXT = 4000
_LONGEST_BLOCK = 20_000
# what Markdown or HTML could read as markup where it stands (an underscore inside a word, or a colon that is no part of
# an address or of an emoji's name, is none); @ and # would notify people and link issues on a forge
_LINK = r":(?=//|(?:[+-]1|100|1234|[\w+-]{0,40}[a-z][\w+-]{0,40}):)|(?<=mailto):|(?<=xmpp):"
_MARKUP = re.compile(rf"[\\`*{{}}\[\]<>#!|~&@$]|^[-+=]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|{_LINK}", re.IGNORECASE)
# names that are whole in a code span: no backtick ends it, no pipe ends a cell, no other character plays tricks
_PLAIN = re.compile(r"[A-Za-z0-9_./:;,+=()\[\]-]+(?: [A-Za-z0-9_./:;,+=()\[\]-]+)*")


def text(value: object) -> str:
    """Return a value as running text on one line that no renderer takes for markup, and that is read to its end."""
    line = cut(str(value), _LONGEST_TEXT)
    plain = "".join(char if char.isprintable() else " " if char.isspace() else ascii(char)[1:-1] for char in line)
    # HTML entities show as the character in text, in a table and in a heading alike, and in no context as markup
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", one_line(plain, _LONGEST_TEXT))


def code(value: str) -> str:
    """Return a name as a code span, which reads well raw too; as `text` if it has anything but plain characters."""
    return f"`{value}`" if _PLAIN.fullmatch(value) else text(value)


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first of many names, and how many more there are."""
    return listed([code(cut(name, 60)) for name in names], most)


def block(value: str, language: str = "") -> str:
    """Return a fenced block that its text cannot end."""
    value = cut(value, _LONGEST_BLOCK)
    plain = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in value)
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{plain}\n{fence}"


def section(title: str, body: str) -> str:
    """Return a section; nothing where it has no body."""
    return f"## {title}\n\n{body}" if body else ""


def folded(title: str, body: str) -> str:
    """Return what a reader opens to see; nothing where it has no body. Nothing within ends it: see the module."""
    return f"<details>\n<summary>{text(title)}</summary>\n\n{body}\n\n</details>" if body else ""


def bullets(items: Iterable[str]) -> str:
    """Return a list, an item a line."""
    return "\n".join(f"- {item}" for item in items)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], names: int = 0) -> str:
    """Return a table whose first ``names`` columns hold names."""
    if not rows:
        return ""
    cells = ([(code if at < names else text)(cut(str(cell))) for at, cell in enumerate(row)] for row in rows)
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cut(value: str, longest: int = _LONGEST_CELL) -> str:
    """Return a text that is not longer than this, dots in place of what is left out."""
    return value if len(value) <= longest else f"{value[: longest - 3]}..."
