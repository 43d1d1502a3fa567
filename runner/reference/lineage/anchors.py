"""Nodes known by their weights, which no other node has."""

from __future__ import annotations

from runner.model.graph.index import Node
from runner.reference.lineage.align import Kin, operator
from runner.reference.lineage.fingerprints import Print, agree

# one product with a matrix, however it is written
_PRODUCTS = frozenset({"MatMul", "Gemm"})


def weights(kin: Kin, node: Node) -> list[Print]:
    """Return what a node reads that no data reaches, as far as it can be told from others."""
    held = [kin.constant(name) for name in node.inputs if name in kin.graph.data_independent]
    return [one for one in held if one is not None and one.telling]


def same_weights(child: Kin, node: Node, parent: Kin, other: Node) -> bool:
    """Whether two nodes have the same weights, in the same order."""
    mine, theirs = weights(child, node), weights(parent, other)
    return len(mine) == len(theirs) and all(agree(a, b) for a, b in zip(mine, theirs, strict=True))


def anchor(child: Kin, node: Node, parent: Kin) -> Node | None:
    """Return the one node of the parent with the operator and the weights of a child's; None: there is none.

    A product with a matrix may be written in another way: of one with a bias it is the addition that is returned.
    """
    if not weights(child, node):
        return None
    alike = [one for one in parent.by_operator.get(operator(node), ()) if same_weights(child, node, parent, one)]
    if alike or node.op_type not in _PRODUCTS:
        return alike[0] if len(alike) == 1 else None
    return _product(child, node, parent)


def _product(child: Kin, node: Node, parent: Kin) -> Node | None:
    """Return where the parent has the same product with a matrix written in another way."""
    held = child.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if held is None or not held.telling:
        return None
    found = [
        one
        for name in _PRODUCTS
        for one in parent.by_operator.get(name, ())
        if len(one.inputs) > 1 and (theirs := parent.constant(one.inputs[1])) and agree(held, theirs)
    ]
    if len(found) != 1:
        return None
    has_bias = len(node.inputs) > 2
    if has_bias == (len(found[0].inputs) > 2):
        return found[0]
    readers = parent.handed.get(found[0].outputs[0], ())
    if not has_bias or len(readers) != 1 or readers[0][0].op_type != "Add":
        return None
    return readers[0][0]
