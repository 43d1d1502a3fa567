"""A few names of many, numbers of things, and texts on one line, for messages."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

MOST = 3


def listed(names: Collection[str], most: int = MOST) -> str:
    """Return the first names, and how many more there are: ``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(islice(names, most)) + more


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 node``, ``3 nodes``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def one_line(text: object) -> str:
    """Return a text on one line, with single blanks where it has white space."""
    return " ".join(str(text).split())
