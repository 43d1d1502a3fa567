"""Say something to the user, whatever the terminal can show and even if nobody reads it any more."""

from __future__ import annotations

import sys
from contextlib import suppress

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
