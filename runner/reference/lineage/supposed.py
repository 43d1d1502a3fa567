"""Partners found by supposing: the tensor of the parent whose value makes what depends on it come out right.

For a tensor on which something wrong depends, with nothing known between: its own node may be the culprit, so that its
own value says nothing. But if one of the parent's tensors at that place, put in its stead, makes everything after it
right, then that one is what it should have been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from runner.model.graph.index import Graph
from runner.reference.lineage.align import Kin
from runner.reference.lineage.by_value import CLEARLY, TWINS
from runner.reference.lineage.fingerprints import Print, distance
from runner.reference.lineage.pairs import Partner

MOST_TRIED = 24
"""Tensors of the parent that are tried for one of the child's; where there are more, none is."""

MOST_RIGHT = 0.8
"""Share of what depends on a tensor that its partner's value must make right: more than one thing may be wrong."""


@dataclass(frozen=True)
class Outcome:
    """``share``: of the outputs with a partner, how many are right. ``error``: of the median one."""

    share: float
    error: float


@dataclass
class Supposing:
    """Looks for partners by supposing.

    ``partners``: of the child's tensors, as far as they are known. ``tried(tensor, other, nodes)``: how these
    nodes of the child come out where its ``tensor`` holds what the parent's ``other`` does.
    """

    child: Kin
    parent: Kin
    partners: Mapping[str, Partner]
    tried: Callable[[str, str, Sequence[int]], Outcome]
    _above: dict[str, frozenset[str]] = field(default_factory=dict)

    def partner(self, tensor: str) -> str | None:
        """Return the one tensor of the parent (or one of several that hold the same) that makes it right."""
        nodes = self.segment(tensor)
        ends = [out for index in nodes for out in self.child.graph.nodes[index].outputs if out in self.partners]
        among = self._between(tensor, ends)
        if not ends or not among or len(among) > MOST_TRIED:
            return None
        outcomes = {name: self.tried(tensor, name, nodes) for name in among}
        most = max(one.share for one in outcomes.values())
        best, *others = sorted((one.error, name) for name, one in outcomes.items() if one.share == most)
        # far downstream a network forgets: what is nearly as good as the best must be the same
        rivals = [name for error, name in others if error <= CLEARLY * best[0] and not self._twins(name, best[1])]
        return best[1] if most >= MOST_RIGHT and not rivals else None

    def _twins(self, one: str, other: str) -> bool:
        mine, theirs = self._print(one), self._print(other)
        return one == other or bool(mine and theirs and distance(mine, theirs) <= TWINS)

    def segment(self, tensor: str) -> tuple[int, ...]:
        """Return the nodes that depend on a tensor, as far as the next tensors with partners."""
        graph = self.child.graph
        found: set[int] = set()
        waiting = [tensor]
        while waiting:
            for index in graph.readers.get(waiting.pop(), ()):
                if index not in found:
                    found.add(index)
                    waiting += [out for out in graph.nodes[index].outputs if out not in self.partners]
        return tuple(sorted(found))

    def _between(self, tensor: str, ends: Sequence[str]) -> tuple[str, ...]:
        """Return the parent's tensors of this shape that all of ``ends`` depend on, below what it depends on."""
        above = [self._ancestors(self.partners[end].tensor) for end in ends]
        common = frozenset.intersection(*above) if above else frozenset()
        before: set[str] = set()
        waiting = [tensor]
        while waiting:
            node = self.child.producer(waiting.pop())
            for name in node.inputs if node else ():
                if name in self.partners:
                    before |= {self.partners[name].tensor, *self._ancestors(self.partners[name].tensor)}
                else:
                    waiting.append(name)
        held = self._own(tensor)
        fixed = tensor in self.child.graph.data_independent
        return tuple(
            name
            for name in (*self.parent.graph.producers, *(self.parent.graph.initializers if fixed else ()))
            if name in common and name not in before and held and (other := self._print(name)) and other.fits(held)
        )

    def _own(self, tensor: str) -> Print | None:
        held = self.child.prints.get(tensor)
        return held.first if held and tensor in self.child.graph.data_independent else held

    def _print(self, name: str) -> Print | None:
        held = self.parent.prints.get(name)
        if held is None:
            return self.parent.weights.get(name)
        return held.first if name in self.parent.graph.data_independent else held

    def _ancestors(self, tensor: str) -> frozenset[str]:
        if tensor not in self._above:
            self._above[tensor] = _ancestors(self.parent.graph, tensor)
        return self._above[tensor]


def _ancestors(graph: Graph, tensor: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [tensor]
    while waiting:
        index = graph.producers.get(waiting.pop())
        fresh = [name for name in graph.nodes[index].inputs if name not in found] if index is not None else []
        found.update(fresh)
        waiting += fresh
    return frozenset(found)
