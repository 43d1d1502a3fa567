"""The detail of a signature: one line of a failure's text without what changes from candidate to candidate.

Names, numbers, paths and addresses change while a model shrinks, so they go; what is left is a hint for a person,
never a criterion (an error message may blame another node after the next cut and still be the same failure).
"""

from __future__ import annotations

import re

LONGEST = 160

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # quoted names; an apostrophe inside a word (can't) opens no quotation
    (re.compile(r"`[^`']*[`']|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\""), "_"),
    # what ONNX Runtime puts behind "node" and "name": Node:Conv_3, node (Conv_3), Name:x
    (re.compile(r"\b([Nn]ode|[Nn]ame|[Tt]ensor|[Ii]nput|[Oo]utput)(?:\s*:\s*|\s*\(|\s*=\s*)[^\s,;()]+\)?"), r"\1 _"),
    # file paths, absolute or with at least two separators, with an optional line number
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.~+-]*/){1,}[\w.~+-]*/?[\w.+-]*(?::\d+)*"), "_"),
    (re.compile(r"\b[\w-]+\.(?:cc|cpp|cu|h|hpp|py|so)(?::\d+)*"), "_"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,}\b"), "#"),
    (re.compile(r"[-+]?\b(?:nan|inf)\b"), "#"),
    (re.compile(r"[-+]?(?<![A-Za-z])\d+(?:\.\d+)*(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"#(?:\s*[,x]\s*#)+"), "#"),
    (re.compile(r"\s+"), " "),
)


def plain(text: str) -> str:
    """The text without what colors it on a terminal."""
    return _ANSI.sub("", text)


def last_line(text: str) -> str:
    """The last line that says something: not blank, not only punctuation (a caret line below an error)."""
    for line in reversed(plain(text).splitlines()):
        if re.search(r"\w{2}", line):
            return line.strip()
    return ""


def normalise(text: str) -> str:
    """``text``'s last meaningful line without names, numbers, hex, paths; at most 160 characters."""
    line = last_line(text)[:2000]
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    return line.strip()[:LONGEST]
