"""A search that is chosen by name: what it is for, how it begins, and what it can be told.

Each module of this package declares its own beside the implementation; `strategies.registry` finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strategies.bisect import First
    from strategies.precision import Prior
    from strategies.search import Step
    from strategies.search_space import Space


class Task(str, Enum):
    """What a search is for. A subject says for which of them it can be searched."""

    SUBSET = "subset"
    """A small set of elements with a property that the whole has and nothing has not."""
    RAISE = "raise"
    """The same, where a ranking is known beforehand, or only a prefix or a suffix is wanted."""
    REPEAT = "repeat"
    """No set at all: one check again and again."""
    HISTORY = "history"
    """One element of an ordered history at a time."""


@dataclass(frozen=True)
class Options:
    """What searches can be told; each reads what it names.

    ``extra_checks``: see `beyond`; None: as many as may help. ``first``: which end of a window is looked for first.
    ``named``: elements that are asked about before all others.
    ``reverse``: a suffix and not a prefix. ``prior``: what is known beforehand. ``until``: see `repeat`.
    ``start``: the element that is known to have the property; ``exhaustive``: ask all others;
    ``label``: what checks call an element; ``coarse``: elements that are searched before those between; see `nearest`.
    """

    extra_checks: int | None = None
    first: First | None = None
    named: tuple[int, ...] = ()
    reverse: bool = False
    prior: Prior | None = None
    until: str = "bad"
    start: int = 0
    exhaustive: bool = False
    coarse: tuple[int, ...] = ()
    label: Callable[[int], str] = str


@dataclass(frozen=True)
class Procedure:
    """``begin`` gives the first step. ``reads``: the settings of a strategy that make a difference to it."""

    name: str
    task: Task
    begin: Callable[[Space, Options], Step]
    reads: tuple[str, ...] = ()
