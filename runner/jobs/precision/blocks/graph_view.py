"""A view of one graph for patterns: which nodes make and read a tensor, and which constants are known.

What carries values on as they are (casts between the two types, an expansion, another axis of length one) is looked
through; what ONNX does not define is no operator of a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, TypeProto, numpy_helper

from runner.jobs.precision.cast.layers import Pair, TypedGraph, is_plumbing, levels
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of
from runner.model.passes.lift_constants import constant_tensor
from runner.model.values import tensor_bytes

_CARRYING = ("Identity", "Expand", "Unsqueeze", "Squeeze")
_SHAPES = ("Shape", "Size")
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow")
_NUMBERS = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.DOUBLE,
        TensorProto.INT32,
        TensorProto.INT64,
    }
)


@dataclass(frozen=True)
class MatchedNode:
    """A node that makes a tensor, and where it stands; ``places``: it, and what carries its values to there."""

    node: NodeProto
    place: int
    places: frozenset[int]


class GraphView:
    """A view of one graph. ``outer``: that of the graph around it, whose constants are visible here."""

    def __init__(
        self, level: TypedGraph, pair: Pair, types: Mapping[str, TypeProto], outer: GraphView | None = None
    ) -> None:
        self.level = level
        self.nodes = level.graph.node
        self._pair = pair
        self._outer = outer
        self._makers = {name: place for place, node in enumerate(self.nodes) for name in node.output if name}
        self._readers: dict[str, list[int]] = {}
        for place, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(place)
        self._own = {*self._makers, *(value.name for value in level.graph.input)}
        self._constants = {
            name: tensor for name, tensor in initializers_of(level.graph).items() if isinstance(tensor, TensorProto)
        }
        self._constants |= {tensor.name: tensor for node in self.nodes if (tensor := constant_tensor(node))}
        self._static = {*self._constants}
        for node in self.nodes:
            follows = node.op_type in _SHAPES or all(map(self.is_static, filter(None, node.input)))
            if follows and any(node.input) and not scopes.subgraphs(node):
                self._static.update(node.output)
        self._ranks = dict(_ranks(level, types if outer is None else {}))

    def operator(self, place: int) -> str:
        """Return the operator of a node; nothing for one that ONNX does not define."""
        node = self.nodes[place]
        least = 2 if node.op_type in _BINARY else 1
        return "" if scopes.domain_of(node.domain) or len(node.input) < least else str(node.op_type)

    def is_static(self, name: str) -> bool:
        """Whether a tensor depends on constants and shapes alone."""
        if name in self._static:
            return True
        return name not in self._own and self._outer is not None and self._outer.is_static(name)

    def number(self, name: str) -> float | None:
        """Return the value of a constant that is a single number; None: it is none, or not known."""
        tensor = self._constant(name)
        if tensor is None or tensor_bytes.elements(tensor.dims) != 1 or tensor_bytes.is_external(tensor):
            return None
        if tensor.data_type not in _NUMBERS:
            return None
        return float(numpy_helper.to_array(tensor).reshape(-1)[0])

    def may_be(self, name: str, *, one_number: bool) -> bool:
        """Whether a tensor is no matter of values that come in, and is (not) one number, as far as that is known."""
        tensor = self._constant(name)
        return self.is_static(name) and (tensor is None or (tensor_bytes.elements(tensor.dims) == 1) is one_number)

    def axes(self, node: NodeProto) -> tuple[int, ...] | None:
        """Return along which axes a node reduces, as it says it; None: it is not known. Empty: along all."""
        found = next((list(one.ints) for one in node.attribute if one.name == "axes"), None)
        if found is None and len(node.input) > 1 and node.input[1]:
            tensor = self._constant(node.input[1])
            if (
                tensor is None or tensor_bytes.is_external(tensor) or tensor_bytes.elements(tensor.dims) > 8
            ):  # no rank is larger
                return None
            found = [int(axis) for axis in numpy_helper.to_array(tensor).reshape(-1)]
        return tuple(sorted(found or ()))

    def rank(self, name: str) -> int | None:
        """Return how many axes a tensor has; None: it is not known."""
        if name in self._ranks:
            return self._ranks[name]
        return self._outer.rank(name) if self._outer is not None and name not in self._own else None

    def origin(self, name: str) -> str:
        """Return the tensor whose values these are."""
        return self._carried(name)[0]

    def maker(self, name: str, *operators: str) -> MatchedNode | None:
        """Return the node that makes a tensor, if it is of one of these operators."""
        source, passed = self._carried(name)
        place = self._makers.get(source)
        if place is None or self.operator(place) not in operators or self.nodes[place].output[0] != source:
            return None
        return MatchedNode(self.nodes[place], place, passed | {place})

    def readers(self, name: str, *operators: str) -> Iterator[MatchedNode]:
        """Yield the nodes of these operators that read the values of a tensor."""
        edge = [(name, frozenset[int]())]
        while edge:
            source, passed = edge.pop()
            for place in self._readers.get(source, ()):
                node = self.nodes[place]
                if self.operator(place) in operators:
                    yield MatchedNode(node, place, passed | {place})
                elif self._carries(node) and node.input[0] == source:
                    edge.append((node.output[0], passed | self._if_node(place)))

    def reader_count(self, name: str) -> int:
        """Return how many nodes read the values of a tensor; what a graph hands out counts as well."""
        count, edge = 0, [name]
        while edge:
            source = edge.pop()
            count += sum(value.name == source for value in self.level.graph.output)
            for place in self._readers.get(source, ()):
                node = self.nodes[place]
                if self._carries(node) and node.input[0] == source:
                    edge.append(node.output[0])
                else:
                    count += 1
        return count

    def _constant(self, name: str) -> TensorProto | None:
        source = self.origin(name)
        if source in self._constants:
            return self._constants[source]
        return self._outer._constant(source) if self._outer is not None and source not in self._own else None

    def _carried(self, name: str) -> tuple[str, frozenset[int]]:
        passed: frozenset[int] = frozenset()
        for _ in range(len(self.nodes)):
            place = self._makers.get(name)
            if place is None or not self._carries(self.nodes[place]):
                break
            passed |= self._if_node(place)
            name = self.nodes[place].input[0]
        return name, passed

    def _carries(self, node: NodeProto) -> bool:
        if scopes.domain_of(node.domain) or not node.input or len(node.output) != 1:
            return False
        return node.op_type in _CARRYING or is_plumbing(node, self.level.types, self._pair)

    def _if_node(self, place: int) -> frozenset[int]:
        """Casts between the two types are no nodes of anything: they come and go."""
        return frozenset() if self.nodes[place].op_type == "Cast" else frozenset({place})


def views(model: ModelProto, types: Mapping[str, TypeProto], pair: Pair) -> list[GraphView]:
    """Return a view of each graph of a model, outer ones first. ``types``: what is known besides the file's."""
    found: list[GraphView] = []
    for level in levels(model, types):
        found.append(GraphView(level, pair, types, None if level.parent is None else found[level.parent]))
    return found


def _ranks(level: TypedGraph, types: Mapping[str, TypeProto]) -> Iterator[tuple[str, int]]:
    graph = level.graph
    declared = [(value.name, value.type) for group in (graph.value_info, graph.output, graph.input) for value in group]
    for name, kind in (*types.items(), *declared):
        if kind.tensor_type.HasField("shape"):
            yield name, len(kind.tensor_type.shape.dim)
    for name, tensor in initializers_of(graph).items():
        if isinstance(tensor, TensorProto):
            yield name, len(tensor.dims)
