"""Where else in a graph the pattern of some nodes stands: the same operators, attributes, types and wiring.

A fusion or a kernel that is wrong is wrong wherever its pattern is, and the same block stands many times in most
models. Each connected piece of the nodes is looked for by itself, by matching along its edges from one node on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from onnx import AttributeProto, TypeProto

from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import Graph

MOST_NODES = 200
"""A piece of more nodes is not looked for: it is no repeated pattern, and its copies would cover the model."""
MOST_TRIED = 100_000
"""Pairs of nodes that are compared at most: beyond that, what was found so far is the answer."""


Pattern: TypeAlias = "Sequence[tuple[int, tuple[int, int, int] | None]]"
"""The nodes of one connected piece, each with how it is linked to an earlier one (the first: None).

(which, -1, slot): it gives that node's input ``slot``; (which, slot, place): it reads that node's output ``slot`` as
its input ``place``.
"""


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
    neighbors: dict[int, set[int]] = {index: set() for index in nodes}
    for index in nodes:
        for parent in neighbors.keys() & graph.parents[index]:
            neighbors[index].add(parent)
            neighbors[parent].add(index)
    while left:
        piece, waiting = set(), {min(left)}
        while waiting:
            piece |= waiting
            waiting = set().union(*(neighbors[index] for index in waiting)) - piece
        left -= piece
        found.append(frozenset(piece))
    return tuple(found)


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

    def _pattern(self, piece: frozenset[int]) -> Pattern:
        """Order the nodes of a piece so that each hangs on an earlier one; the first is of the rarest operator."""
        counts: dict[str, int] = {}
        for node in self._graph.nodes:
            counts[node.op_type] = counts.get(node.op_type, 0) + 1
        first = min(sorted(piece), key=lambda index: counts[self._graph.nodes[index].op_type])
        steps: list[tuple[int, tuple[int, int, int] | None]] = [(first, None)]
        placed = {first}
        while len(placed) < len(piece):
            step = next(step for step in self._edges(piece, placed) if step[0] not in placed)
            steps.append(step)
            placed.add(step[0])
        return steps

    def _edges(self, piece: frozenset[int], placed: set[int]) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Yield the edges between placed nodes and others of the piece."""
        producers = self._graph.producers
        for index in sorted(piece):
            for slot, name in enumerate(self._graph.nodes[index].inputs):
                giver = producers.get(name)
                if giver is None or giver not in piece:
                    continue
                if index in placed and giver not in placed:
                    yield giver, (index, -1, slot)
                elif giver in placed and index not in placed:
                    yield index, (giver, self._graph.nodes[giver].outputs.index(name), slot)

    def _match(self, pattern: Pattern, match: dict[int, int]) -> dict[int, int] | None:
        """Extend a match node by node; None where the pattern does not stand there."""
        at = len(match) - 1
        node = pattern[at][0]
        self._tried += 1
        if self._tried > MOST_TRIED or not self._alike(match, node):
            return None
        if len(match) == len(pattern):
            return match
        following, link = pattern[at + 1]
        assert link is not None
        for candidate in self._candidates(match, link):
            if candidate not in match.values() and (found := self._match(pattern, {**match, following: candidate})):
                return found
        return None

    def _candidates(self, match: Mapping[int, int], link: tuple[int, int, int]) -> Sequence[int]:
        earlier, slot, place = link
        there = self._graph.nodes[match[earlier]]
        if slot < 0:
            giver = self._graph.producers.get(there.inputs[place]) if place < len(there.inputs) else None
            return () if giver is None else (giver,)
        return self._graph.readers.get(there.outputs[slot], ()) if slot < len(there.outputs) else ()

    def _alike(self, match: Mapping[int, int], node: int) -> bool:
        """Whether the node matched last is of the same kind, and wired to the matched ones in the same way."""
        mine, theirs = self._graph.nodes[node], self._graph.nodes[match[node]]
        if self._label(node) != self._label(match[node]):
            return False
        back = {there: here for here, there in match.items()}
        producers = self._graph.producers
        for one, other in zip(mine.inputs, theirs.inputs, strict=True):
            here, there = producers.get(one), producers.get(other)
            if here in match or there in back:
                if here is None or there is None or match.get(here) != there:
                    return False
                if self._graph.nodes[here].outputs.index(one) != self._graph.nodes[there].outputs.index(other):
                    return False
        return True

    def _label(self, index: int) -> tuple[object, ...]:
        if index not in self._labels:
            node, proto = self._graph.nodes[index], self._graph.protos[index]
            self._labels[index] = (
                node.domain,
                node.op_type,
                tuple(sorted(_attribute(one) for one in proto.attribute)),
                tuple(bool(name) for name in proto.input),
                tuple(name in self._graph.initializers for name in node.inputs),
                tuple(self._dtype(name) for name in (*node.inputs, *node.outputs)),
            )
        return self._labels[index]

    def _dtype(self, name: str) -> int:
        if name in self._graph.initializers:
            return int(getattr(self._graph.initializers[name], "data_type", 0))
        found = self._types.get(name)
        return int(found.tensor_type.elem_type) if found is not None else 0


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
