"""Which tensors of a converted model hold something else than their partners, and are read accordingly.

A scale may go from a normalization into the weights of all that read it, or be multiplied in and divided out many nodes
later. Given good values the nodes at both ends come out wrong; left to what the model makes, the last ones come out
right. The tensors between have no partner then: no value of the original is good for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from runner.model.graph.graph_index import Graph
from runner.reference.align import RESHAPING

MOVES = RESHAPING | {"Transpose"}
"""Operators that make nothing wrong of a right value, unless they move its elements otherwise."""
MOST_STEPS = 8
"""So many nodes a value that is not the partner's goes on, where part of what reads it comes out wrong."""
MOST_RUNS = 24
"""Runs in a row that find nothing: then no more is asked."""

Ask = Callable[[Collection[str], Collection[str]], Collection[str]]
"""Leaves some tensors to what the model makes and returns those of others that come out right."""


class Undone:
    """``partnered``: the tensors with a partner; ``free``: those that may lose it; ``right``: right on good values."""

    def __init__(
        self, graph: Graph, partnered: Collection[str], free: Collection[str], right: Collection[str], ask: Ask
    ) -> None:
        self._graph, self._partnered, self._free, self._right, self._ask = graph, partnered, {*free}, {*right}, ask
        self._wrong = [name for name in graph.producers if name in self._free - self._right]
        self._found, self._mended, self._left = set[str](), set[str](), MOST_RUNS

    def find(self) -> frozenset[str]:
        """Return the tensors that are no partners.

        Where one of two like pairs of nodes undoes what it did, and the other does not, the fault is in either of the
        second pair's.
        """
        tried = dict[str, set[str]]()
        for name in self._wrong if len(self._wrong) > 1 else ():
            if name not in self._found | self._mended and not self._ends_right(name):
                tried[name] = self._ends_partly_right(name)
        kinds = {self._kind(name) for name in self._found}
        for name, region in tried.items():
            if self._kind(name) in kinds:
                between = self._closure(name, self._right & region)
                if (self._after(between) & {*self._wrong}) - self._found - self._mended:
                    self._found |= between
        return frozenset(self._found)

    def _ends_right(self, name: str) -> bool:
        """Whether all that follows comes out right at last; then what lies before that is found."""
        flow = self._closure(name, {*self._partnered})
        fine = self._fine(flow, flow - {name})
        between = self._closure(name, flow - fine)
        return self._take(between, self._after(between) & fine, 0) if between <= self._free else False

    def _ends_partly_right(self, name: str) -> set[str]:
        """Go on node by node until more comes out right than wrong; return the tensors that were left to the model."""
        region = {name}
        for _ in range(MOST_STEPS):
            ends = self._after(region) - self._found
            fine = self._fine(region, ends)
            lead = self._leading(fine, region)
            if name in lead and self._take(lead, fine, len((self._after(lead) - fine - self._found) & self._right)):
                break
            bad = ends - fine
            more = (bad | self._read_with(bad)) & self._free - region
            if not more:
                break
            region |= more
        return region

    def _take(self, region: set[str], fine: set[str], newly_wrong: int) -> bool:
        taken = bool(fine) and len((region | fine) - self._right) > max(1, newly_wrong)
        if taken:
            self._found |= region
            self._mended |= fine
            self._left = MOST_RUNS
        return taken

    def _fine(self, opened: set[str], ends: set[str]) -> set[str]:
        if not ends or not self._left:
            return set()
        self._left -= 1
        return {*self._ask(opened | self._found, ends)}

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
        """Return wrong tensors that the nodes before these ends read too, and what only moves those."""
        graph, found = self._graph, set[str]()
        for end in ends:
            for read in graph.nodes[graph.producers[end]].inputs:
                name, between = read, {read}
                while name in self._right and (node := graph.producer(name)) and node.op_type in MOVES:
                    name = node.inputs[0]
                    between.add(name)
                found |= between if name in self._wrong else set()
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
