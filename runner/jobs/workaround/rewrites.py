"""Rewrites: the same computation in other nodes, so that an optimization finds no pattern, or a kernel is not used.

The smallest change comes first: an inner tensor as an output, a node between two nodes, a node written out. Where the
pattern of the culprits stands at several places, it is rewritten at all of them, and at one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from runner.model.graph.edits import Edit, expose, insert, rename, replaced, weight
from runner.model.graph.find_pattern import instances
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import WiderTypes
from runner.model.graph.scopes import NameSupply, names_of
from runner.model.values import tensor_bytes
from runner.text import listed

# Nodes written in other operators that compute the same, up to rounding.

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def written_otherwise(graph: Graph, index: int, types: Mapping[str, TypeProto], supply: NameSupply) -> list[Edit]:
    """Return the edits that write a node in other operators; none where there is no other way known."""
    proto = graph.protos[index]
    write = _WAYS.get(proto.op_type) if proto.domain in ("", "ai.onnx") else None
    written = _Written(graph, proto, types, supply, graph.opset())
    if write is None or not written.dtype or len([*filter(None, proto.output)]) != 1:
        return []
    write(written)
    if not written.nodes:
        return []
    written.nodes[-1].output[0] = proto.output[0]
    return [*written.weights, *replaced(written.nodes)]


@dataclass
class _Written:
    """A node, and those that stand for it; the last of ``nodes`` makes what it makes. None: no other way is known."""

    graph: Graph
    node: NodeProto
    types: Mapping[str, TypeProto]
    supply: NameSupply
    opset: int

    def __post_init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[Edit] = []
        self.attributes: dict[str, Any] = {
            one.name: helper.get_attribute_value(one) for one in self.node.attribute if not one.ref_attr_name
        }

    @property
    def dtype(self) -> int:
        """The element type of what the node makes, 0 where it is not known."""
        name = self.node.output[0]
        return int(self.types[name].tensor_type.elem_type) if name in self.types else 0

    def rank(self, name: str) -> int | None:
        """Return how many dimensions a tensor has, None where that is not known."""
        held = self.graph.initializers.get(name)
        if isinstance(held, TensorProto):
            return len(held.dims)
        known = name in self.types and self.types[name].tensor_type.HasField("shape")
        return len(self.types[name].tensor_type.shape.dim) if known else None

    def constant(self, name: str) -> Any:
        """Return the values of a small initializer, None for anything else."""
        held = self.graph.initializers.get(name)
        if not isinstance(held, TensorProto) or tensor_bytes.is_external(held):
            return None
        return numpy_helper.to_array(held)

    def read(self, place: int) -> str:
        """Return the name of an input, "" where it is left out."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def number(self, value: Any, dtype: int = 0) -> str:
        """Return the name of a new constant, of the node's own element type unless it is said."""
        name = self.supply.fresh(f"{self.node.output[0]}__constant")
        self.weights.append(weight(name, value, dtype or self.dtype))
        return name

    def add(self, operator: str, reads: Sequence[str], **attributes: Any) -> str:
        """Return the name of what a new node makes."""
        made = self.supply.fresh(f"{self.node.output[0]}__{operator.lower()}")
        self.nodes.append(helper.make_node(operator, list(reads), [made], name=made, **attributes))
        return made

    def reduce(self, operator: str, read: str, axes: Sequence[int], since: int) -> str:
        """Return a reduction that keeps its dimensions; ``since``: the opset in which its axes are an input."""
        if self.opset >= since:
            return self.add(operator, [read, self.number([*axes], TensorProto.INT64)], keepdims=1)
        return self.add(operator, [read], axes=[*axes], keepdims=1)


def _relu(one: _Written) -> None:
    one.add("Max", [one.read(0), one.number(0)])


def _clip(one: _Written) -> None:
    if one.opset < 11 or not (one.read(1) or one.read(2)):  # limits are attributes there
        return
    made = one.read(0)
    for operator, limit in (("Max", one.read(1)), ("Min", one.read(2))):
        made = one.add(operator, [made, limit]) if limit else made


def _pow(one: _Written) -> None:
    exponent = one.constant(one.read(1))
    if exponent is None or exponent.size != 1 or exponent.ndim > 0 or float(exponent) != 2:
        return
    one.add("Mul", [one.read(0), one.read(0)])


def _transpose(one: _Written) -> None:
    perm = one.attributes.get("perm")
    if not perm or [*perm] != [*range(len(perm))]:
        return
    one.add("Identity", [one.read(0)])


def _softmax(one: _Written) -> None:
    if one.opset < 13:  # it flattens there
        return
    axes = [one.attributes.get("axis", -1)]
    moved = one.add("Sub", [one.read(0), one.reduce("ReduceMax", one.read(0), axes, 18)])
    raised = one.add("Exp", [moved])
    one.add("Div", [raised, one.reduce("ReduceSum", raised, axes, 13)])


def _layer_norm(one: _Written) -> None:
    axis, x = one.attributes.get("axis", -1), one.read(0)
    rank = one.rank(x)
    if axis >= 0 and rank is None:
        return
    axes = [*range(axis, 0)] if axis < 0 else [*range(axis - (rank or 0), 0)]
    off = one.add("Sub", [x, one.reduce("ReduceMean", x, axes, 18)])
    spread = one.reduce("ReduceMean", one.add("Mul", [off, off]), axes, 18)
    wide = one.add("Sqrt", [one.add("Add", [spread, one.number(one.attributes.get("epsilon", 1e-5))])])
    made = one.add("Mul", [one.add("Div", [off, wide]), one.read(1)])
    if one.read(2):
        one.add("Add", [made, one.read(2)])


def _gelu(one: _Written) -> None:
    if one.attributes.get("approximate", b"none") != b"none":
        return
    inner = one.add("Erf", [one.add("Div", [one.read(0), one.number(math.sqrt(2))])])
    half = one.add("Mul", [one.read(0), one.number(0.5)])
    one.add("Mul", [half, one.add("Add", [inner, one.number(1)])])


def _gemm(one: _Written) -> None:
    def turned(place: int, key: str) -> str:
        name = one.read(place)
        return one.add("Transpose", [name], perm=[1, 0]) if one.attributes.get(key) else name

    def scaled(name: str, key: str) -> str:
        factor = one.attributes.get(key, 1.0)
        return name if factor == 1 else one.add("Mul", [name, one.number(factor)])

    made = scaled(one.add("MatMul", [turned(0, "transA"), turned(1, "transB")]), "alpha")
    if one.read(2):
        one.add("Add", [made, scaled(one.read(2), "beta")])


def _extreme(one: _Written) -> None:
    """Of two tensors; a NaN in either stays one."""
    if one.opset < 12 or len(one.node.input) != 2 or one.dtype not in _FLOATS:
        return
    first, second = one.node.input
    compared = one.add("LessOrEqual" if one.node.op_type == "Max" else "GreaterOrEqual", [first, second])
    chosen = one.add("Where", [compared, second, first])
    one.add("Where", [one.add("IsNaN", [second]), second, chosen])


def _lrn(one: _Written) -> None:
    """Mean squares of neighboring channels are a pooling over them."""
    x, size = one.read(0), int(one.attributes["size"])
    if one.opset < 13 or one.rank(x) != 4 or size % 2 == 0:  # few runtimes take an even size
        return
    channels = one.number([1], TensorProto.INT64)
    squares = one.add("Unsqueeze", [one.add("Mul", [x, x]), channels])
    pads = [(size - 1) // 2, 0, 0, size // 2, 0, 0]
    mean = one.add("AveragePool", [squares], kernel_shape=[size, 1, 1], pads=pads, count_include_pad=1)
    scaled = one.add("Mul", [one.add("Squeeze", [mean, channels]), one.number(one.attributes.get("alpha", 1e-4))])
    moved = one.add("Add", [scaled, one.number(one.attributes.get("bias", 1.0))])
    one.add("Div", [x, one.add("Pow", [moved, one.number(one.attributes.get("beta", 0.75))])])


_WAYS: Mapping[str, Callable[[_Written], None]] = MappingProxyType(
    {
        "Relu": _relu,
        "Clip": _clip,
        "Pow": _pow,
        "Transpose": _transpose,
        "Softmax": _softmax,
        "LayerNormalization": _layer_norm,
        "Gelu": _gelu,
        "Gemm": _gemm,
        "Max": _extreme,
        "Min": _extreme,
        "LRN": _lrn,
    }
)


MOST_NAMED = 2
"""Places that are changed together and each told; of more only the first is."""
MOST_SINGLE = 8
"""Places of one kind that are tried one by one; of more only all together."""
_COMPARED = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16})
"""Element types that Max, or And, takes."""


@dataclass(frozen=True)
class Rewrite:
    """``what``: one line for people; ``change``, ``where``: the same of one place of many. ``places``: how many.

    ``nodes``: what it has in float32.
    """

    what: str
    edits: tuple[Edit, ...]
    change: str = ""
    where: str = ""
    places: int = 1
    nodes: tuple[str, ...] = ()


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
        for places in (
            self._exposed,
            lambda some: self._kept_apart(self._inner(some)),
            self._otherwise,
            lambda some: self._kept_apart(self._border(some)),
        ):
            yield from _tried(places(nodes), places(alike))

    def raised(self, nodes: Collection[int]) -> Iterator[Rewrite]:
        """Yield what runs nodes in float32, and more and more of those behind them; nothing where none is low."""
        wider, told = WiderTypes(self.graph, self.types, supply=self._supply), set[str]()
        for several in wider.grown(nodes):
            names = [self.graph.nodes[index].name for index in several if wider.is_low(index)]
            what = f"in float32: {listed(names)}"
            what = f"in float32: {', '.join(names)}" if what in told else what
            told.add(what)
            yield Rewrite(what, tuple(wider.edits(several)), places=len(names), nodes=tuple(names))

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
                edit = expose(name, kind.elem_type, len(kind.shape.dim))
                found.append(Rewrite(f"{name} as an additional output", (edit,), "an additional output", name))
        return found

    def _otherwise(self, nodes: Collection[int]) -> list[Rewrite]:
        """Return what writes a node in other operators."""
        found = []
        for index in sorted(nodes):
            node = self.graph.nodes[index]
            if edits := written_otherwise(self.graph, index, self.types, self._supply):
                what = f"{node.name} ({node.op_type}) written with other operators"
                found.append(Rewrite(what, tuple(edits), "other operators", node.name))
        return found

    def _kept_apart(self, edges: Sequence[tuple[str, int]]) -> list[Rewrite]:
        """Return what puts the larger of a tensor and itself, which no runtime takes out, before its reader."""
        found, types = [], WiderTypes(self.graph, self.types)
        for name, reader in edges:
            node, dtype = self.graph.nodes[reader], types.dtype(name)
            if (dtype and dtype not in _COMPARED) or name not in self.graph.protos[reader].input:
                continue  # a graph nested in the reader reads it
            between = self._supply.fresh(f"{name}__kept")
            operator = "And" if dtype == TensorProto.BOOL else "Max"
            made = helper.make_node(operator, [name, name], [between], name=between)
            edits = insert(made, before=node.outputs[0]), rename(node.outputs[0], name, between)
            what = f"{operator}({name}, {name}) before {node.name}"
            found.append(Rewrite(what, edits, f"insert {operator}(x, x)", f"before {node.name}"))
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
