"""Which tensors of a converted model hold something else than their partners, and are read accordingly.

A scale may go from a normalization into the weights of all that read it, or be multiplied in and divided out many nodes
later. Given good values the nodes at both ends come out wrong; left to what the model makes, the last ones come out
right. The tensors between have no partner then: no value of the original is good for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from runner.model.graph.graph_index import Graph

MOST_STEPS = 12
"""So many nodes a value that is not the partner's goes on, where part of what reads it comes out wrong."""
MOST_RUNS = 16
"""Runs in a row that find nothing: then no more is asked."""

Ask = Callable[[Collection[str], Collection[str]], tuple[Collection[str], Collection[str]]]
"""Leaves some tensors to what the model makes and returns those of others that come out right, and nearer to that."""


class Undone:
    """``partnered``: the tensors with a partner; ``free``: those that may lose it; ``right``: right on good values."""

    def __init__(
        self, graph: Graph, partnered: Collection[str], free: Collection[str], right: Collection[str], ask: Ask
    ) -> None:
        self._graph, self._partnered, self._free, self._right, self._ask = graph, partnered, {*free}, {*right}, ask
        self._wrong = [name for name in graph.producers if name in self._free - self._right]
        self._found, self._mended, self._tried, self._left = set[str](), set[str](), dict[str, set[str]](), MOST_RUNS

    def find(self) -> frozenset[str]:
        """Return the tensors that are no partners.

        Each way of asking is tried on all that is wrong before the next one, which is weaker. Where one of two like
        pairs of nodes undoes what it did, and the other does not, the fault is in either node of the second pair. So
        it is where what was wrong only comes nearer to what is right.
        """
        for ask in (self._ends_right, self._ends_partly_right, self._like_another, self._ends_nearer):
            left, self._left = self._wrong_ones(), MOST_RUNS
            for name in left if len(left) > 1 else ():
                if name not in self._found | self._mended:
                    ask(name)
            if ask in (self._ends_partly_right, self._ends_nearer):
                self._all_end_better(nearer_counts=ask == self._ends_nearer)
        return frozenset(self._found)

    def _all_end_better(self, *, nearer_counts: bool) -> None:
        """Find what lies between all that is wrong and what comes out right of it: a state may have many beginnings."""
        left = self._wrong_ones()
        flow = set[str]().union(*(self._closure(name, {*self._partnered}) for name in left)) if len(left) > 1 else set()
        self._left = 1
        fine, nearer = self._asked(flow, flow)
        better = fine | (nearer - self._mended if nearer_counts else set())
        between = self._leading(better, flow - better)
        if between <= self._free and not better <= self._right:
            self._take(between, fine, better - fine, 0)

    def _wrong_ones(self) -> list[str]:
        return [name for name in self._wrong if name not in self._found | self._mended]

    def _like_another(self, name: str) -> None:
        kinds = {self._kind(one) for one in self._found}
        if self._kind(name) in kinds:
            between = self._closure(name, self._right & self._tried.get(name, set()))
            if not self._after(between).isdisjoint(self._wrong_ones()):
                self._found |= between

    def _ends_right(self, name: str) -> None:
        """Find what lies before tensors that come out right, if all that follows does so at last."""
        flow = self._closure(name, {*self._partnered})
        fine, _ = self._asked(flow, flow - {name})
        between = self._closure(name, flow - fine)
        if between <= self._free:
            self._take(between, self._after(between) & fine, set(), 0)

    def _ends_partly_right(self, name: str, *, nearer_counts: bool = False) -> None:
        """Go on node by node until more comes out right than wrong."""
        region = {name}
        for _ in range(MOST_STEPS):
            ends = self._after(region) - self._found
            fine, nearer = self._asked(region, ends)
            nearer = nearer - self._mended if nearer_counts else set()
            lead = self._leading(fine | nearer, region)
            bad = self._after(lead) - fine - self._found
            if name in lead and self._take(lead, fine, nearer, len(bad & self._right)):
                break
            bad = ends - fine
            more = (bad | self._read_with(bad)) & self._free - region
            if not more:
                break
            region |= more
        self._tried[name] = region

    def _ends_nearer(self, name: str) -> None:
        self._ends_partly_right(name, nearer_counts=True)

    def _take(self, region: set[str], fine: set[str], nearer: set[str], newly_wrong: int) -> bool:
        better = fine | nearer
        taken = bool(better) and len((region | better) - self._right) > max(1, newly_wrong)
        taken = taken and not (nearer and newly_wrong)
        if taken:
            self._found |= region
            self._mended |= fine
            self._left = MOST_RUNS
        return taken

    def _asked(self, opened: set[str], ends: set[str]) -> tuple[set[str], set[str]]:
        if not ends or not self._left:
            return set(), set()
        self._left -= 1
        fine, nearer = self._ask(opened | self._found, ends)
        return {*fine}, {*nearer}

    def _after(self, region: set[str]) -> set[str]:
        return set[str]().union(*map(self._ends, region)) - region

    def _leading(self, fine: set[str], region: set[str]) -> set[str]:
        """Return those of a region that lead through it to tensors that come out right."""
        found = set[str]()
        while more := {one for one in region - found if not self._ends(one).isdisjoint(fine | found)}:
            found |= more
        return found

    def _closure(self, name: str, among: Collection[str]) -> set[str]:
        """Return a tensor and those ``among`` others that depend on it through these."""
        found, waiting = {name}, [name]
        while waiting:
            new = self._ends(waiting.pop()).intersection(among) - found
            found |= new
            waiting += new
        return found

    def _read_with(self, ends: Collection[str]) -> set[str]:
        """Return the nearest wrong tensors that the nodes before these ends depend on, and what lies between."""
        graph, after, level, found = self._graph, dict[str, str](), [*ends], set[str]()
        left = self._wrong_ones()
        for _ in range(MOST_STEPS):
            above = [(read, name) for name in level for read in graph.nodes[graph.producers[name]].inputs]
            level = []
            for read, name in above:
                goes_on = name not in left or name in ends or read in left
                if goes_on and read in graph.producers and read not in {*after, *ends}:
                    after[read] = name
                    level.append(read)
        for wrong in left:
            name = wrong
            while name in after and name not in found:
                found.add(name)
                name = after[name]
        return found

    def _kind(self, name: str) -> tuple[str, ...]:
        graph = self._graph
        ends = {graph.nodes[graph.producers[one]].op_type for one in self._ends(name)}
        return (graph.nodes[graph.producers[name]].op_type, *sorted(ends))

    def _ends(self, name: str) -> set[str]:
        """Return the next tensors with partners after one."""
        graph, seen, waiting = self._graph, set[str](), [name]
        while waiting:
            made = {one for at in graph.readers.get(waiting.pop(), ()) for one in graph.nodes[at].outputs} - seen
            seen |= made
            waiting += made.difference(self._partnered)
        return seen.intersection(self._partnered)
