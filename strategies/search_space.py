"""The space of trials: elements in their order, their structure, and which sets are allowed."""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from strategies.trial import Trial


class Closure(str, Enum):
    """Which sets may be tried."""

    FREE = "free"
    """Any set."""
    ANCESTORS = "ancestors"
    """A set holds whatever its elements depend on (the inputs of a model stay)."""
    DESCENDANTS = "descendants"
    """A set holds whatever depends on its elements (the outputs of a model stay)."""
    PLACE = "place"
    """Any set, and what depends on it is there in any case: where a failure begins only the latest start tells."""


@dataclass(frozen=True)
class Space:
    """An ordered list of elements with structure.

    ``order``: element ids, a topological order of ``parents``. ``parents[i]``: the elements that element ``i``
    depends on (empty: no structure known).
    """

    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...] = ()
    closure: Closure = Closure.FREE

    @cached_property
    def position(self) -> dict[int, int]:
        """Where each element stands in the order."""
        return {element: place for place, element in enumerate(self.order)}

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The elements that depend on each element."""
        found: list[list[int]] = [[] for _ in self.parents]
        for child, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(child)
        return tuple(tuple(children) for children in found)

    @property
    def any_set(self) -> bool:
        """Whether any set may be tried."""
        return self.closure in (Closure.FREE, Closure.PLACE) or not self.parents

    @property
    def whole(self) -> Trial:
        """All elements."""
        return Trial.of(self.order)

    def close(self, elements: Iterable[int]) -> Trial:
        """The smallest allowed trial that holds ``elements``."""
        if self.any_set:
            return Trial.of(elements)
        edges = self.parents if self.closure is Closure.ANCESTORS else self.children
        seen = set(elements)
        stack = list(seen)
        while stack:
            for element in edges[stack.pop()]:
                if element not in seen:
                    seen.add(element)
                    stack.append(element)
        return Trial.of(seen)

    def removable(self, trial: Trial) -> tuple[int, ...]:
        """The elements whose single removal leaves an allowed trial, last in the order first."""
        inside = trial.elements
        elements = sorted(inside, key=self.position.__getitem__, reverse=True)
        if self.any_set:
            return tuple(elements)
        edges = self.children if self.closure is Closure.ANCESTORS else self.parents
        return tuple(e for e in elements if not any(other in inside for other in edges[e]))

    def by_distance(self, origins: Collection[int], within: Collection[int]) -> tuple[int, ...]:
        """``within`` without ``origins``, nearest to them first along edges inside ``within``.

        A step up costs two steps down: what runtimes fuse is matched from a root downwards, so the culprits of one
        failure tend to lie below the first of them. Elements that cannot be reached come last. Of those that are as
        far, what stands closer to one of ``origins`` in the order comes first.
        """
        inside = set(within) | set(origins)
        distance = dict.fromkeys(origins, 0)
        heap = [(0, self.position[element], element) for element in origins]
        heapq.heapify(heap)
        while heap and self.parents:
            so_far, _, element = heapq.heappop(heap)
            if so_far > distance[element]:
                continue
            steps = ((self.children[element], 1), (self.parents[element], 2))
            for other, cost in ((other, cost) for others, cost in steps for other in others):
                if other in inside and so_far + cost < distance.get(other, sys.maxsize):
                    distance[other] = so_far + cost
                    heapq.heappush(heap, (so_far + cost, self.position[other], other))
        places = sorted(self.position[element] for element in origins)

        def gap(place: int) -> int:
            after = bisect_left(places, place)
            return min((abs(place - other) for other in places[max(after - 1, 0) : after + 1]), default=0)

        rest = sorted(inside - set(origins), key=self.position.__getitem__)
        return tuple(sorted(rest, key=lambda e: (distance.get(e, sys.maxsize), gap(self.position[e]))))
