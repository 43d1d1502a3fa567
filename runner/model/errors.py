"""The error of a model file that cannot be used, as one printable line."""

from __future__ import annotations

from runner.text import one_line


class ModelError(Exception):
    """The model file, or a file that it refers to, cannot be used.

    The message is one printable line for the user, whatever names are in it; of a long one the middle is left out.
    """

    stage = "load"

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class NoRoomForWeights(ModelError):  # noqa: N818 - the name is the message
    """The disk cannot hold the run's copy of the weights."""
