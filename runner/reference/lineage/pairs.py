"""Pairs of tensors of two related models, and how their matching sees each of these: by structure, not by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum
from functools import cached_property

from runner.model.graph.graph_index import Graph, Node
from runner.reference.lineage.fingerprints import Fingerprint, FingerprintIndex, Weights, agree

# what goes in comes out: the tensor before and the one after are the same for a matching
_HANDED_ON = frozenset({"Identity", "Cast", "CastLike", "Dropout"})
MOST_ALIKE = 5_000_000
"""Pairs of equal items up to which sequences are aligned: the work grows with them."""
PRODUCTS = frozenset({"MatMul", "Gemm"})
"""One product with a matrix, however it is written."""
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
    """A model, what its tensors hold (``prints``, as far as it is known), and its weights."""

    graph: Graph
    prints: Mapping[str, Fingerprint]
    weights: Weights

    @cached_property
    def roots(self) -> Mapping[str, str]:
        """For each tensor that is another one handed on (cast, quantized and back), the first of these."""
        found: dict[str, str] = {}
        for node in self.graph.nodes:
            if self.hands_on(node):
                source = node.inputs[0]
                if node.op_type == _DEQUANTIZE:
                    source = self.graph.nodes[self.graph.producers[source]].inputs[0]
                found[node.outputs[0]] = found.get(source, source)
        return found

    def root(self, tensor: str) -> str:
        """Return the first of the tensors that are all this one."""
        return self.roots.get(tensor, tensor)

    def hands_on(self, node: Node) -> bool:
        """Whether the first output of a node is its first input, but for rounding."""
        if node.op_type in ("Cast", "CastLike"):
            ends = [self.prints[name] for name in (node.inputs[0], *node.outputs) if name in self.prints]
            return all(one.kind == "f" for one in ends)
        if node.op_type in _HANDED_ON:
            return True
        maker = self.producer(node.inputs[0]) if node.op_type == _DEQUANTIZE else None
        return maker is not None and maker.op_type == _QUANTIZE

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

    def producer(self, tensor: str) -> Node | None:
        """Return the node that makes a tensor."""
        index = self.graph.producers.get(tensor)
        return None if index is None else self.graph.nodes[index]

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

    def constant(self, name: str) -> Fingerprint | None:
        """Return what a tensor holds that no data reaches."""
        if name in self.graph.initializers:
            return self.weights.get(name)
        held = self.prints.get(name)
        return held.first if held and name in self.graph.data_independent else None

    def weights_of(self, node: Node) -> list[Fingerprint]:
        """Return what a node reads that no data reaches, as far as it can be told from others."""
        held = [self.constant(name) for name in node.inputs if name in self.graph.data_independent]
        return [one for one in held if one is not None and one.telling]

    @cached_property
    def _constants(self) -> FingerprintIndex:
        names = {name for node in self.graph.nodes for name in node.inputs if name in self.graph.data_independent}
        return FingerprintIndex({name: one for name in sorted(names) if (one := self.constant(name))})

    def reading(self, held: Fingerprint) -> list[tuple[Node, str]]:
        """Return the nodes that read such a constant, and what it is called."""
        return [
            (self.graph.nodes[index], name)
            for _, name in self._constants.near(held)
            for index in self.graph.readers.get(name, ())
        ]


def operator(node: Node) -> str:
    """Return the operator with its domain; that of a quantized one is the real one's."""
    name = node.op_type
    if node.domain in ("", "com.microsoft") and name.startswith("QLinear"):
        return name.removeprefix("QLinear")
    return f"{node.domain}:{name}" if node.domain else name


def with_same_weights(child: FingerprintedGraph, node: Node, parent: FingerprintedGraph) -> Node | None:
    """Return the one node of the parent with the operator and the weights of a child's; None: there is none.

    A product with a matrix may be written in another way.
    """
    mine = child.weights_of(node)
    reading = dict(parent.reading(mine[0])) if mine else {}
    alike = [one for one in reading if operator(one) == operator(node) and _agree(mine, parent.weights_of(one))]
    if not alike and node.op_type in PRODUCTS:
        alike = [one for one, name in reading.items() if one.op_type in PRODUCTS and name in one.inputs[1:2]]
    return alike[0] if len(alike) == 1 else None


def made_with(parent: FingerprintedGraph, node: Node, partner: Node) -> Node | None:
    """Return what makes in the parent what a node of the child does, where ``partner`` has its weights.

    That is ``partner``; or the addition after it, where only the child's product has a bias.
    """
    if len(node.inputs) == len(partner.inputs) or node.op_type not in PRODUCTS:
        return partner
    readers = parent.readers.get(partner.outputs[0], ())
    found = [one for one, _ in readers if len(readers) == 1 and one.op_type == "Add" and len(node.inputs) > 2]
    return found[0] if found else None


def _agree(mine: list[Fingerprint], theirs: list[Fingerprint]) -> bool:
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


def aligned(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of equal items in their longest common blocks; nothing where that would take too long.

    Pattern matching as Ratcliff and Metzener do it (Dr. Dobb's Journal, July 1988), which the standard library has.
    """
    counts = Counter(theirs)
    if sum(counts[item] for item in ours) > MOST_ALIKE:
        return
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        for at in range(block.size):
            yield block.a + at, block.b + at
