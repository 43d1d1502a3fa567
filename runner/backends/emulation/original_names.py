"""What nodes and tensors of a model were called before `rounding` rewrote it."""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP035
from __future__ import annotations

from typing import Any, Iterator

from runner.backends.emulation.lowering_steps import INSIDE
from runner.backends.nested_graphs import bodies

RAW, WIDE = "__raw", "__wide"
"""Ends of the names of what a node makes, before it is rounded and after."""


def plain(name: str) -> str:
    """Return what a tensor was called before the model was rewritten."""
    for end in (RAW, WIDE):
        name = name[: -len(end)] if name.endswith(end) else name
    return name.partition(INSIDE)[0]


def node_label(node: Any) -> str:
    """Return what a node was called before the model was rewritten: its name, else its first output."""
    name = str(node.name or next((name for name in node.output if name), node.op_type))
    return (name if node.name or not name.endswith(RAW) else name[: -len(RAW)]).partition(INSIDE)[0]


def prefixes(graph: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of the owner of each graph, as reports name it, in reading order."""
    yield prefix
    for node in graph.node:
        for name, body in bodies(node):
            yield from prefixes(body, f"{prefix}{node_label(node)}.{name}/")
