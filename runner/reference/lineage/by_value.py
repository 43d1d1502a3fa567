"""Known again by value: of many tensors the one that holds these numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from runner.reference.lineage.fingerprints import CLOSE, Print, distance

CLEARLY = 3.0
"""How much further off another tensor must be, unless it holds the same as the nearest."""
TWINS = 1e-6
"""Parts of the scale within which two tensors of one model hold the same."""


class Album:
    """The prints of a model's tensors, to find one in."""

    def __init__(self, prints: Mapping[str, Print]) -> None:
        self._prints = prints
        self._names: dict[Any, list[str]] = {}
        for name, one in prints.items():
            if one.telling:
                self._names.setdefault((one.kind, one.shapes), []).append(name)
        self._means = {key: np.array([_mean(prints[name]) for name in names]) for key, names in self._names.items()}

    def find(self, held: Print, among: Collection[str] | None, liking: Callable[[str], Any]) -> str | None:
        """Return the tensor that holds what ``held`` holds, None if there is none or several that differ could be.

        ``among``: only these are looked at. Of several that hold the same numbers it does not matter which: the one
        whose ``liking`` is least.
        """
        key = (held.kind, held.shapes)
        if key not in self._names:
            return None
        # a mean is never further off than the share of odd elements and the closeness of the others allow
        bound = (CLOSE + 3 * CLOSE) * max(held.scale, 1e-300)
        hits = np.flatnonzero(np.abs(self._means[key] - _mean(held)) <= bound)
        near = []
        for at in hits:
            name = self._names[key][at]
            if among is None or name in among:
                far = distance(held, self._prints[name])
                if far <= CLOSE:
                    near.append((far, name))
        if not near:
            return None
        least, best = min(near)
        rivals = [name for far, name in near if far <= max(CLEARLY * least, TWINS)]
        if any(distance(self._prints[name], self._prints[best]) > TWINS for name in rivals):
            return None
        return min(rivals, key=liking)


def _mean(one: Print) -> float:
    finite = one.numbers[np.isfinite(one.numbers)]
    return float(finite.mean()) if finite.size else 0.0
