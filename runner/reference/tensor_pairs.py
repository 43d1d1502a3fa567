"""Pairs of tensors of two related models, and how their matching sees each of these: by structure, not by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np

from runner.model.graph.graph_index import Graph, Node
from runner.model.graph.low_precision import ends_of
from runner.reference.fingerprints import (
    CLEARLY,
    MOST_ODD,
    TWINS,
    Array,
    Fingerprint,
    FingerprintIndex,
    Weights,
    agree,
    distance,
)

# what goes in comes out: the tensor before and the one after are the same for a matching
_HANDED_ON = frozenset({"Identity", "Cast", "CastLike", "Dropout"})
PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul"})
"""One product with a matrix, however it is written."""
TAKES_A_PART = frozenset({"Split", "Slice", "Gather", "GatherND", "GatherElements"})
"""Operators that hand on a part of what they read first."""
SYMMETRIC = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd"})
"""Operators that do not mind the order of what they read."""
_MOST_BETWEEN = 4
"""Nodes from a product to the addition of its bias, this one counted."""
_ROWS, _COLUMNS, _NEAR = 8, 16, 1e-3
"""Outputs and numbers of each that a direction is told by, and how far these may be off."""
_STEPS = 255
"""Of 8 bits: what is beyond an end by less than half a step is no more than rounded."""
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


class How(str, Enum):
    """What told the partner of a tensor."""

    map = "map"
    name = "name"
    value = "value"
    position = "position"


@dataclass(frozen=True)
class Partner:
    """A tensor of the parent, and what told it. ``reshaped``: the child has its elements in another shape."""

    tensor: str
    how: How
    reshaped: bool = False


@dataclass(frozen=True, eq=False)
class FingerprintedGraph:
    """A model, what its tensors hold (``prints``, as far as it is known), and its weights.

    ``cut``: the tensors that pairs should limit, whether they do or not.
    """

    graph: Graph
    prints: Mapping[str, Fingerprint]
    weights: Weights
    cut: frozenset[str] = frozenset()

    @cached_property
    def roots(self) -> Mapping[str, str]:
        """For each tensor that is another one handed on (cast, quantized and back), the first of these."""
        found: dict[str, str] = {}
        for node in self.graph.nodes:
            if self.hands_on(node):
                pair = self.pairs.get(node.outputs[0])
                source = pair.inputs[0] if pair else node.inputs[0]
                found[node.outputs[0]] = found.get(source, source)
        return found

    @cached_property
    def pairs(self) -> Mapping[str, Node]:
        """What quantizes a tensor before it is dequantized, by the name that it has then."""
        back = [node for node in self.graph.nodes if node.op_type == _DEQUANTIZE]
        makers = ((node, self.graph.producer(node.inputs[0])) for node in back)
        return {node.outputs[0]: one for node, one in makers if one and one.op_type == _QUANTIZE}

    @cached_property
    def limited(self) -> Mapping[str, str]:
        """The tensors that are others quantized and back, less what is beyond the ends of the integers; and these.

        A quantizer takes out a Relu or a Clip in front of such a pair, which then does its work.
        """
        before = {name: node.inputs[0] for name, node in self.pairs.items()}
        return {name: one for name, one in before.items() if one in self.cut or self._limits(self.pairs[name])}

    @cached_property
    def before_limit(self) -> frozenset[str]:
        """The tensors that pairs limit, and that nobody else reads."""
        nodes = self.graph.nodes
        return frozenset(
            name
            for name in self.limited.values()
            if name not in self.graph.outputs
            and all(nodes[at].op_type == _QUANTIZE for at in self.graph.readers.get(name, ()))
        )

    def _limits(self, node: Node) -> bool:
        held, proto = self.prints.get(node.inputs[0]), self.graph.protos[node.index]
        least, largest = ends_of(proto, self.graph.initializers, whole=True)
        if held is None or least is None or largest is None or not held.numbers.size:
            return False
        step = (largest - least) / _STEPS
        beyond = (held.numbers < least - step / 2) | (held.numbers > largest + step / 2)
        return float(beyond.mean()) > MOST_ODD

    def root(self, tensor: str) -> str:
        """Return the first of the tensors that are all this one."""
        return self.roots.get(tensor, tensor)

    def hands_on(self, node: Node) -> bool:
        """Whether the first output of a node is its first input, but for rounding."""
        if node.op_type in ("Cast", "CastLike"):
            kinds = {self.prints[name].kind for name in (node.inputs[0], *node.outputs) if name in self.prints}
            return kinds <= {"f"} or kinds == {"i"}
        if node.op_type in _HANDED_ON:
            return True
        return node.op_type == _DEQUANTIZE and node.outputs[0] in self.pairs and node.outputs[0] not in self.limited

    def reads(self, node: Node) -> tuple[str, ...]:
        """Return the tensors that a node reads, those left out that no data reaches unless all are such."""
        known = tuple(self.root(name) for name in node.inputs if name not in self.graph.data_independent)
        return known or tuple(self.root(name) for name in node.inputs if name in self.graph.producers)

    @cached_property
    def readers(self) -> Mapping[str, tuple[tuple[Node, int], ...]]:
        """For each root, who reads it (or what hands it on), and as the how-manieth of what it reads."""
        found: dict[str, list[tuple[Node, int]]] = {}
        for node in self.graph.nodes:
            if not self.hands_on(node):
                for slot, name in enumerate(node.inputs):
                    found.setdefault(self.root(name), []).append((node, slot))
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def by_work(self) -> Mapping[tuple[str, ...], list[Node]]:
        """The nodes by their operator and what they read, in whatever order."""
        found: dict[tuple[str, ...], list[Node]] = {}
        for node in self.graph.nodes:
            if node.outputs and not self.hands_on(node):
                found.setdefault((operator(node), *sorted(self.reads(node))), []).append(node)
        return found

    def depends(self, tensor: str, other: str) -> bool:
        """Whether one tensor depends on another."""
        first = self.graph.producers.get(other, -1)
        seen: set[int] = set()
        waiting = [self.graph.producers.get(tensor, -1)]
        while waiting:
            index = waiting.pop()
            # nodes stand in an executable order: none at or before the other one's depends on it
            if index > first and index not in seen:
                seen.add(index)
                if other in self.graph.nodes[index].inputs:
                    return True
                waiting += self.graph.parents[index]
        return False

    # ---- what tensors hold

    @cached_property
    def by_value(self) -> FingerprintIndex:
        """The tensors that nodes make, to be found by what they hold."""
        return FingerprintIndex({name: self.prints[name] for name in self.graph.producers if name in self.prints})

    def constant(self, name: str, *, turned: bool = False) -> Fingerprint | None:
        """Return what a tensor holds that no data reaches; ``turned``: with its last two axes exchanged."""
        if name in self.graph.initializers:
            return self.weights.get(name, turned=turned)
        held = self.prints.get(name)
        return held.first if held and name in self.graph.data_independent and not turned else None

    def use(self, node: Node, slot: int) -> tuple[bool, float]:
        """Return what a product does to what it reads: whether it exchanges the axes (``transB``), and its factor."""
        if node.op_type not in PRODUCTS or node.op_type == "MatMul":
            return False, 1.0
        held = {one.name: one.f or one.i for one in self.graph.protos[node.index].attribute}
        turned = bool(slot < 2 and held.get(("transA", "transB")[slot]))
        return turned, float(held.get(("", "alpha", "beta")[slot], 1.0))

    def turns(self, node: Node, name: str) -> bool:
        """Whether a node exchanges the axes of the matrix ``name``, so that it need not be stored so."""
        return name in node.inputs[1:2] and self.use(node, 1)[0]

    def weights_of(self, node: Node, *, all_of_them: bool = False) -> list[Fingerprint]:
        """Return what a node reads that no data reaches, as it uses it, as far as it can be told from others."""
        names = [name for name in node.inputs if name in self.graph.data_independent]
        held = [self.constant(name, turned=self.turns(node, name)) for name in names]
        return [one for one in held if one is not None and (all_of_them or one.telling)]

    @cached_property
    def _constants(self) -> tuple[FingerprintIndex, Mapping[str, list[tuple[Node, str]]]]:
        """What nodes read that no data reaches, as they use it; and by the same keys who reads it, and its name."""
        prints: dict[str, Fingerprint] = {}
        readers: dict[str, list[tuple[Node, str]]] = {}
        for node in self.graph.nodes:
            for name in dict.fromkeys(node.inputs):
                if name in self.graph.data_independent:
                    turned = self.turns(node, name)
                    key = name + "\0" * turned  # which no name has
                    readers.setdefault(key, []).append((node, name))
                    if held := self.constant(name, turned=turned):
                        prints[key] = held
        return FingerprintIndex(dict(sorted(prints.items()))), readers

    def direction(self, node: Node) -> Array | None:
        """Return the weight of a convolution or product but for a factor of each output, which may be folded into it.

        Of the first outputs a few numbers. None: it has no such weight of its own.
        """
        name = node.inputs[1] if len(node.inputs) > 1 and node.op_type in {*PRODUCTS, "Conv"} else ""
        array = self.weights.array(name) if name not in self.weights.readings else None
        if array is None or array.ndim < 2 or array.dtype.kind != "f":
            return None
        rows = array if node.op_type == "Conv" or self.turns(node, name) else np.moveaxis(array, -1, 0)
        few = rows.reshape(len(rows), -1)[:_ROWS, :_COLUMNS].astype(np.float64)
        largest = np.take_along_axis(few, np.abs(few).argmax(1, keepdims=True), 1)
        found: Array = few / np.where(largest == 0, 1, largest)
        return found

    @cached_property
    def _directions(self) -> Mapping[tuple[int, ...], list[tuple[Node, Array]]]:
        """The nodes with such weights by the shape of these."""
        found: dict[tuple[int, ...], list[tuple[Node, Array]]] = {}
        for node in self.graph.nodes:
            if (one := self.direction(node)) is not None:
                found.setdefault(self.weight_shape(node), []).append((node, one))
        return found

    def weight_shape(self, node: Node) -> tuple[int, ...]:
        """Return the shape of the weight that a convolution or product reads, as it uses it; else an empty one."""
        held = self.constant(node.inputs[1], turned=self.turns(node, node.inputs[1])) if len(node.inputs) > 1 else None
        return held.shapes[0] if held and node.op_type in {*PRODUCTS, "Conv"} else ()

    def pointing(self, node: Node, shape: tuple[int, ...], direction: Array) -> list[Node]:
        """Return convolutions, or products, whose weights differ by factors of their outputs at most."""
        known, plain = self._directions.get(shape, ()), node.op_type in PRODUCTS
        return [
            one for one, held in known if (one.op_type in PRODUCTS) is plain and np.abs(held - direction).max() < _NEAR
        ]

    def reading(self, held: Fingerprint) -> list[tuple[Node, str]]:
        """Return the nodes that use such a constant, and what it is called."""
        index, readers = self._constants
        return [one for _, keys in index.near(held) for key in keys for one in readers[key]]


@dataclass
class EqualValues:
    """The parent's tensors by what they hold.

    Of several that hold the same numbers it does not matter which is taken: one that the same operator makes, and that
    is no tensor's partner. ``taken``: partners.
    """

    parent: FingerprintedGraph
    taken: set[str] = field(default_factory=set)
    _near: dict[str, list[tuple[float, tuple[str, ...]]]] = field(default_factory=dict)

    def find(self, tensor: str, held: Fingerprint, kind: str, known: str | None = None) -> str | None:
        """Return what holds what a tensor of the child does; ``kind``: the operator that makes that.

        ``known``: it must depend on that tensor of the parent.
        """

        def preference(name: str) -> tuple[bool, bool, int]:
            node = self.parent.graph.producer(name)
            return not node or operator(node) != kind, name in self.taken, node.index if node else -1

        return min(self._nearest(tensor, held, known), key=preference, default=None)

    def _nearest(self, tensor: str, held: Fingerprint, known: str | None) -> list[str]:
        """Return the nearest tensors, and those as near; none where these do not all hold the same."""
        if tensor not in self._near:
            self._near[tensor] = self.parent.by_value.near(held)
        prints, rivals, limit = self.parent.prints, list[str](), TWINS
        for far, alike in self._near[tensor]:
            if rivals and far > limit:
                break
            names = [one for one in alike if known is None or self.parent.depends(one, known)]
            if not rivals:
                limit = max(CLEARLY * far, TWINS)
            elif names and distance(prints[names[0]], prints[rivals[0]]) > TWINS:
                return []
            rivals += names
        return rivals


def operator(node: Node) -> str:
    """Return the operator with its domain."""
    return f"{node.domain}:{node.op_type}" if node.domain else node.op_type


def with_same_weights(
    child: FingerprintedGraph, node: Node, mine: list[Fingerprint], parent: FingerprintedGraph
) -> Node | None:
    """Return the one node of the parent with the operator of a child's and the weights ``mine``; None: there is none.

    A product with a matrix may be written in another way. A factor of each output may be folded into a weight.
    """
    reading = dict(parent.reading(mine[0])) if mine else {}
    alike = [one for one in reading if operator(one) == operator(node) and agree_all(mine, parent.weights_of(one))]
    if not alike and node.op_type in PRODUCTS:
        alike = [one for one, name in reading.items() if one.op_type in PRODUCTS and name in one.inputs[1:2]]
    if not alike and mine and (direction := child.direction(node)) is not None:
        alike = parent.pointing(node, child.weight_shape(node), direction)
    return alike[0] if len(alike) == 1 else None


def made_with(
    child: FingerprintedGraph, node: Node, parent: FingerprintedGraph, partner: Node
) -> tuple[Node, Node] | None:
    """Return the nodes of child and parent that make the same tensor, where ``partner`` has the weights of ``node``.

    These two; or the addition after one of them, where only the other is a product that has a bias; or the
    normalization or scale after the parent's, where this is folded into the child's weights.
    """
    after = [
        [reader for reader, _ in one.readers.get(made.outputs[0], ())]
        for one, made in ((child, node), (parent, partner))
    ]
    normal = [len(after[at]) == 1 and _is_folded(one, after[at][0]) for at, one in enumerate((child, parent))]
    if normal == [False, True] and not agree_all(child.weights_of(node)[:1], parent.weights_of(partner)[:1]):
        return node, after[1][0]
    more = len(node.inputs) - len(partner.inputs)
    if not more or node.op_type not in PRODUCTS:
        return node, partner
    added = _sum_with(parent, partner) if more > 0 else _sum_with(child, node)
    return ((node, added) if more > 0 else (added, partner)) if added else None


def _is_folded(one: FingerprintedGraph, node: Node) -> bool:
    """Whether a node multiplies by constants, which may be folded into the weight of the product before it."""
    scaled = node.op_type in ("Mul", "Div") and any(name in one.graph.data_independent for name in node.inputs)
    return scaled or node.op_type == "BatchNormalization"


def _sum_with(one: FingerprintedGraph, product: Node) -> Node | None:
    """Return the addition of a bias that alone reads a product without one, scales by a constant passed over."""
    node = product
    for _ in range(_MOST_BETWEEN):
        readers = one.readers.get(node.outputs[0], ()) if node.outputs else ()
        if len(readers) != 1:
            return None
        node, slot = readers[0]
        others = [name for at, name in enumerate(node.inputs) if at != slot]
        if not others or not all(name in one.graph.data_independent for name in others):
            return None
        if node.op_type == "Add":
            return node
        if node.op_type not in ("Mul", "Div"):
            return None
    return None


def bias_apart(child: FingerprintedGraph, mine: str, parent: FingerprintedGraph, theirs: str) -> bool:
    """Whether two tensors are one product with and without its bias, which the other side adds in a later node."""
    node, partner = child.graph.producer(mine), parent.graph.producer(theirs)
    if node is None or partner is None or node.op_type not in PRODUCTS or partner.op_type not in PRODUCTS:
        return False
    more = len(node.inputs) - len(partner.inputs)
    return bool(more) and _sum_with(*((parent, partner) if more > 0 else (child, node))) is not None


def same_product(
    child: FingerprintedGraph, node: Node, parent: FingerprintedGraph, made: Mapping[str, Partner]
) -> Node | None:
    """Return the parent's product that is this one of the child's, as the partners say of what the two add up to."""
    added = _sum_with(child, node) if len(node.inputs) == 2 else None
    for last in (node, added):
        known = made.get(last.outputs[0]) if last and last.outputs else None
        other = parent.graph.producer(known.tensor) if known else None
        if other is not None and other.op_type == "Add" and (last == added or len(node.inputs) > 2):
            makers = [parent.graph.producer(parent.root(name)) for name in other.inputs]
            products = [one for one in makers if one and one.op_type in PRODUCTS and _sum_with(parent, one) == other]
            other = products[0] if len(products) == 1 else None
        if other is not None and other.op_type in PRODUCTS:
            return other
    return None


def agree_all(mine: list[Fingerprint], theirs: list[Fingerprint]) -> bool:
    """Whether weights are the same, each with the one at its place."""
    return len(mine) == len(theirs) and all(agree(a, b) for a, b in zip(mine, theirs, strict=True))


def reshaped(child: FingerprintedGraph, parent: FingerprintedGraph) -> bool:
    """Whether the child's outputs have other shapes than the parent's: then no shape says what belongs together."""
    mine, theirs = child.graph.outputs, parent.graph.outputs
    named = [(name, name) for name in mine if name in theirs]
    for name, partner in named or (zip(mine, theirs, strict=True) if len(mine) == len(theirs) == 1 else ()):
        one, other = child.prints.get(name), parent.prints.get(partner)
        if one and other and one.kind == other.kind and one.shapes != other.shapes:
            return True
    return False
