"""The detail of a signature: one line of a failure's text without what changes from candidate to candidate.

Names, numbers, paths and addresses change while a model shrinks, so they go; what is left is a hint for a person,
never a criterion (an error message may blame another node after the next cut and still be the same failure).
"""

from __future__ import annotations

import re

from runner.verdict import LONGEST

_WORD = re.compile(r"(?!(?:nan|inf|e[-+]?\d+)\b)(?<![\w.])[^\W\d_]{2}")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # quoted names; an apostrophe inside a word (can't) opens no quotation
    (re.compile(r"`[^`']*[`']|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\""), "_"),
    # what ONNX Runtime puts behind "node" and "name": Node:Conv_3, node (Conv_3), Name:x
    (re.compile(r"\b([Nn]ode|[Nn]ame|[Tt]ensor|[Ii]nput|[Oo]utput)(?:\s*:\s*|\s*\(|\s*=\s*)[^\s,;()]+\)?"), r"\1 _"),
    # file paths, absolute or with at least two separators, with an optional line number
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.~+-]*/){1,}[\w.~+-]*/?[\w.+-]*(?::\d+)*"), "_"),
    (re.compile(r"\b[\w-]+\.(?:bin|cc|cpp|cu|data|engine|h|hpp|log|np[yz]|onnx|pb|py|so)(?::\d+)*"), "_"),
    # numpy's arrays: how many rows are shown depends on the shape
    (re.compile(r"\barray\(.*"), "array"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,}\b"), "#"),
    (re.compile(r"[-+]?\b(?:nan|inf)\b"), "#"),
    # names that were numbered: Conv_3, t12, but not fp16 or i64
    (re.compile(r"\b[A-Za-z]\w*_\d+\w*|\b(?!(?:fp|bf|[fisu])\d+\b)[a-z]{1,3}\d+\b"), "_"),
    (re.compile(r"[-+]?(?<![A-Za-z0-9])\d+(?:\.\d+)*(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"#(?:\s*[,x]\s*#|\s+#)+"), "#"),
    # 1 element, 2 elements; one name, two names
    (re.compile(r"(#\s+(?!is\b|has\b|was\b|as\b)[a-z]+?)s\b"), r"\1"),
    (re.compile(r"_(?:,\s*_)+"), "_"),
    (re.compile(r"\s+"), " "),
)


def plain(text: str) -> str:
    """The text without what colors it on a terminal."""
    return _ANSI.sub("", text)


def last_line(text: str) -> str:
    """The last line that says something: not blank, not only punctuation (a caret line below an error)."""
    lines = plain(text).splitlines()
    # a line of an array that was printed says something only where nothing else does
    for says in (_WORD, re.compile(r"\w{2}")):
        for line in reversed(lines):
            if says.search(line):
                return line.strip()
    return ""


def normalize(text: str) -> str:
    """``text``'s last meaningful line without names, numbers, hex, paths; at most 160 characters."""
    line = last_line(text)[:2000]
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    return line.strip()[:LONGEST]
