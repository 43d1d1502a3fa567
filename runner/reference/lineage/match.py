"""Which tensor of the parent each tensor of a converted, simplified, fused or quantized child is.

Evidence, strongest first: the user's map, equal names, equal values, structure. A value decides against a name or the
structure in one case only: where it is that of a tensor further *down* in the parent. Then the child's node does what
several of the parent's did (a folded normalization, a fused activation). A value from further *up* is that of a node
that does nothing where it should do something, and so perhaps the bug itself.

Structure: a node is known by its operator and the partners of what it reads, by its weights, by who reads what it
makes, and at last by its place in the sequence of operators, which counts only where a neighbor agrees. Downstream of
a wrong node no value agrees, and structure alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runner.model.graph.index import Node
from runner.reference.lineage.align import Kin, attributes, key_of, operator
from runner.reference.lineage.anchors import anchor, same_weights
from runner.reference.lineage.by_value import Album
from runner.reference.lineage.fingerprints import agree
from runner.reference.lineage.pairs import How, Pairing, Partner
from runner.reference.lineage.sequence import aligned

_RESHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
MOST_ROUNDS = 50
"""How often everything is looked at again; each time must have brought something."""


def reshaped(child: Kin, parent: Kin) -> bool:
    """Whether the child's outputs have other shapes than the parent's: then no shape says what belongs together."""
    mine, theirs = child.graph.outputs, parent.graph.outputs
    named = [(name, name) for name in mine if name in theirs]
    for name, partner in named or (zip(mine, theirs, strict=True) if len(mine) == len(theirs) == 1 else ()):
        one, other = child.prints.get(name), parent.prints.get(partner)
        if one and other and one.kind == other.kind and one.shapes != other.shapes:
            return True
    return False


@dataclass
class Matching(Pairing):
    """Finds partners. ``named``: whether names mean anything."""

    named: bool = True
    _below: dict[str, frozenset[str]] = field(default_factory=dict)
    _anchored: dict[int, Node | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        produced = self.parent.graph.producers
        self._album = Album({name: one for name, one in self.parent.prints.items() if name in produced})

    def find(self) -> dict[str, Partner]:
        """Return the partners of the child's tensors: those there were, revised, and what can be concluded."""
        if self.named:
            self._names()
        self._revise()
        for _ in range(MOST_ROUNDS):
            before = len(self.pairs)
            self._taken = {one.tensor for one in self.pairs.values()}
            self._forward()
            self._anchors()
            self._backward()
            self._reshapes()
            if len(self.pairs) == before:
                self._sequence()
            if len(self.pairs) == before:
                break
        self._handed_on()
        return self.pairs

    def place_outputs(self) -> None:
        """Make partners of outputs that have none, by their place, if there are as many on both sides."""
        taken = {one.tensor for one in self.pairs.values()}
        mine = [name for name in self.child.graph.outputs if name not in self.pairs]
        left = [name for name in self.parent.graph.outputs if name not in taken]
        for name, partner in zip(mine, left, strict=False):
            if len(mine) == len(left) and self._fits(name, partner):
                self._pair(name, partner, How.position)

    # ---- evidence

    def _names(self) -> None:
        for tensor in self._made():
            if tensor not in self.pairs and tensor in self.parent.graph.producers and self._fits(tensor, tensor):
                self._pair(tensor, tensor, How.name)

    def _revise(self) -> None:
        """Let values decide where a name or the structure told another partner, one further up."""
        for tensor in self._made():
            known = self.pairs.get(tensor)
            if known and known.how in (How.name, How.position) and not known.reshaped:
                better = self._by_value(tensor, known.tensor)
                if better:
                    self._pair(tensor, better, How.value)

    def _forward(self) -> None:
        """Node by node: the same operator on partners makes partners; else the value tells."""
        for node in self.child.graph.nodes:
            if self.child.hands_on(node):
                continue
            if all(output in self.pairs for output in node.outputs):
                continue
            partner = self._same_work(node)
            self._outputs(node, partner)
            for output in node.outputs:
                if output not in self.pairs and (told := self._by_value(output, None)):
                    self._pair(output, told, How.value)

    def _anchors(self) -> None:
        """The same operator with the same weights, which no other has, is the same node."""
        for node in self.child.graph.nodes:
            if not node.outputs or node.outputs[0] in self.pairs:
                continue
            partner = self._anchor(node)
            if partner is None or partner.outputs[0] in self._taken:
                continue
            self._outputs(node, partner)
            if node.outputs[0] not in self.pairs and self._holds_as_many(node.outputs[0], partner.outputs[0]):
                self._pair(node.outputs[0], partner.outputs[0], How.position, reshaped=True)

    def _backward(self) -> None:
        """What a node reads is what its partner reads at the same place."""
        for node in reversed(self.child.graph.nodes):
            for tensor in node.outputs:
                if tensor not in self.pairs and tensor not in self.child.graph.data_independent:
                    votes = set(self.votes(tensor))
                    if len(votes) == 1 and self._fits(tensor, vote := votes.pop()):
                        self._pair(tensor, vote, How.position)

    def _reshapes(self) -> None:
        """Where a converter put a tensor into another shape for a while, it is the same tensor."""
        for node in self.child.graph.nodes:
            if node.op_type not in _RESHAPING or node.domain:
                continue
            before, after = node.inputs[0], node.outputs[0]
            for known, open_one in ((before, after), (after, before)):
                partner = self.pairs.get(known)
                if not partner or open_one in self.pairs or open_one not in self.child.graph.producers:
                    continue
                if self._fits(open_one, partner.tensor):
                    self._pair(open_one, partner.tensor, How.position)
                elif not self._is_reshape_of_both(node) and (
                    open_one is after or len(self.child.graph.readers[before]) == 1
                ):
                    self._pair(open_one, partner.tensor, How.position, reshaped=True)

    def _is_reshape_of_both(self, node: Node) -> bool:
        """Whether the parent reshapes that tensor too: what comes of it then is a matter of its own."""
        source, made = self._seen(node.inputs[0]), self._seen(node.outputs[0])
        readers = self.parent.handed.get(source, ()) if source else ()
        maker = self.parent.producer(made) if made else None
        return any(one.op_type in _RESHAPING for one, _ in readers) or bool(maker and maker.op_type in _RESHAPING)

    def _sequence(self) -> None:
        """Align what is left by the sequence of operators and shapes; keep what a neighbor supports."""
        mine, theirs = self.child.graph.nodes, self.parent.graph.nodes
        ours = [self._token(self.child, node, node.outputs[:1]) for node in mine]
        others = [
            ("paired", node.outputs[0])
            if node.outputs and node.outputs[0] in self._taken
            else self._token(self.parent, node, ())
            for node in theirs
        ]
        tentative: dict[str, Partner] = {}
        for one, two in aligned(ours, others):
            node, partner = mine[one], theirs[two]
            if self._anchor(node) not in (None, partner) or self._contradicts(node, partner):
                continue
            for output, other in zip(node.outputs, partner.outputs, strict=False):
                if output not in self.pairs and self._fits(output, other):
                    tentative[output] = Partner(other, How.position)
        before = dict(self.pairs)
        self.pairs.update({name: one for name, one in tentative.items() if name not in self.alone})
        while unsupported := [name for name in tentative if name in self.pairs and not self._supported(name)]:
            for name in unsupported:
                del self.pairs[name]
        self.pairs.update(before)

    def _handed_on(self) -> None:
        """What is only handed on has the partner of what it was."""
        for tensor, root in self.child.roots.items():
            known = self.pairs.get(root)
            if known and tensor not in self.pairs and self._fits(tensor, known.tensor):
                self._pair(tensor, known.tensor, How.position)

    # ---- what a node or a value says

    def _same_work(self, node: Node) -> Node | None:
        """Return the parent's node with the same operator on the partners of what this one reads."""
        seen = [self._seen(name) for name in self.child.reads(node)]
        reads = tuple(name for name in seen if name is not None)
        if len(reads) != len(seen) or not reads:
            return None
        for ordered, groups in ((True, self.parent.by_key), (False, self.parent.by_loose_key)):
            found = groups.get(key_of(node, reads, ordered=ordered), ())
            alike = [one for one in found if self._fits(node.outputs[0], one.outputs[0])] if node.outputs else []
            if len(alike) > 1:
                alike = self._by_weights(node, alike)
            if len(alike) > 1:
                own = attributes(self.child.graph.protos[node.index])
                alike = [one for one in alike if attributes(self.parent.graph.protos[one.index]) == own] or alike
            if len(alike) > 1:
                alike = self._by_rank(node, alike)
            if len(alike) == 1:
                return alike[0]
        return None

    def _brothers(self, node: Node) -> list[Node]:
        """Return the nodes that do the same with the same, this one among them."""
        return list(self.child.by_key.get(key_of(node, self.child.reads(node), ordered=True), ()))

    def _by_weights(self, node: Node, alike: list[Node]) -> list[Node]:
        """Of nodes that do the same, those with these weights; else those whose weights no brother has."""
        same = [one for one in alike if self._same_weights(node, one)]
        brothers = [one for one in self._brothers(node) if one is not node]
        return same or [one for one in alike if not any(self._same_weights(other, one) for other in brothers)] or alike

    def _by_rank(self, node: Node, alike: list[Node]) -> list[Node]:
        """Of nodes that nothing tells apart, the one in the same place as this one among its likes."""
        brothers = [one for one in self._brothers(node) if self._fits(one.outputs[0], alike[0].outputs[0])]
        return [alike[brothers.index(node)]] if len(brothers) == len(alike) and node in brothers else []

    def _by_value(self, tensor: str, told: str | None) -> str | None:
        """Return the parent's tensor that has this value, and no other has; ``told``: it must lie below that one."""
        held = self.child.prints.get(tensor)
        if held is None or not held.telling or tensor in self.child.graph.data_independent:
            return None
        among: frozenset[str] | None = None
        if told is not None:
            theirs = self.parent.prints.get(told)
            if theirs is None or agree(held, theirs):
                return None
            if told not in self._below:
                self._below[told] = self.parent.below(told)
            among = self._below[told]
        node = self.child.producer(tensor)

        def liking(name: str) -> tuple[bool, bool, int]:
            other = self.parent.producer(name)
            same = bool(node and other and operator(node) == operator(other))
            return not same, name in self._taken, other.index if other else -1

        return self._album.find(held, among, liking)

    def _outputs(self, node: Node, partner: Node | None) -> None:
        for output, other in zip(node.outputs, partner.outputs if partner else (), strict=False):
            if output not in self.pairs and self._fits(output, other):
                below = self._by_value(output, other)
                self._pair(output, below or other, How.value if below or self._agreed(output, other) else How.position)

    def _anchor(self, node: Node) -> Node | None:
        if node.index not in self._anchored:
            self._anchored[node.index] = anchor(self.child, node, self.parent)
        return self._anchored[node.index]

    def _same_weights(self, node: Node, other: Node) -> bool:
        return same_weights(self.child, node, self.parent, other)

    def _token(self, kin: Kin, node: Node, outputs: Iterable[str]) -> Any:
        for output in outputs:
            if output in self.pairs:
                return "paired", self.pairs[output].tensor
        held = [kin.prints.get(output) for output in node.outputs]
        return operator(node), tuple(one.shapes if one else None for one in held)
