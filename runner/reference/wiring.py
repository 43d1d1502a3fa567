"""What the nodes of a converted model read, beside what its original makes the same tensors of.

A conversion may let nodes read each other's tensors: q, k and v of one joined product in another order, the halves of
a Split, a normalization behind an addition instead of before it. No single node of these is wrong by itself: with good
values for what it reads it makes a good value of another tensor. So they are one fault. The bodies of two Loops, Scans,
Ifs or functions are compared node by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from onnx import GraphProto, TensorProto

from runner.model.graph.cut import depends_on
from runner.model.graph.graph_index import Graph, Node
from runner.model.nested.hoist import bodies, body_graph, formal_inputs
from runner.model.passes.lift_constants import lower_constants
from runner.reference.changed_array import Array, alike, change_of, off_of
from runner.reference.changed_weights import unlike_attributes
from runner.reference.tensor_pairs import SYMMETRIC, TAKES_A_PART, operator
from runner.reference.weighted_graph import WeightedGraph

_PAIR = frozenset({"QuantizeLinear", "DequantizeLinear"})
_HANDED = _PAIR | {"Identity", "Cast", "Dropout", "Reshape", "Transpose"}
"""Operators that converters put in where shapes and types want them."""
_FOLDED = _HANDED | {"Add", "Sub", "Mul", "Div", "BatchNormalization"}
"""With those that they fold into weights."""
_PARTS = TAKES_A_PART | {"Concat"}
"""Operators beside which several products are one."""
_MOST_OPERATORS = 4
"""Operators that differ, in all; with more of them one side is written out."""


@dataclass(frozen=True, eq=False)
class Wiring:
    """A converted model, its original, and the tensors of that by the model's that are the same."""

    mine: Graph
    theirs: Graph
    partners: Mapping[str, str]

    def joined(self, nodes: Collection[int], places: Sequence[Collection[int]]) -> frozenset[int]:
        """Return nodes with those places that read what these should, or that should read what these do.

        ``places``: nodes that are wrong on good values.
        """
        found, crossed = frozenset(nodes), self._crossed(nodes)
        left = [(frozenset(place), self._crossed(place)) for place in places]
        while more := [one for one in left if not one[0] <= found and not crossed.isdisjoint(one[1])]:
            found, crossed = found.union(*(one for one, _ in more)), crossed.union(*(tensors for _, tensors in more))
        return found

    def told(self, names: Collection[str]) -> tuple[str, ...]:
        """Return what these nodes read that the original's do not, a sentence each; or else which operators differ."""
        nodes = [node for node in self.mine.nodes if node.name in names]
        said = [how for node in nodes if (how := self._elsewhere([node]))]
        said = said or [f"{node.name} {how}" for node in nodes if (how := self._turned(node))]
        if not said and all(node.op_type in _PAIR for node in nodes):  # it may limit, as a Relu does
            return ()
        said = said or [how for how in [self._elsewhere(nodes)] if how]
        return tuple(said or self._other_operators([node.index for node in nodes]))

    def _elsewhere(self, nodes: Sequence[Node]) -> str:
        """Say which one tensor nodes read, and which the original in their place; "": there is no such pair."""
        places = [node.index for node in nodes]
        _, mine, theirs = self._edges(places) or ((), frozenset(), frozenset())
        own, good = mine - theirs, theirs - mine
        if not len(own) == len(good) == 1 or self._is_below(places, *good) or self._does_less(places):
            return ""
        reader, read = next((node, name) for node in nodes for name in node.inputs if self.partners.get(name) in own)
        it = "it" if len(nodes) == 1 else "these nodes"
        return f"{reader.name} reads {self._of(read)}; like the original {it} should read {self._maker(*good)}"

    def _turned(self, node: Node) -> str:
        """Say that the original's node reads or makes the same tensors at other places, which matters; else ""."""
        other = next(
            (self.theirs.producer(self.partners[name]) for name in node.outputs if name in self.partners), None
        )
        if other is None or operator(other) != operator(node) or node.op_type in SYMMETRIC:
            return ""
        read = [self.partners.get(name, "") for name in node.inputs if name not in self.mine.data_independent]
        good = [name for name in other.inputs if name not in self.theirs.data_independent]
        made, wanted = [self.partners.get(name, "") for name in node.outputs], [*other.outputs]
        if read != good and sorted(read) == sorted(good):
            return "reads its inputs in another order"
        return "makes its outputs in another order" * (made != wanted and sorted(made) == sorted(wanted))

    def _operators(self, nodes: Collection[int], gives: Collection[str], reads: Collection[str]) -> list[Counter[str]]:
        """Return the operators of some nodes, and those of the original's that make the same.

        What converters put in is left out, unless that is all that differs; and Transposes that undo each other.
        """
        here, (_, between) = [self.mine.nodes[at] for at in nodes], self._theirs(gives, reads, self._mine.keys())
        weighted = any(name in self.mine.data_independent for node in here for name in node.inputs)
        passed = _FOLDED if weighted else _HANDED
        here = self._without_undone(here)
        for left_out in (passed, passed - {"Transpose"}):
            mine, theirs = (
                Counter(operator(node) for node in some if node.op_type not in left_out) for some in (here, between)
            )
            if mine != theirs:
                break
        return [mine, theirs]

    def _without_undone(self, nodes: Sequence[Node]) -> list[Node]:
        """Return nodes without Transposes that undo each other, both of them or one that puts a layout back."""
        left = [*nodes]
        turns = [node for node in self.mine.nodes if node.op_type == "Transpose"]
        for one, other in product([node for node in nodes if node.op_type == "Transpose"], turns):
            a, b = ([*next((each.ints for each in self.mine.protos[at.index].attribute), ())] for at in (one, other))
            undoes = len(a) == len(b) and [a[axis] for axis in b] == [*range(len(a))] and one in left
            if undoes and (other in left if other in nodes else a != b) and other != one:
                first, last = sorted((one.index, other.index))
                left = [at for at in left if last not in depends_on(self.mine, [first]) or at not in (one, other)]
        return left

    def _does_less(self, nodes: Collection[int]) -> bool:
        """Whether the original computes more between what nodes make and what these should read."""
        edges = self._edges(nodes)
        mine, theirs = self._operators(nodes, *edges[:2]) if edges else [Counter[str]()] * 2
        return bool(theirs - mine) and not mine - theirs

    def _other_operators(self, nodes: Collection[int]) -> Iterator[str]:
        """Yield which operators some nodes are that the original has not there, and the other way round."""
        edges = self._edges(nodes)
        if edges is None or edges[1] != edges[2]:
            return
        mine, theirs = self._operators(nodes, *edges[:2])
        own, good = (", ".join(dict.fromkeys(one.elements())) for one in (mine - theirs, theirs - mine))
        joined = any(
            {*(one - other)} <= _PARTS and {*(other - one)} <= {*one} for one, other in ((mine, theirs), (theirs, mine))
        )
        if (own and good and joined) or (mine - theirs).total() + (theirs - mine).total() > _MOST_OPERATORS:
            return
        if own and good:
            yield f"{own}, where the original has {good}"
        elif own or good:
            are = "are" if "," in good else "is"
            yield (
                f"{own}, which the original does not have there" if own else f"the original's {good} {are} missing here"
            )

    def _is_below(self, nodes: Collection[int], theirs: str) -> bool:
        """Whether the model makes a tensor of the original of what nodes make: then they cannot read it."""
        maker = self.mine.producers.get(self._mine.get(theirs, ""))
        return maker is not None and maker in depends_on(self.mine, nodes)

    def _maker(self, theirs: str) -> str:
        """Return what makes a tensor of the original, in words: a node of the model, else one of the original."""
        if name := self._mine.get(theirs):
            return self._of(name)
        node = self.theirs.producer(theirs)
        return f"the output of the original's {node.name}" if node else f"the input {theirs}"

    def _of(self, name: str) -> str:
        own = self.mine.producer(name)
        if own is None:
            return f"the input {name}"
        return f"the output {name} of {own.name}" if len(own.outputs) > 1 else f"the output of {own.name}"

    @cached_property
    def _mine(self) -> Mapping[str, str]:
        """The model's tensor by the original's: of several that hand it on, the first."""
        tensors = (*self.mine.inputs, *self.mine.producers)
        return {self.partners[name]: name for name in reversed(tensors) if name in self.partners}

    def _crossed(self, nodes: Collection[int]) -> frozenset[str]:
        """Return the original's tensors that either some nodes read or the original in their place, but not both."""
        edges = self._edges(nodes)
        return edges[1] ^ edges[2] if edges else frozenset()

    def _edges(self, nodes: Collection[int]) -> tuple[frozenset[str], frozenset[str], frozenset[str]] | None:
        """Return what nodes make, what they read, and what the original reads to make that: tensors of the original.

        None where one that they read has no partner, and of nodes that read nothing but constants.
        """
        graph, partners = self.mine, self.partners
        made = {name for index in nodes for name in graph.nodes[index].outputs}
        read = {name for index in nodes for name in graph.nodes[index].inputs} - made - graph.data_independent
        ends = [one for one in made if one in graph.output_set or not set(graph.readers.get(one, ())) <= {*nodes}]
        gives = frozenset(partners[one] for one in ends if one in partners)
        if not gives or not read or not read <= partners.keys():
            return None
        reads = frozenset(partners[one] for one in read)
        return gives, reads, self._theirs(gives, reads, self._mine.keys())[0]

    def _theirs(
        self, gives: Collection[str], reads: Collection[str], known: Collection[str]
    ) -> tuple[frozenset[str], list[Node]]:
        """Return the nearest of the original's tensors, among ``known`` and its inputs, that it makes others of.

        Also the nodes that make the others of these.
        """
        graph, seen, waiting, found, between = self.theirs, set[str](), [*gives], set[str](), dict[int, Node]()
        while waiting:
            name = waiting.pop()
            node = graph.producer(name)
            if node is None or (name in known and (name not in gives or name in reads)):
                found |= {name} - graph.initializers.keys()
            elif name not in seen:
                seen.add(name)
                between[node.index] = node
                waiting += [one for one in node.inputs if one not in graph.data_independent]
        return frozenset(found), [*between.values()]


# The body of a converted model's Loop, Scan, If or function beside that of its original, node by node.
#
# Only bodies are compared that are alike: as many nodes in the same order, few of which differ.

_Side: TypeAlias = tuple[WeightedGraph, GraphProto]
_MOST_SENTENCES = 4
"""Sentences about one body; where there are more, the two are not alike."""


def changed_bodies(
    mine: WeightedGraph, theirs: WeightedGraph, origins: Mapping[str, str], names: Collection[str]
) -> tuple[str, ...]:
    """Return what differs in the bodies of these nodes, a sentence each; for the parameters see `changed_weights`."""
    said = list[str]()
    for node in mine.graph.nodes:
        origin = theirs.named.get(origins.get(node.name, "")) if node.name in names else None
        good = bodies(theirs.graph, [origin.index]) if origin else ()
        for own, other in zip(bodies(mine.graph, [node.index]), good, strict=False):
            sides = [(side, body_graph(side.graph, body)) for side, body in ((mine, own), (theirs, other))]
            found = [*_told(own.path, sides)]
            said += found if len(found) <= _MOST_SENTENCES else []
    return tuple(said)


def _told(path: str, sides: Sequence[_Side]) -> Iterator[str]:
    own, good = (body for _, body in sides)
    for body in (own, good):
        lower_constants(body, 4)
    if len(own.node) != len(good.node):
        return
    inputs = (formal_inputs(body) for body in (own, good))
    partners = {one.name: other.name for one, other in zip(*inputs, strict=False)}
    for node, other in zip(own.node, good.node, strict=True):
        name, reads, wants = f"{path}/{node.name or node.output[0]}", [*node.input], [*other.input]
        if (node.domain, node.op_type) != (other.domain, other.op_type):
            yield f"{name} is {node.op_type}, where the original has {other.op_type}"
            reads = []
        else:
            both = zip(sides, (node, other), strict=True)
            yield from unlike_attributes(name, [(side.graph, one) for (side, _), one in both])
        if node.op_type in SYMMETRIC and sorted(partners.get(one, one) for one in reads) == sorted(wants):
            reads, wants = sorted(reads, key=lambda one: partners.get(one, one)), sorted(wants)
        for read, wanted in zip(reads, wants, strict=False):
            mine, theirs, unchanged = _constant(sides[0], read), _constant(sides[1], wanted), _constant(sides[1], read)
            changes = not _same(mine, theirs)
            if partners.get(read, wanted) != wanted or (theirs is not None and changes and _same(mine, unchanged)):
                yield f"{name} reads {read}; the original reads {wanted} there"
            elif changes and mine is not None and theirs is not None and mine.dtype == theirs.dtype:
                change = change_of(mine, theirs)
                here = f"{read} in {path}"
                yield change.of(here, wanted) if change else f"{here} differs from {wanted} of the original"
        partners |= zip(node.output, other.output, strict=False)
    made, given = [partners.get(one.name, "") for one in own.output], [one.name for one in good.output]
    if made != given and sorted(made) == sorted(given):
        yield f"{path} hands out its values in another order"


def _constant(side: _Side, name: str) -> Array | None:
    """Return the numbers of a constant, of the body or of the graph around it; None where it is none."""
    held: Any = next((one for one in side[1].initializer if one.name == name), None)
    array = side[0].weights.store.array(held) if isinstance(held, TensorProto) else side[0].weights.array(name)
    return array if isinstance(array, np.ndarray) and array.dtype.kind not in "OSUb" else None


def _same(mine: Array | None, good: Array | None) -> bool:
    if mine is None or good is None or mine.shape != good.shape:
        return False
    wide = mine.astype(np.float64), good.astype(np.float64)
    return np.array_equal(*wide, equal_nan=True) or alike(*wide, off_of(wide[0]))
