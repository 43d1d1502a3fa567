"""The code blocks of a Markdown page, each with what a comment before it says about how it is to be taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ELSEWHERE = ("gpu", "slurm", "docker", "network")
"""What a machine for tests need not have: such blocks are not run, but their settings are composed."""
MARKS = (*ELSEWHERE, "output", "prints", "settings", "quoted", "exits")
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.S)
_TITLE = re.compile(r'title="([^"]*)"')
_OPERATORS = re.compile(r"[|;&<>`]|\$\(|\$\?|^\s*(if|for|while|case|cd|export|[A-Z_]+=)\b")


@dataclass(frozen=True)
class Block:
    """``mark``: how to take it; "" for code that runs, ``words``: what stands behind the mark. ``title``: its file."""

    page: str
    line: int
    language: str
    title: str
    mark: str
    words: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.mark in ("", "exits", "prints", "quoted", "settings")

    def commands(self) -> list[str]:
        """The commands of a block for a shell, one each; the whole, where it is a program."""
        joined = re.sub(r"\\\n\s*", " ", self.text)
        lines = [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        plain = [re.sub(r"'[^']*'|\"[^\"]*\"|\s#.*", "", line) for line in lines]
        return [self.text] if any(map(_OPERATORS.search, plain)) else lines


def plain(text: str) -> str:
    """Return what is printed without what differs from run to run: times, dates, and where lines are broken."""
    text = re.sub(r"\d{4}-\d\d-\d\d[/T ]\d\d[-:]\d\d[-:]\d\d(-\d{6})?", "DATE/TIME", text)
    text = re.sub(r"(under |[\d.]+ to )?[\d.]+ (s|min|h)\b", "TIME", text)
    return " ".join(text.split())


def shown(block: str, printed: str) -> bool:
    """Tell whether all of a block stands in what was printed, in its order; ``...`` stands for anything."""
    parts = [re.escape(plain(part)) for part in block.split("...")]
    return re.search(r"\s*.*?\s*".join(parts), plain(printed)) is not None


def blocks(path: Path, root: Path) -> Iterator[Block]:
    """Yield the blocks of a page in their order, indented ones included."""
    mark: list[str] = []
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text()):
        if token.type == "html_block":
            mark = [found for found in _COMMENT.findall(token.content) if found.split()[0] in MARKS]
        elif token.type in ("fence", "code_block"):
            title, words = _TITLE.search(token.info), mark[0].split() if mark else [""]
            line = (token.map or [0])[0] + 1
            language = token.info.split()[0] if token.info else ""
            yield Block(
                path.relative_to(root).as_posix(), line, language, title[1] if title else "", words[0],
                tuple(words[1:]), token.content,
            )  # fmt: skip
            mark = []
        elif token.type.endswith("_open"):
            mark = []
