"""Where else in a graph the pattern of some nodes stands: the same operators, attributes, types and wiring.

A fusion or a kernel that is wrong is wrong wherever its pattern is, and the same block stands many times in most
models. Each connected piece of the nodes is looked for by itself, by matching along its edges from one node on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from onnx import AttributeProto, TypeProto

from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import Graph

MOST_NODES = 200
"""A piece of more nodes is not looked for: it is no repeated pattern, and its copies would cover the model."""
MOST_TRIED = 100_000
"""Pairs of nodes that are compared at most: beyond that, what was found so far is the answer."""


def instances(graph: Graph, nodes: Collection[int], types: Mapping[str, TypeProto]) -> tuple[frozenset[int], ...]:
    """Return every set of elements that looks like ``nodes``, in the file's order.

    Of nodes in several pieces: every set that looks like one of the pieces. The nodes themselves are among them.
    ``types``: of tensors, by name, as far as they are known.
    """
    finder = _Finder(graph, types)
    found: dict[frozenset[int], None] = {}
    for piece in pieces(graph, nodes):
        if len(piece) > MOST_NODES:
            return (frozenset(nodes),)
        # of nodes that look alike beside one start only one is matched, which need not be the piece's own
        found.update(dict.fromkeys((piece, *finder.find(piece))))
    return tuple(sorted(found, key=sorted))


def pieces(graph: Graph, nodes: Collection[int]) -> tuple[frozenset[int], ...]:
    """Return the connected pieces of a set of elements: nodes are connected where one reads what the other gives."""
    left, found = set(nodes), []
    while left:
        piece, waiting = set[int](), {min(left)}
        while waiting:
            piece |= waiting
            waiting = {near for index in waiting for near in _beside(graph, index)} & left - piece
        left -= piece
        found.append(frozenset(piece))
    return tuple(found)


def _beside(graph: Graph, index: int) -> set[int]:
    """The nodes that a node reads from, and those that read it."""
    read_by = (graph.readers.get(name, ()) for name in graph.nodes[index].outputs)
    return {*graph.parents[index]}.union(*read_by)


class _Finder:
    def __init__(self, graph: Graph, types: Mapping[str, TypeProto]) -> None:
        self._graph = graph
        self._types = types
        self._labels: dict[int, tuple[object, ...]] = {}
        self._tried = 0

    def find(self, piece: frozenset[int]) -> Iterator[frozenset[int]]:
        """Yield the sets of nodes that look like a connected piece."""
        pattern = self._pattern(piece)
        first = pattern[0][0]
        operator = self._graph.nodes[first].op_type
        for node in self._graph.nodes:
            if node.op_type == operator and (match := self._match(pattern, {first: node.index})):
                yield frozenset(match.values())

    def _pattern(self, piece: frozenset[int]) -> list[tuple[int, int]]:
        """Return the nodes of a piece, each with an earlier one beside it; the first is of the rarest operator."""
        counts = Counter(node.op_type for node in self._graph.nodes)
        first = min(sorted(piece), key=lambda index: counts[self._graph.nodes[index].op_type])
        steps, placed = [(first, first)], {first}
        for node, _ in steps:  # which grow
            new = sorted(_beside(self._graph, node) & piece - placed)
            steps += [(one, node) for one in new]
            placed.update(new)
        return steps

    def _match(self, pattern: Sequence[tuple[int, int]], match: dict[int, int]) -> dict[int, int] | None:
        """Extend a match node by node; None where the pattern does not stand there."""
        self._tried += 1
        if self._tried > MOST_TRIED or not self._alike(match, pattern[len(match) - 1][0]):
            return None
        if len(match) == len(pattern):
            return match
        following, earlier = pattern[len(match)]
        for candidate in sorted(_beside(self._graph, match[earlier]).difference(match.values())):
            if found := self._match(pattern, {**match, following: candidate}):
                return found
        return None

    def _alike(self, match: Mapping[int, int], node: int) -> bool:
        """Whether the node matched last is of the same kind, and wired to the matched ones in the same way."""
        other, there = match[node], set(match.values())
        if self._label(node) != self._label(other):
            return False
        mine = {match[one]: self._wires(one, node) for one in _beside(self._graph, node) if one in match}
        return mine == {one: self._wires(one, other) for one in _beside(self._graph, other) if one in there}

    def _wires(self, one: int, other: int) -> list[tuple[int, int, bool]]:
        """Return which outputs of either of two nodes are which inputs of the other."""
        nodes = self._graph.nodes
        return [
            (place, nodes[giver].outputs.index(name), giver == one)
            for giver, reader in ((one, other), (other, one))
            for place, name in enumerate(nodes[reader].inputs)
            if self._graph.producers.get(name) == giver
        ]

    def _label(self, index: int) -> tuple[object, ...]:
        if index not in self._labels:
            node, proto = self._graph.nodes[index], self._graph.protos[index]
            self._labels[index] = (
                node.domain,
                node.op_type,
                tuple(sorted(_attribute(one) for one in proto.attribute)),
                tuple(bool(name) for name in proto.input),
                tuple(name in self._graph.initializers for name in node.inputs),
                tuple(self._graph.dtype(name, self._types) for name in (*node.inputs, *node.outputs)),
            )
        return self._labels[index]


def _attribute(attribute: AttributeProto) -> tuple[str, bytes]:
    """Return an attribute by name and value; of a nested graph, which operators it has."""
    graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    if graphs:
        operators = [node.op_type for graph in graphs for node in scopes.all_nodes(list(graph.node))]
        return attribute.name, " ".join(operators).encode()
    bare = copy_of(attribute)
    for tensor in scopes.attribute_tensors([bare]):
        tensor.name = ""
    bare.doc_string = ""
    return attribute.name, bare.SerializeToString(deterministic=True)
