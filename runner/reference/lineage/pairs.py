"""Which tensors of two related models are taken for the same, and what speaks for it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from runner.model.graph.index import Node
from runner.reference.lineage.align import Kin, is_symmetric, operator
from runner.reference.lineage.fingerprints import agree


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


@dataclass
class Pairing:
    """``pairs``: those found so far, by tensor of the child.

    ``alone``: tensors of the child that have no partner, by the user's word. ``loose``: partners may differ in shape.
    """

    child: Kin
    parent: Kin
    pairs: dict[str, Partner]
    alone: frozenset[str] = frozenset()
    loose: bool = False
    _taken: set[str] = field(default_factory=set)

    def votes(self, tensor: str) -> Iterable[str]:
        """Return what the partners of a tensor's readers read in its place."""
        for node, slot in self.child.handed.get(tensor, ()):
            partner = self._partner_of(node)
            if partner is None or len(partner.inputs) != len(node.inputs):
                continue
            if is_symmetric(node) and len(node.inputs) == 2:
                other = self._seen(node.inputs[1 - slot])
                left = [self.parent.root(name) for name in partner.inputs if self.parent.root(name) != other]
                if other is not None and len(left) == 1:
                    yield left[0]
                    continue
            yield self.parent.root(partner.inputs[slot])

    def _supported(self, tensor: str) -> bool:
        partner = self.pairs[tensor].tensor
        if partner in self.votes(tensor):
            return True
        node, other = self.child.producer(tensor), self.parent.producer(partner)
        if node is None or other is None or operator(node) != operator(other):
            return False
        seen = {self._seen(name) for name in self.child.reads(node)}
        return bool(seen) and None not in seen and seen <= set(self.parent.reads(other))

    def _contradicts(self, node: Node, partner: Node) -> bool:
        """Whether a node reads what has a partner that the other does not read."""
        seen = {self._seen(name) for name in self.child.reads(node) if not self._is_reshaped(name)} - {None}
        return not seen <= set(self.parent.reads(partner))

    def _is_reshaped(self, tensor: str) -> bool:
        return tensor in self.pairs and self.pairs[tensor].reshaped

    def _made(self) -> Iterable[str]:
        for node in self.child.graph.nodes:
            yield from (output for output in node.outputs if output not in self.alone)

    def _pair(self, tensor: str, partner: str, how: How, *, reshaped: bool = False) -> None:
        if tensor not in self.alone:
            self.pairs[tensor] = Partner(partner, how, reshaped)
            self._taken.add(partner)

    def _agreed(self, tensor: str, partner: str) -> bool:
        mine, theirs = self.child.prints.get(tensor), self.parent.prints.get(partner)
        return bool(mine and theirs and mine.telling and agree(mine, theirs))

    def _seen(self, tensor: str) -> str | None:
        root = self.child.root(tensor)
        known = self.pairs.get(root) or self.pairs.get(tensor)
        return self.parent.root(known.tensor) if known else None

    def _partner_of(self, node: Node) -> Node | None:
        for output in node.outputs:
            known = self.pairs.get(output)
            other = self.parent.producer(known.tensor) if known else None
            if other is not None and operator(other) == operator(node):
                return other
        return None

    def _fits(self, tensor: str, partner: str) -> bool:
        mine, theirs = self.child.prints.get(tensor), self.parent.prints.get(partner)
        if theirs is None or mine is None:
            return theirs is not None
        return mine.kind == theirs.kind if self.loose else mine.fits(theirs)

    def _holds_as_many(self, tensor: str, partner: str) -> bool:
        mine, theirs = self.child.prints.get(tensor), self.parent.prints.get(partner)
        if not mine or not theirs or mine.kind != theirs.kind:
            return False
        return [math.prod(shape) for shape in mine.shapes] == [math.prod(shape) for shape in theirs.shapes]
