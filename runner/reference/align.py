"""Which tensor of the parent each tensor of a converted, simplified, fused or quantized child is.

Evidence, strongest first: the user's map, equal names, equal values, structure. A value decides against a name or the
structure in one case only: where it is that of a tensor further *down* in the parent. Then the child's node does what
several of the parent's did (a folded normalization, a fused activation). A value from further *up* is that of a node
that does nothing where it should do something, and so perhaps the bug itself.

Structure: a node is known by its weights, unless what it reads is another node's (the weights of two layers may be
swapped); by who reads what it makes; by its operator and the partners of what it reads where only one node is left
that does this; and at last by its place in the sequence of operators, which counts only where a neighbor agrees.
Downstream of a wrong node no value agrees, and structure alone decides. The order of nodes that nothing else tells
apart says nothing: converters write such nodes in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property

from runner.model.graph.graph_index import Node
from runner.reference.fingerprints import agree
from runner.reference.tensor_pairs import (
    PRODUCTS,
    SYMMETRIC,
    EqualValues,
    FingerprintedGraph,
    How,
    Partner,
    agree_all,
    bias_apart,
    made_with,
    operator,
    same_product,
    with_same_weights,
)

MOST_ALIKE = 5_000_000
"""Pairs of equal items up to which sequences are aligned: the work grows with them."""


def aligned(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the places of equal items in their longest common blocks; nothing where that would take too long."""
    counts = Counter(theirs)
    if sum(counts[one] for one in ours) <= MOST_ALIKE:
        for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
            yield from ((block.a + at, block.b + at) for at in range(block.size))


# What a quantizer leaves of the original: names of weights, and values that it cuts off where a node did before.

QUANTIZED = "_quantized"
"""What ONNX Runtime's quantizer adds to the name of a weight."""
_LIMITING = frozenset({"Relu", "Clip"})


def named_weights(child: FingerprintedGraph, parent: FingerprintedGraph) -> Iterator[tuple[str, str]]:
    """Yield the tensors of a child that are dequantized weights, each with the parent's weight of that name."""
    for node in child.graph.nodes:
        if node.op_type == "DequantizeLinear" and node.inputs[0] in child.graph.initializers:
            name, own = node.inputs[0].removesuffix(QUANTIZED), node.outputs[0]
            readers = [each.readers.get(tensor, ()) for each, tensor in ((child, own), (parent, name))]
            mine, theirs = (
                {side.turns(one, tensor) for one, _ in some}
                for side, tensor, some in zip((child, parent), (own, name), readers, strict=True)
            )
            apart = (_folded(child, one, parent, other) for one, _ in readers[0] for other, _ in readers[1])
            if name in parent.graph.initializers and mine == theirs and not any(apart):
                yield own, name


def _folded(child: FingerprintedGraph, node: Node, parent: FingerprintedGraph, partner: Node) -> bool:
    """Whether only the parent normalizes what a node makes: the weights of the child's have that folded into them."""
    both = ((one.readers.get(each, ()) for each in made.outputs) for one, made in ((child, node), (parent, partner)))
    mine, theirs = ({reader.op_type for some in readers for reader, _ in some} for readers in both)
    return "BatchNormalization" in theirs - mine


def limits(parent: FingerprintedGraph, partner: str) -> Node | None:
    """Return the node that makes a tensor by cutting off what is beyond its limits; None: another makes it."""
    node = parent.graph.producer(partner)
    return node if node is not None and node.op_type in _LIMITING and node.inputs else None


def to_be_cut(child: FingerprintedGraph, parent: FingerprintedGraph, partners: Mapping[str, Partner]) -> frozenset[str]:
    """Return the tensors before pairs that have to do what a Relu or a Clip does in the parent, right behind these.

    Only a quantizer takes that out and leaves the node before it as it was.
    """
    found = set[str]()
    for after, node in child.pairs.items():
        name, known = node.inputs[0], partners.get(node.inputs[0])
        own = child.graph.producer(name)
        if known is None or own is None:
            continue
        readers = [one for one, _ in parent.readers.get(parent.root(known.tensor), ())]
        for limit in (parent.graph.producer(known.tensor), *(readers if len(readers) == 1 else ())):
            made = limits(parent, limit.outputs[0]) if limit and limit.outputs else None
            before = parent.graph.producer(made.inputs[0]) if made else None
            ahead = [child.graph.nodes[at] for at in child.graph.readers.get(after, ())]
            if made and before and operator(own) == operator(before) and operator(made) not in map(operator, ahead):
                found.add(name)
    return frozenset(found)


MOST_FUSED = 4
"""Nodes in a row whose work one node does, at most."""
_LINEAR = PRODUCTS | {"Conv", "ConvTranspose"}
"""What a scale, a shift or a normalization after it is folded into."""
MOST_ROUNDS = 50
"""How often everything is looked at again; each time must have brought something."""
RESHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


@dataclass
class Matching:
    """Finds partners.

    ``pairs``: those found so far, by tensor of the child. ``alone``: tensors of the child that have no partner, by the
    user's word. ``loose``: partners may differ in shape. ``named``: whether names mean anything.
    """

    child: FingerprintedGraph
    parent: FingerprintedGraph
    pairs: dict[str, Partner]
    alone: frozenset[str] = frozenset()
    loose: bool = False
    named: bool = True
    _anchored: dict[int, Node | None] = field(default_factory=dict)
    _begins: dict[str, str] = field(default_factory=dict)
    _partner_for: dict[str, str] = field(default_factory=dict)
    _with_weights: dict[Hashable, Node | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._equal = EqualValues(self.parent)
        self._partner_for |= {self.parent.root(one.tensor): self.child.root(name) for name, one in self.pairs.items()}

    def find(self) -> dict[str, Partner]:
        """Return the partners of the child's tensors: those there were, revised, and what can be concluded."""
        self._names()
        for tensor, weight in named_weights(self.child, self.parent):
            self._offer(tensor, weight, How.name)
        for _ in range(MOST_ROUNDS):
            before = len(self.pairs)
            self._equal.taken = {one.tensor for one in self.pairs.values()}
            self._values()
            self._anchors()
            self._forward()
            while self._left_over():
                pass
            self._backward()
            self._limits()
            self._reshapes()
            if len(self.pairs) == before:
                self._sequence()
            if len(self.pairs) == before:
                break
        for tensor, source in self.child.limited.items():
            if known := self.pairs.get(source):
                self._offer(tensor, known.tensor)
        for tensor, root in self.child.roots.items():
            if known := self.pairs.get(root):
                self._offer(tensor, known.tensor, reshaped=known.reshaped)
        return self.pairs

    def _limited(self, partner: str) -> str:
        """Return what a tensor cut off by its integers is: ``partner``, or what its only reader limits it to."""
        readers = self.parent.readers.get(self.parent.root(partner), ())
        after = readers[0][0].outputs[0] if len(readers) == 1 and readers[0][0].outputs else ""
        node = limits(self.parent, after)
        return after if node and node.inputs[0] == partner else partner

    def place_outputs(self) -> None:
        """Make partners of outputs that have none, by their place, if there are as many on both sides.

        What is another tensor's partner may be an output's, too: then nodes stand between the two. Of tensors that are
        one handed on, the output is an output's partner.
        """
        mine, left = [], [*self.parent.graph.outputs]
        for name in self.child.graph.outputs:
            if (known := self.pairs.get(name)) is None:
                mine.append(name)
                continue
            alike = [one for one in left if self.parent.root(one) == self.parent.root(known.tensor)]
            if alike:
                end = known.tensor if known.tensor in alike else alike[0]
                left.remove(end)
                if known.how in (How.value, How.position):
                    self._pair(name, end, known.how, reshaped=known.reshaped)
        for name, partner in zip(mine, left, strict=True) if len(mine) == len(left) else ():
            self._offer(name, partner)

    # ---- evidence

    def _names(self) -> None:
        """Equal names are partners; a value further down decides against a name and what structure told before."""
        for tensor in self.child.graph.producers:
            known = self.pairs.get(tensor)
            again = known == Partner(tensor, How.name) and tensor in self.child.before_limit  # as good values show
            named = self.named and (known is None or again) and tensor in self.parent.graph.producers
            partner = self._before_limit(tensor, tensor) if named else tensor
            if named and self._fits(tensor, partner) and not bias_apart(self.child, tensor, self.parent, partner):
                known = Partner(partner, How.name)
                self._pair(tensor, partner, How.name)
            revisable = known and known.how in (How.name, How.position) and not known.reshaped
            if known and revisable and (better := self._by_value(tensor, known.tensor)):
                self._pair(tensor, better, How.value)
        for tensor, known in [*self.pairs.items()]:
            maker = self.child.graph.producer(tensor)
            by_place = known.how is How.position and not known.reshaped and maker and maker.op_type in _LINEAR
            if (known.how is How.name or by_place) and (better := self._last_of_fused(tensor, known.tensor)):
                self._pair(tensor, better, How.position)
                self._begins[tensor] = known.tensor

    def _last_of_fused(self, tensor: str, first: str) -> str | None:
        """Return what a tensor is in truth that has the name or the place of another one, further up.

        A node that does the work of several may have the name or the operator of the first of them, and makes what the
        last one made. It is another node than that first one, and its readers say what it is.
        """
        node, partner = self.child.graph.producer(tensor), self.parent.graph.producer(first)
        votes = {*self._votes(tensor)}
        if not node or not partner or len(votes) != 1 or self._is_same(node, partner):
            return None
        vote = votes.pop()
        free = vote not in self._partner_for and vote != self.parent.root(first)
        return vote if free and self._fits(tensor, vote) and self.parent.depends(vote, first) else None

    def _is_same(self, node: Node, partner: Node) -> bool:
        """Whether two nodes are one: by operator, attributes and weights."""
        mine, theirs = (
            (operator(one), len(one.inputs), {each.name: each for each in side.graph.protos[one.index].attribute})
            for side, one in ((self.child, node), (self.parent, partner))
        )
        held = [each.weights_of(one, all_of_them=True) for each, one in ((self.child, node), (self.parent, partner))]
        return mine == theirs and agree_all(*held)

    def _values(self) -> None:
        """Equal values are partners, unless that says of a node that it does nothing: this may be the bug."""
        for node in self.child.graph.nodes:
            if not self.child.hands_on(node):
                for output in node.outputs:
                    partner = self._by_value(output) if output not in self.pairs else None
                    if partner and not self._is_above(partner, node):
                        self._pair(output, partner, How.value)

    def _is_above(self, partner: str, node: Node) -> bool:
        """Whether a node of the child gets a tensor of the parent, by itself or from others that do nothing to it."""
        same = self.parent.root(partner)
        own = self._partner_for.get(same)
        further = own is not None and any(self.child.depends(output, own) for output in node.outputs)
        return further or same in map(self._seen, node.inputs)

    def _anchors(self) -> None:
        """The same operator with the same weights, which no other has, is the same node."""
        for node in self.child.graph.nodes:
            is_open = node.outputs and (node.outputs[0] not in self.pairs or node.op_type in PRODUCTS)
            partner = self._anchor(node) if is_open else None
            made = made_with(self.child, node, self.parent, partner) if partner else None
            mine, theirs = (one.outputs for one in made) if made else ((), ())
            if not mine or mine[0] in self.pairs or theirs[0] in self._equal.taken:
                continue
            for output, other in zip(mine, theirs, strict=False):
                if output not in self.pairs and self._fits(output, other):
                    self._pair(output, other, How.position)
            if node.op_type in PRODUCTS and mine[0] not in self.pairs and self._fits_reshaped(mine[0], theirs[0]):
                self._pair(mine[0], theirs[0], How.position, reshaped=True)

    def _forward(self) -> None:
        """What alone reads a tensor, with others, is what alone reads its partner, if it is the same operator.

        One of the others may be the bug, and then says nothing of what this one is. A bias is none of them.
        """
        for node in self.child.graph.nodes:
            reads = self.child.reads(node)
            found = set[int]()
            for name in reads if len(reads) > 1 and node.outputs and node.outputs[0] not in self.pairs else ():
                mine, theirs = self.child.readers[name], self.parent.readers.get(self._seen(name) or "", ())
                if len(mine) == len(theirs) == 1 and operator(theirs[0][0]) == operator(node):
                    found |= {theirs[0][0].index} if len(self.parent.reads(theirs[0][0])) == len(reads) else set()
            other = self.parent.graph.nodes[found.pop()] if len(found) == 1 else None
            if other and other.outputs and other.outputs[0] not in self._equal.taken:
                self._offer(node.outputs[0], other.outputs[0])

    def _backward(self) -> None:
        """What a node reads is what its partner reads at the same place, unless its value says otherwise.

        Of two tensors with the value of one, a wrong slice may have made the second: it is what its readers say, where
        that has no other partner.
        """
        having: dict[str, set[str]] = {}
        for name, one in self.pairs.items():
            having.setdefault(self.parent.root(one.tensor), set()).add(self.child.root(name))
        for node in reversed(self.child.graph.nodes):
            for tensor in node.outputs:
                held, known = self.child.constant(tensor), self.pairs.get(tensor)
                same = self.parent.root(known.tensor) if known and known.how is How.value else ""
                twins = having.get(same, set()) - {self.child.root(tensor)}
                if (known is None or twins) and (held is None or held.telling):
                    votes = set(self._votes(tensor))
                    vote = votes.pop() if len(votes) == 1 else None
                    if vote and known and (vote in self._partner_for or self.parent.depends(same, vote)):
                        continue
                    if vote and self._fits(tensor, vote):
                        self._pair(tensor, vote, How.position)
                        if twins:
                            having[same], self._partner_for[same] = twins, min(twins)
                    elif vote and known is None and self._is_factor(tensor) and self._fits_reshaped(tensor, vote):
                        self._pair(tensor, vote, How.position, reshaped=True)

    def _limits(self) -> None:
        """What a pair limits, and what it leaves of that, are what a Relu or a Clip reads and makes.

        Integers that an operator with scales of its own makes are what it leaves.
        """
        for after, before in self.child.limited.items():
            known, left = self.pairs.get(self.child.root(before)), self.pairs.get(after)
            if left and not known:
                self._offer(before, self._before_limit(before, left.tensor))
            elif known and not left and not known.reshaped and (made := self._limited(known.tensor)) != known.tensor:
                self._offer(after, made)
        told = self.child.weights.readings
        for name in sorted(told.keys() & self.pairs.keys()):
            one, made = self.pairs[name], self._limited(self.pairs[name].tensor)
            held = [self.parent.prints[each].numbers for each in (one.tensor, made) if each in self.parent.prints]
            cut = one.how in (How.name, How.position) and len(held) > 1 and told[name][0].cuts_off(*held)
            if cut and self._fits(name, made):
                self._pair(name, made, How.position)

    def _before_limit(self, tensor: str, partner: str) -> str:
        """Return what a tensor is that a pair limits: ``partner``, or what that was before nodes limited it."""
        own = self.child.graph.producer(tensor) if tensor in self.child.before_limit else None
        while own and (node := limits(self.parent, partner)) and operator(own) != operator(node):
            partner = node.inputs[0]
        return partner

    def _left_over(self) -> bool:
        """Of the nodes with one operator on the same tensors: the last without a partner, where there is one each.

        Return whether any was found: then what reads it may be one, too.
        """
        before = len(self.pairs)
        groups: dict[tuple[str, ...], list[Node]] = {}
        for node in self.child.graph.nodes:
            if node.outputs and node.outputs[0] not in self.pairs and (work := self._work(node)):
                groups.setdefault(work, []).append(node)
        for work, mine in groups.items():
            left = [one for one in self.parent.by_work.get(work, ()) if one.outputs[0] not in self._equal.taken]
            made = made_with(self.child, mine[0], self.parent, left[0]) if len(mine) == len(left) == 1 else None
            if made and made[1].outputs[0] not in self._equal.taken:
                self._offer(made[0].outputs[0], made[1].outputs[0])
        return len(self.pairs) > before

    def _reshapes(self) -> None:
        """Where a converter put a tensor into another shape for a while, it is the same tensor."""
        for node in self.child.graph.nodes:
            if node.op_type not in RESHAPING or node.domain:
                continue
            before, after = node.inputs[0], node.outputs[0]
            for known, open_one in ((before, after), (after, before)):
                partner = self.pairs.get(known)
                if not partner or open_one in self.pairs or open_one not in self.child.graph.producers:
                    continue
                alone = open_one is after or len(self.child.graph.readers[before]) == 1
                if not self._offer(open_one, partner.tensor) and alone and not self._is_reshape_of_both(node):
                    self._pair(open_one, partner.tensor, How.position, reshaped=True)

    def _is_reshape_of_both(self, node: Node) -> bool:
        """Whether the parent reshapes that tensor too: what comes of it then is a matter of its own."""
        source, made = self._seen(node.inputs[0]), self._seen(node.outputs[0])
        readers = self.parent.readers.get(source, ()) if source else ()
        maker = self.parent.graph.producer(made) if made else None
        return any(one.op_type in RESHAPING for one, _ in readers) or bool(maker and maker.op_type in RESHAPING)

    def _sequence(self) -> None:
        """Align what is left by the sequence of operators and shapes; keep what a neighbor supports."""
        mine, theirs = self.child.graph.nodes, self.parent.graph.nodes
        known = {name: one.tensor for name, one in self.pairs.items()}
        ours = [_token(self.child, node, known) for node in mine]
        taken = {name: name for name in self._equal.taken}
        others = [_token(self.parent, node, taken) for node in theirs]
        tentative = []
        for one, two in aligned(ours, others):
            node, partner = mine[one], theirs[two]
            anchor = self._anchor(node)
            if anchor and made_with(self.child, node, self.parent, anchor) != (node, partner):
                continue
            for output, other in zip(node.outputs, partner.outputs, strict=False):
                if output not in self.pairs and output not in self.alone and self._fits(output, other):
                    tentative.append(output)
                    self.pairs[output] = Partner(other, How.position)
        while unsupported := [name for name in tentative if name in self.pairs and not self._supported(name)]:
            for name in unsupported:
                del self.pairs[name]

    # ---- what a node or a value says

    def _by_value(self, tensor: str, known: str | None = None) -> str | None:
        """Return the parent's tensor that has this value, if no other has; ``known``: it must lie below that one.

        Of several that hold the same numbers it does not matter which: the one that the same operator makes.
        """
        held = self.child.prints.get(tensor)
        if held is None or tensor in self.child.graph.data_independent or tensor in self.alone:
            return None
        if known is not None and ((theirs := self.parent.prints.get(known)) is None or agree(held, theirs)):
            return None
        node = self.child.graph.producer(tensor)
        return self._equal.find(tensor, held, operator(node) if node else "", known)

    def _anchor(self, node: Node) -> Node | None:
        """Return the one node of the parent that has the weights of the child's; None: the graph speaks against it."""
        found = self._with_the_weights(node)
        if found is None or node.index in self._swapped or self._reads_elsewhere(node, found):
            return None
        return found

    @cached_property
    def _swapped(self) -> frozenset[int]:
        """The nodes that depend on one another the other way round than the nodes of the parent with their weights."""
        last: dict[str, tuple[Node, Node]] = {}
        found: set[int] = set()
        for node in self.child.graph.nodes:
            partner = self._with_the_weights(node) if node.outputs else None
            if partner is not None:
                before, above = last.get(operator(node), (node, partner))
                if (
                    above.index > partner.index
                    and self.child.depends(node.outputs[0], before.outputs[0])
                    and self.parent.depends(above.outputs[0], partner.outputs[0])
                ):
                    found |= {node.index, before.index}
                last[operator(node)] = node, partner
        return frozenset(found)

    def _reads_elsewhere(self, node: Node, partner: Node) -> bool:
        """Whether what one of two nodes reads belongs to another node of that operator: the weight may be the bug."""
        mine, theirs = self.child.reads(node), self.parent.reads(partner)
        known = (seen for name in mine if (seen := self._seen(name)) and seen not in theirs)
        if any(_is_read(self.parent, seen, node, partner) for seen in known):
            return True
        wanted = (one for name in theirs if (one := self._partner_for.get(name)) and one not in mine)
        return any(self._seen(one) in theirs and _is_read(self.child, one, node, node) for one in wanted)

    def _with_the_weights(self, node: Node) -> Node | None:
        if node.index not in self._anchored:
            mine = self.child.weights_of(node)
            key = (node.domain, node.op_type, *(one.content for one in mine))
            if key not in self._with_weights:  # an unrolled network reads one weight a thousand times
                self._with_weights[key] = with_same_weights(self.child, node, mine, self.parent)
            self._anchored[node.index] = self._with_weights[key]
        return self._anchored[node.index]

    def _is_factor(self, tensor: str) -> bool:
        """Whether a tensor is only multiplied with matrices: then its rows are all that matters of its shape."""
        return all(one.op_type in PRODUCTS and slot == 0 for one, slot in self.child.readers.get(tensor, ()))

    def _votes(self, tensor: str) -> Iterable[str]:
        """Return what the partners of a tensor's readers read in its place."""
        for node, slot in self.child.readers.get(tensor, ()):
            partner = self._partner_of(node) or self._anchor(node)
            if partner is None or (len(partner.inputs) != len(node.inputs) and node.op_type not in _LINEAR):
                continue
            if tensor in self.child.graph.data_independent and _folded(self.child, node, self.parent, partner):
                continue
            if node.op_type in SYMMETRIC and len(node.inputs) == 2:
                other = self._seen(node.inputs[1 - slot])
                left = [self.parent.root(name) for name in partner.inputs if self.parent.root(name) != other]
                if other is not None and len(left) == 1:
                    yield left[0]
                    continue
            if node.op_type in PRODUCTS and self.child.use(node, slot) != self.parent.use(partner, slot):
                continue  # what one of the two reads is stored in another way
            if not self._crossed(node, partner):
                for read in partner.inputs[slot : slot + 1]:
                    merged = node.op_type in _LINEAR and not self._is_same(node, partner)
                    yield self.parent.root(self._before_merged(tensor, read) if merged else read)

    def _before_merged(self, tensor: str, read: str) -> str:
        """Return what a node reads that may do the work of several: where its partner reads ``read``, or further up."""
        maker, before = self.child.graph.producer(tensor), read
        for _ in range(MOST_FUSED):
            other = self.parent.graph.producer(self.parent.root(before))
            if maker and other and operator(maker) == operator(other):
                return before
            reads = self.parent.reads(other) if other and other.op_type in _LINEAR else ()
            if len(reads) != 1 or len(self.parent.readers[before]) != 1:
                break
            before = reads[0]
        return read

    def _crossed(self, node: Node, partner: Node) -> bool:
        """Whether the same operators make what both nodes read, in another order: then no place says anything."""
        mine, theirs = (
            [operator(maker) if (maker := one.graph.producer(one.root(name))) else "" for name in reads]
            for one, reads in ((self.child, node.inputs), (self.parent, partner.inputs))
        )
        return mine != theirs and sorted(mine) == sorted(theirs)

    def _supported(self, tensor: str) -> bool:
        """Whether a neighbor says what the sequence does: who reads the tensor, or what only its node does."""
        partner = self.pairs[tensor].tensor
        if partner in self._votes(tensor):
            return True
        node = self.child.graph.producer(tensor)
        work = self._work(node) if node else None
        return bool(work) and [self.parent.graph.producer(partner)] == self.parent.by_work.get(work or ())

    def _work(self, node: Node) -> tuple[str, ...] | None:
        """Return the operator of a node and the partners of what it reads; None: they are not all known."""
        seen = [self._seen(name) or "" for name in self.child.reads(node)]
        return (operator(node), *sorted(seen)) if seen and all(seen) else None

    def _offer(self, tensor: str, partner: str, how: How = How.position, *, reshaped: bool = False) -> bool:
        """Make a partner of a tensor that has none, if it fits or is known to be reshaped; return whether it is."""
        fits = tensor not in self.pairs and (reshaped or self._fits(tensor, partner))
        if fits:
            self._pair(tensor, partner, how, reshaped=reshaped)
        return fits

    def _pair(self, tensor: str, partner: str, how: How, *, reshaped: bool = False) -> None:
        if tensor not in self.alone:
            self.pairs[tensor] = Partner(partner, how, reshaped)
            self._partner_for[self.parent.root(partner)] = self.child.root(tensor)
            self._equal.taken.add(partner)

    def _seen(self, tensor: str) -> str | None:
        """Return the first of the parent's tensors that are all the partner of this one."""
        known = self.pairs.get(self.child.root(tensor)) or self.pairs.get(tensor)
        return self.parent.root(known.tensor) if known else None

    def _partner_of(self, node: Node) -> Node | None:
        """Return the parent's node that this one is, or the first of those whose work it does."""
        for output in node.outputs:
            known = self._begins.get(output) or (self.pairs[output].tensor if output in self.pairs else "")
            other = self.parent.graph.producer(known)
            for _ in range(MOST_FUSED if node.op_type in _LINEAR else 0):
                if other is None or operator(other) == operator(node):
                    break
                reads = self.parent.reads(other)
                is_inside = len(reads) == 1 and reads[0] not in self._partner_for
                other = self.parent.graph.producer(reads[0]) if is_inside else None
            if other is not None and operator(other) == operator(node):
                return other
        return same_product(self.child, node, self.parent, self.pairs) if node.op_type in PRODUCTS else None

    def _fits(self, tensor: str, partner: str) -> bool:
        mine, theirs = self.child.prints.get(tensor), self.parent.prints.get(partner)
        if tensor in self.child.graph.data_independent and partner in self.parent.graph.initializers:
            mine, theirs = self.child.constant(tensor), self.parent.constant(partner)
        if theirs is None or mine is None:
            return theirs is not None
        return mine.kind == theirs.kind if self.loose else mine.fits(theirs)

    def _fits_reshaped(self, tensor: str, partner: str) -> bool:
        mine, theirs = self.child.prints.get(tensor), self.parent.prints.get(partner)
        return bool(mine and theirs and mine.holds_as_many(theirs))


def _is_read(one: FingerprintedGraph, tensor: str, node: Node, other: Node) -> bool:
    """Whether a node with the operator of ``node`` reads a tensor, ``other`` aside."""
    kinds = PRODUCTS if node.op_type in PRODUCTS else {node.op_type}
    return any(reader.op_type in kinds and reader != other for reader, _ in one.readers.get(tensor, ()))


def _token(one: FingerprintedGraph, node: Node, paired: Mapping[str, str]) -> Hashable:
    if node.outputs and node.outputs[0] in paired:
        return "paired", paired[node.outputs[0]]
    held = [one.prints.get(output) for output in node.outputs]
    return operator(node), tuple(each.shapes if each else None for each in held)
