"""What can be wrong with a model that was handed in."""

from __future__ import annotations


class ModelError(Exception):
    """The model file, or a file that it refers to, cannot be used; the message is one line for the user."""

    stage = "load"
