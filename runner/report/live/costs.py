"""What a check to come costs: what those of candidates of about its size did, with its outcome where that is known.

As long as no check was made, verdicts that were known say it: they hold how long their checks took.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import nsmallest
from statistics import fmean
from typing import NamedTuple

NEAREST = 9
"""Checks of about the same size that tell what one costs."""
SURE, COLD = 3, 1.5
"""Of so many checks the first one is left out that took so much longer: what runs it had to start."""
REMEMBERED = 100
"""Checks whose cost is remembered."""


class _Cost(NamedTuple):
    """What a check cost. ``wanted``: it had the wanted outcome."""

    kept: int
    wanted: bool
    took: float


@dataclass(eq=False)
class Costs:
    """The costs of the last checks, in seconds."""

    _known: deque[_Cost] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _recorded: deque[_Cost] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _warm: bool = False

    def add(self, kept: int, took: float, *, wanted: bool) -> None:
        """Note what a check cost."""
        self._known.append(_Cost(kept, wanted, took))
        if len(self._known) == SURE and not self._warm:
            first, *others = self._known
            self._warm = True
            if first.took > COLD * max(one.took for one in others):
                self._known.popleft()

    def recorded(self, kept: int, took: float, *, wanted: bool) -> None:
        """Note what the check of a known verdict took."""
        if took:  # a model that could not be made took none
            self._recorded.append(_Cost(kept, wanted, took))

    def of(self, kept: int, *, wanted: bool | None) -> float | None:
        """Return what a check of a candidate of this size costs; ``wanted``: with which outcome, None: either.

        None: nobody knows.
        """
        if wanted is None:
            both = [cost for one in (True, False) if (cost := self.of(kept, wanted=one)) is not None]
            return fmean(both) if both else None
        known = self._known or self._recorded
        alike = [one for one in known if one.wanted is wanted]
        alike = alike if len(alike) > 1 else [*known]
        # the later one of two that are as near
        near = nsmallest(NEAREST, reversed(alike), key=lambda one: abs(math.log((one.kept + 1) / (kept + 1))))
        return fmean(one.took for one in near) if near else None
