"""A graph in columns: names, operators, blocks, tensors with their types, and who reads what. Weights are not read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from runner.model.graph.graph_index import Graph as Index
from runner.model.graph.graph_index import Node
from runner.report.page.collect.attributes import attributes_of
from runner.report.page.data import Graph

STRETCH = 500
"""Nodes of a block where names have no scopes."""
TOP = "(no scope)"
_SEPARATORS = ("/", "::", ".")

T = TypeVar("T")


class _Places(dict[str, int]):
    """Gives each text its place, in the order in which they are met."""

    def __missing__(self, text: str) -> int:
        self[text] = place = len(self)
        return place


def columns(index: Index, types: Mapping[str, str], culprits: Collection[str] = ()) -> Graph:
    """Return a model's top level. ``types``: of tensors; ``culprits``: names of nodes, as shown."""
    tensors, operators, blocks = _Places(), _Places(), _Places()
    feeds, constants = [tensors[name] for name in index.inputs], [tensors[name] for name in index.initializers]
    constants += [tensors[name] for name in index.carried]
    inputs, attributes = [], {}
    for node, proto in zip(index.nodes, index.protos, strict=True):
        read = list(proto.input)
        # what graphs nested in it capture is read by it as well
        captured = [name for name in node.inputs if name not in read] if node.nests else []
        inputs.append([tensors[name] if name else -1 for name in (*read, *captured)])
        if proto.attribute:
            attributes[str(node.index)] = attributes_of(proto)
    outputs = [[tensors[name] for name in node.outputs] for node in index.nodes]
    results = [tensors[name] for name in index.outputs]
    wanted = frozenset(culprits)
    return {
        "names": [node.name for node in index.nodes],
        "operator": [
            operators[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] for node in index.nodes
        ],
        "operators": list(operators),
        "block": [blocks[name] for name in _blocks(index.nodes)],
        "blocks": list(blocks),
        "tensors": list(tensors),
        "types": [types.get(name, "") for name in tensors],
        "inputs": inputs,
        "outputs": outputs,
        "constants": constants,
        "feeds": feeds,
        "results": results,
        "attributes": attributes,
        "culprits": [node.index for node in index.nodes if node.name in wanted],
    }


def _blocks(nodes: Sequence[Node]) -> list[str]:
    """Return the block of each node: where most names have a scope that, or else a stretch of the model."""
    for separator in _SEPARATORS:
        scopes = [node.name.strip(separator).rpartition(separator)[0] for node in nodes]
        if 2 * sum(map(bool, scopes)) > len(nodes):
            return ["/".join(part for part in scope.split(separator) if part) or TOP for scope in scopes]
    last = len(nodes) - 1
    starts = [at - at % STRETCH for at in range(len(nodes))]
    return [f"nodes {start} to {min(start + STRETCH - 1, last)}" for start in starts]
