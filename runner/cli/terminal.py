"""Say something to the user, whatever the terminal can show and even if nobody reads it any more."""

from __future__ import annotations

import sys
from contextlib import suppress


def printable(text: str) -> str:
    """Return ``text`` with escapes for control characters: names in a model must not drive the terminal."""
    return "".join(letter if letter in "\n\t" or letter.isprintable() else repr(letter)[1:-1] for letter in text)


def say(text: str, *, error: bool = False) -> None:
    """Write a line (or some) to stdout, or to stderr. Characters that the terminal cannot show are escaped."""
    stream = sys.stderr if error else sys.stdout
    encoding = stream.encoding or "utf-8"
    with suppress(OSError):  # a closed pipe must not change how a run ends
        stream.write(printable(text).encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
