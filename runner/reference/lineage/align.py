"""One of two related models, as the matching of their tensors sees it: names mean nothing here, structure does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from onnx import NodeProto

from runner.model.graph.index import Graph, Node
from runner.reference.lineage.fingerprints import Print, Weights

# what goes in comes out: the tensor before and the one after are the same for a matching
_HANDED_ON = frozenset({"Identity", "Cast", "CastLike", "Dropout"})
_SYMMETRIC = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd"})
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

Key = tuple[str, tuple[str, ...]]
"""An operator and the tensors that it reads, those left out that no data reaches."""


@dataclass(frozen=True, eq=False)
class Kin:
    """A model, what its tensors hold (``prints``, as far as it is known), and its weights."""

    graph: Graph
    prints: Mapping[str, Print]
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
        if node.op_type != _DEQUANTIZE or node.inputs[0] not in self.graph.producers:
            return False
        return self.graph.nodes[self.graph.producers[node.inputs[0]]].op_type == _QUANTIZE

    def reads(self, node: Node) -> tuple[str, ...]:
        """Return the tensors that a node reads, those left out that no data reaches unless all are such."""
        known = tuple(self.root(name) for name in node.inputs if name not in self.graph.data_independent)
        return known or tuple(self.root(name) for name in node.inputs if name in self.graph.producers)

    def constant(self, name: str) -> Print | None:
        """Return what a tensor holds that no data reaches."""
        if name in self.graph.initializers:
            return self.weights.get(name)
        held = self.prints.get(name)
        return held.first if held and name in self.graph.data_independent else None

    @cached_property
    def by_key(self) -> Mapping[Key, tuple[Node, ...]]:
        """The nodes by what they do with what."""
        return self._grouped(ordered=True)

    @cached_property
    def by_loose_key(self) -> Mapping[Key, tuple[Node, ...]]:
        """The same whatever the order of what they read."""
        return self._grouped(ordered=False)

    @cached_property
    def by_operator(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes by operator."""
        found: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            found.setdefault(operator(node), []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def handed(self) -> Mapping[str, tuple[tuple[Node, int], ...]]:
        """For each root, who reads it (or what hands it on), and as the how-manieth of what it reads."""
        found: dict[str, list[tuple[Node, int]]] = {}
        for node in self.graph.nodes:
            if not self.hands_on(node):
                for slot, name in enumerate(node.inputs):
                    found.setdefault(self.root(name), []).append((node, slot))
        return {name: tuple(readers) for name, readers in found.items()}

    def producer(self, tensor: str) -> Node | None:
        """Return the node that makes a tensor."""
        index = self.graph.producers.get(tensor)
        return None if index is None else self.graph.nodes[index]

    def below(self, tensor: str) -> frozenset[str]:
        """Return the tensors that depend on one."""
        found: set[str] = set()
        waiting = [tensor]
        while waiting:
            for index in self.graph.readers.get(waiting.pop(), ()):
                fresh = [name for name in self.graph.nodes[index].outputs if name not in found]
                found.update(fresh)
                waiting += fresh
        return frozenset(found)

    def _grouped(self, *, ordered: bool) -> Mapping[Key, tuple[Node, ...]]:
        found: dict[Key, list[Node]] = {}
        for node in self.graph.nodes:
            if not self.hands_on(node):
                found.setdefault(key_of(node, self.reads(node), ordered=ordered), []).append(node)
        return {key: tuple(nodes) for key, nodes in found.items()}


def operator(node: Node) -> str:
    """Return the operator with its domain; that of a quantized one is the real one's."""
    name = node.op_type
    if node.domain in ("", "com.microsoft") and name.startswith("QLinear"):
        return name.removeprefix("QLinear")
    return f"{node.domain}:{name}" if node.domain else name


def key_of(node: Node, reads: tuple[str, ...], *, ordered: bool) -> Key:
    """Return what a node does with what; symmetric operators, and all if not ``ordered``, whatever the order."""
    sort = not ordered or node.op_type in _SYMMETRIC
    return operator(node), tuple(sorted(reads)) if sort else reads


def is_symmetric(node: Node) -> bool:
    """Whether the order of what it reads is no matter."""
    return node.op_type in _SYMMETRIC


def attributes(proto: NodeProto) -> frozenset[bytes]:
    """Return the attributes of a node, to be compared."""
    return frozenset(attribute.SerializeToString() for attribute in proto.attribute)
