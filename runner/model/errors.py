"""The error of a model file that cannot be used, as one printable line."""

from __future__ import annotations

# names and shapes in a damaged file may be megabytes long
_LONGEST = 400


class ModelError(Exception):
    """The model file, or a file that it refers to, cannot be used.

    The message is one printable line for the user, whatever names are in it; of a long one the middle is left out.
    """

    stage = "load"

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """Return ``text`` as one line that a terminal can show: blanks for line breaks, escapes for what has no shape."""
    line = " ".join(text.split())
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
