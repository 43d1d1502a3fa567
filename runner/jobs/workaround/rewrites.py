"""Rewrites: the same computation in other nodes, so that an optimization finds no pattern, or a kernel is not used.

The smallest change comes first: an inner tensor as an output, a node between two nodes, a node written out. Where the
pattern of the culprits stands at several places, it is rewritten at all of them, and at one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import TensorProto, TypeProto, helper

from runner.jobs.workaround.other_nodes import written_otherwise
from runner.model.graph.edits import Edit, Expose, Insert, Read
from runner.model.graph.find_pattern import instances
from runner.model.graph.graph_index import Graph
from runner.model.graph.rename import NameSupply, names_of
from runner.model.graph.wider_types import WiderTypes
from runner.text import listed

MOST_NAMED = 2
"""Places that are changed together and each told; of more only the first is."""
MOST_SINGLE = 8
"""Places of one kind that are tried one by one; of more only all together."""
_COMPARED = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16})
"""Element types that Max, or And, takes."""


@dataclass(frozen=True)
class Rewrite:
    """``what``: one line for people; ``change``, ``where``: the same of one place of many. ``places``: how many."""

    what: str
    edits: tuple[Edit, ...]
    change: str = ""
    where: str = ""
    places: int = 1


@dataclass
class Rewriting:
    """Rewrites around nodes of a graph. ``types``: of tensors, as far as they are known."""

    graph: Graph
    types: Mapping[str, TypeProto]
    _supply: NameSupply = field(init=False)

    def __post_init__(self) -> None:
        self._supply = NameSupply(names_of(self.graph.model))

    def around(self, nodes: Collection[int]) -> Iterator[Rewrite]:
        """Yield rewrites, those first that change least."""
        alike = self._alike(nodes)
        for places in (self._exposed, self._parted, self._otherwise, self._bordered):
            yield from _tried(places(nodes), places(alike))

    def raised(self, nodes: Collection[int]) -> Iterator[Rewrite]:
        """Yield what runs nodes in float32, and more and more of those behind them; nothing where none is low."""
        wider, told = WiderTypes(self.graph, self.types, supply=self._supply), set[str]()
        for several in wider.grown(nodes):
            names = [self.graph.nodes[index].name for index in several if wider.is_low(index)]
            what = f"in float32: {listed(names)}"
            what = f"in float32: {', '.join(names)}" if what in told else what
            told.add(what)
            yield Rewrite(what, tuple(wider.edits(several)), places=len(names))

    def _alike(self, nodes: Collection[int]) -> frozenset[int]:
        """Return the nodes of all places where the pattern of some nodes stands."""
        return frozenset(nodes).union(*instances(self.graph, nodes, self.types))

    # ---- one place each

    def _exposed(self, nodes: Collection[int]) -> list[Rewrite]:
        """Return what hands out the tensors between nodes; a model is valid only with their types and ranks."""
        found = []
        for name in dict.fromkeys(name for name, _ in self._inner(nodes) if name not in self.graph.outputs):
            kind = self.types[name].tensor_type if name in self.types else None
            if kind is not None and kind.elem_type and kind.HasField("shape"):
                edit = Expose(name, kind.elem_type, len(kind.shape.dim))
                found.append(Rewrite(f"{name} as an output besides", (edit,), "an output besides", name))
        return found

    def _parted(self, nodes: Collection[int]) -> list[Rewrite]:
        """Return what puts a node between two of them."""
        return self._kept_apart(self._inner(nodes))

    def _bordered(self, nodes: Collection[int]) -> list[Rewrite]:
        """Return what puts a node between one of them and another."""
        return self._kept_apart(self._border(nodes))

    def _otherwise(self, nodes: Collection[int]) -> list[Rewrite]:
        """Return what writes a node in other operators."""
        found = []
        for index in sorted(nodes):
            node = self.graph.nodes[index]
            if edits := written_otherwise(self.graph, index, self.types, self._supply):
                what = f"{node.name} ({node.op_type}) in other operators"
                found.append(Rewrite(what, tuple(edits), "other operators", node.name))
        return found

    def _kept_apart(self, edges: Sequence[tuple[str, int]]) -> list[Rewrite]:
        """Return what puts the larger of a tensor and itself, which no runtime takes out, before its reader."""
        found = []
        for name, reader in edges:
            node, dtype = self.graph.nodes[reader], self._dtype(name)
            if (dtype and dtype not in _COMPARED) or name not in self.graph.protos[reader].input:
                continue  # a graph nested in the reader reads it
            between = self._supply.fresh(f"{name}__kept")
            operator = "And" if dtype == TensorProto.BOOL else "Max"
            made = helper.make_node(operator, [name, name], [between], name=between)
            edits = Insert(made, before=node.outputs[0]), Read(node.outputs[0], name, between)
            what = f"{operator}({name}, {name}) before {node.name}"
            found.append(Rewrite(what, edits, f"an extra {operator}", f"before {node.name}"))
        return found

    # ---- where

    def _inner(self, nodes: Collection[int]) -> list[tuple[str, int]]:
        """Return (tensor, its reader) for what nodes hand each other."""
        inside = frozenset(nodes)
        return [
            (name, index)
            for index in sorted(inside)
            for name in dict.fromkeys(self.graph.nodes[index].inputs)
            if self.graph.producers.get(name) in inside
        ]

    def _border(self, nodes: Collection[int]) -> list[tuple[str, int]]:
        """Return (tensor, its reader) for what nodes read from others, and what others read from them."""
        inside, graph = frozenset(nodes), self.graph
        fixed = {*graph.initializers, *graph.data_independent}
        comes = [
            (name, index)
            for index in sorted(inside)
            for name in dict.fromkeys(graph.nodes[index].inputs)
            if name not in fixed and graph.producers.get(name) not in inside
        ]
        made = [name for index in sorted(inside) for name in graph.nodes[index].outputs]
        return comes + [
            (name, reader) for name in made for reader in graph.readers.get(name, ()) if reader not in inside
        ]

    def _dtype(self, name: str) -> int:
        return WiderTypes(self.graph, self.types).dtype(name)


def _tried(own: Sequence[Rewrite], alike: Sequence[Rewrite]) -> Iterator[Rewrite]:
    """Yield the rewrites of all places of the pattern, of each place, and of all of them.

    What is done at one place of several may pass, and leave the others wrong.
    """
    if len(alike) > len(own):
        yield _together(alike)
    if len(own) <= MOST_SINGLE:
        yield from own
    if len(own) > 1:
        yield _together(own)


def _together(places: Sequence[Rewrite]) -> Rewrite:
    what = ", ".join(one.what for one in places)
    if len(places) > MOST_NAMED:
        changes = " or ".join(dict.fromkeys(one.change for one in places))
        what = f"{changes} at {len(places)} places, the first: {places[0].where}"
    return Rewrite(what, tuple(edit for one in places for edit in one.edits), places=len(places))
