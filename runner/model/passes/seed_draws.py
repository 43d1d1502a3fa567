"""Nodes that draw random numbers get seeds, so that a candidate draws what the whole model draws."""

from __future__ import annotations

from onnx import GraphProto, NodeProto, helper

from runner.model.graph import scopes

# Nodes that draw random numbers get the seed with which ONNX Runtime draws for them in the user's file.
#
# After ``onnxruntime.set_seed(n)`` a node without a seed of its own draws as one with the seed n plus the node's place
# among those of its graph, Constants not counted, whatever the optimizations make of the others (an If whose condition
# is a constant excepted: its branch moves). So what is cut out of a model draws what the whole model draws. A Dropout
# in training draws from one sequence with all others, and a Bernoulli is replaced by nodes at the end: with a seed
# they draw the same in each run, but other numbers than in the file. What stands in a function gets none.

_EXACT = frozenset({"Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})


def seed_draws(graph: GraphProto, seed: int) -> list[str]:
    """Give them a seed, in place, in nested graphs as well; return the names of those that got one."""
    found = []
    for each in scopes.graphs_below(graph):
        counted = (node for node in each.node if node.op_type != "Constant")
        for place, node in enumerate(counted):
            if (_draws_exactly(node) or _draws_otherwise(node)) and not _has_seed(node):
                number = seed + place if node.op_type == "Dropout" else float(seed + place)
                node.attribute.append(helper.make_attribute("seed", number))
                found.append(node.name or next(iter(node.output), node.op_type))
    return found


def is_seeded(node: NodeProto, *, exactly: bool) -> bool:
    """Whether a node draws by a seed of its own. ``exactly``: also one that gives the file's own numbers."""
    return _has_seed(node) and (_draws_otherwise(node) or (exactly and _draws_exactly(node)))


def _has_seed(node: NodeProto) -> bool:
    return any(attribute.name == "seed" for attribute in node.attribute)


def _draws_exactly(node: NodeProto) -> bool:
    return node.op_type in _EXACT and not scopes.domain_of(node.domain)


def _draws_otherwise(node: NodeProto) -> bool:
    drops = node.op_type == "Dropout" and len(node.input) > 2
    return (drops or node.op_type == "Bernoulli") and not scopes.domain_of(node.domain)
