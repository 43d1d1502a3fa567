"""Warnings that each step would repeat: about one model and one check, said once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class _Once(logging.Filter):
    """Lets a warning pass when it is said for the first time."""

    def __init__(self, known: Iterable[str]) -> None:
        super().__init__()
        self._said: set[str] = set(known)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown."""
        if record.levelno != logging.WARNING:
            return True
        said = record.getMessage()
        new = said not in self._said
        self._said.add(said)
        return new


@contextmanager
def said_once(known: Iterable[str] = ()) -> Iterator[None]:
    """Have each handler show a warning once, as long as this lasts; ``known``: not at all."""
    added = [(handler, _Once(known)) for handler in logging.getLogger().handlers]
    for handler, once in added:
        handler.addFilter(once)
    try:
        yield
    finally:
        for handler, once in added:
            handler.removeFilter(once)
