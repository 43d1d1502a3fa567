"""Say something to the user, whatever the terminal can show and even if nobody reads it any more."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(text: str, *, error: bool = False) -> None:
    """Write a line (or some) to stdout, or to stderr. Characters that the terminal cannot show are escaped."""
    stream = sys.stderr if error else sys.stdout
    encoding = stream.encoding or "utf-8"
    with suppress(OSError):  # a closed pipe must not change how a run ends
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
