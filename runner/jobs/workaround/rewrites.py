"""Rewrites: the same computation in other nodes, so that an optimization finds no pattern, or a kernel is not used.

The smallest change comes first: an inner tensor as an output, a node between two nodes, a node written out. Where the
pattern of the culprits stands at several places, it is rewritten at one of them, and at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import TensorProto, TypeProto, helper

from runner.jobs.workaround.edits import Edit, Expose, Insert, Make, Read
from runner.jobs.workaround.other_nodes import written_otherwise
from runner.model.graph.find_pattern import instances
from runner.model.graph.graph_index import Graph
from runner.model.graph.rename import NameSupply, names_of
from runner.text import listed

MOST_SINGLE = 8
"""Places of one kind that are tried one by one; of more only all together."""
_COMPARED = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16})
"""Element types that Max, or And, takes."""
_LOW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPED = frozenset({"Cast", "CastLike", "Constant", "ConstantOfShape", "EyeLike", "QuantizeLinear", "DequantizeLinear"})
"""Operators that say a type themselves: they are not raised."""


@dataclass(frozen=True)
class Rewrite:
    """``what``: one line for people."""

    what: str
    edits: tuple[Edit, ...]


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
        """Yield what runs nodes in float32, and all that look like them; nothing where none is in a low precision."""
        for several in dict.fromkeys((frozenset(nodes), self._alike(nodes))):
            found = [(self.graph.nodes[at].name, edits) for at in sorted(several) if (edits := self._raised(at))]
            if found:
                what = f"in float32: {listed([name for name, _ in found])}"
                yield Rewrite(what, tuple(edit for _, edits in found for edit in edits))

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
                found.append(Rewrite(f"{name} as an output besides", (edit,)))
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
                found.append(Rewrite(f"{node.name} ({node.op_type}) in other operators", tuple(edits)))
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
            found.append(Rewrite(f"{operator}({name}, {name}) before {node.name}", edits))
        return found

    def _raised(self, index: int) -> list[Edit]:
        """Return what casts all that a node reads to float32, and what it makes back."""
        node, proto = self.graph.nodes[index], self.graph.protos[index]
        if node.nests or node.op_type in _TYPED:
            return []
        reads = [name for name in dict.fromkeys(proto.input) if self._dtype(name) in _LOW]
        makes = [name for name in node.outputs if self._dtype(name) in _LOW]
        if not reads or not makes:
            return []
        edits: list[Edit] = []
        for name in reads:
            wide = self._supply.fresh(f"{name}__float32")
            cast = helper.make_node("Cast", [name], [wide], name=wide, to=TensorProto.FLOAT)
            edits += [Insert(cast, before=node.outputs[0]), Read(node.outputs[0], name, wide)]
        for name in makes:
            wide = self._supply.fresh(f"{name}__wide")
            cast = helper.make_node("Cast", [wide], [name], name=f"{wide}__low", to=self._dtype(name))
            edits += [Make(name, wide), Insert(cast, behind=wide)]
        return edits

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
        """Return the element type of a tensor, 0 where it is not known."""
        held = self.graph.initializers.get(name)
        if isinstance(held, TensorProto):
            return int(held.data_type)
        return int(self.types[name].tensor_type.elem_type) if name in self.types else 0


def _tried(own: Sequence[Rewrite], alike: Sequence[Rewrite]) -> Iterator[Rewrite]:
    """Yield the rewrites of each place, of all of them, and of all places of the pattern."""
    if len(own) <= MOST_SINGLE:
        yield from own
    if len(own) > 1:
        yield _together(own)
    if len(alike) > len(own):
        yield _together(alike)


def _together(places: Sequence[Rewrite]) -> Rewrite:
    what = listed([one.what for one in places], 2)
    return Rewrite(what, tuple(edit for one in places for edit in one.edits))
