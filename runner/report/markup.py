"""A document as Markdown of which no part can be taken for markup that it is not.

Names of nodes and tensors, messages and commands come from outside and may hold anything: names of plain characters
are code spans, everything else is escaped in running text; in blocks the fence is longer than any in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runner.report.document import Block, Bullets, Code, Document, Picture, Section, Table, cut, pieces, without_marks
from runner.text import one_line

_LONGEST_TEXT = 4000
_LONGEST_BLOCK = 20_000
MOST_ROWS = 200
"""Of a table, and of a list."""
# what Markdown or HTML could read as markup where it stands: a bracket is none unless a link, a footnote or a box to
# tick begins or ends there, nor is a sign before a number, an underscore inside a word, or a colon that is no part of
# an address or of an emoji's name; @, # and ! would notify people and link issues on a forge
_LINK = r":(?=//|(?:[+-]1|100|1234|[\w+-]{0,40}[a-z][\w+-]{0,40}):)|(?<=mailto):|(?<=xmpp):"
_MARKUP = re.compile(
    r"[`|~@$]|\\(?=[!-/:-@\[-`{-~]|$)|(?<!\s)\*|\*(?!\s)|\{(?=[%{+\-:#])|<(?=[A-Za-z/!?])|^>|^#|#(?=\w)|!(?=[\[\d])"
    r"|(?<=[\]!])\[|\[(?=[\[^+]|-(?!\d)|[ x]\])|\](?=[(\[:\]])|&(?=#|\w+;)|^[-+](?=\s)|^[-+=](?=[-+=]*$)"
    rf"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|{_LINK}",
    re.IGNORECASE,
)
# names that are whole in a code span: no backtick ends it, no pipe ends a cell, no other character plays tricks
_LETTERS = r"""[A-Za-z0-9_./:;,+=(){}\[\]'"%?^~-]+"""
_PLAIN = re.compile(f"{_LETTERS}(?: {_LETTERS})*")
_FOLDED = "How this was found"


def to_markdown(document: Document) -> str:
    """Return a document as GitHub reads it."""
    found = _folded(_FOLDED, sections_text(document.found)) if document.found else ""
    parts = (f"# {words(document.title)}", *map(_block, document.lead), sections_text(document.sections), found)
    return "\n\n".join(filter(None, parts)) + "\n"


def sections_text(sections: Iterable[Section]) -> str:
    """Return sections, one below the other."""
    return "\n\n".join("\n\n".join((f"## {words(one.title)}", *map(_block, one.blocks))) for one in sections)


def _block(one: Block) -> str:
    if isinstance(one, str):
        return words(one)
    if isinstance(one, Bullets):
        items = [f"- {words(item)}" for item in one.items[:MOST_ROWS]]
        return "\n".join(items) + _more(one.items, "\n- ")
    if isinstance(one, Code):
        shown = fenced(one.lines, one.language)
        return _folded(one.folded, shown) if one.folded else shown
    if isinstance(one, Picture):
        return f"![{one.shows}]({one.path})"
    return _table(one)


def _table(one: Table) -> str:
    rows = one.rows[:MOST_ROWS]
    cells = ([(code if at < one.names else text)(cut(cell)) for at, cell in enumerate(row)] for row in rows)
    lines = [list(one.head), ["---"] * len(one.head), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + _more(one.rows, "\n\n")


def _more(parts: Sequence[object], before: str) -> str:
    """Return how many there are besides those that are shown."""
    return f"{before}{len(parts) - MOST_ROWS} more; result.json has them all" if len(parts) > MOST_ROWS else ""


def _folded(title: str, body: str) -> str:
    """Return what a reader opens to see. Nothing within ends it: see the module."""
    return f"<details>\n<summary>{text(title)}</summary>\n\n{body}\n\n</details>"


def words(said: str) -> str:
    """Return a text with its marks as Markdown."""
    return "".join(_piece(kind, piece) for kind, piece in pieces(said) if piece).strip()


def _piece(kind: str, piece: str) -> str:
    if kind:
        return code(piece) if kind == "name" else f"**{text(piece)}**"
    return f"{' ' * piece[0].isspace()}{text(piece)}{' ' * piece[-1].isspace()}" if piece.strip() else " "


def text(value: object) -> str:
    """Return a value as running text on one line that no renderer takes for markup, and that is read to its end."""
    # HTML entities show as the character in text, in a table and in a heading alike, and in no context as markup
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", on_a_line(str(value)))


def on_a_line(value: str) -> str:
    """Return a text on one line, of which a renderer shows all characters."""
    return one_line(cut(value, _LONGEST_TEXT), _LONGEST_TEXT)


def unmarked(value: str) -> str:
    """Return a text without its marks, on one line."""
    return on_a_line(without_marks(value))


def code(value: str) -> str:
    """Return a name as a code span, which reads well raw too; as `text` if it has anything but plain characters."""
    return f"`{value}`" if _PLAIN.fullmatch(value) else text(value)


def printed(value: str) -> str:
    """Return lines of which a renderer shows all characters."""
    lines = cut(value, _LONGEST_BLOCK)
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in lines)


def fenced(value: str, language: str = "") -> str:
    """Return a fenced block that its text cannot end."""
    plain = printed(value)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", plain)), default=0))
    return f"{fence}{language}\n{plain}\n{fence}"
