"""What nodes and tensors of a model were called before `rounding` rewrote it."""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP035
from __future__ import annotations

import re
from typing import Any, Iterable, Iterator

from runner.backends.emulation.lowering_steps import INSIDE
from runner.backends.nested_graphs import bodies

RAW, NARROW, WIDE = "__raw", "__narrow", "__wide"
"""Ends of the names of what a node makes: before it is rounded, in the low type, and after."""
_END = re.compile(f"(?:{RAW}|{WIDE})_*$")
_RAW_END = re.compile(f"{RAW}(_*)$")


def free_ends(names: Iterable[str]) -> Iterator[str]:
    """Return the three ends, with as many underscores behind them as it takes for none of these names to end so."""
    names, more = tuple(names), ""
    while any(name.endswith((RAW + more, NARROW + more, WIDE + more)) for name in names):
        more += "_"
    return (end + more for end in (RAW, NARROW, WIDE))


def is_raw(name: str) -> bool:
    """Whether a tensor is what a node makes before it is rounded."""
    return _RAW_END.search(name) is not None


def final(name: str) -> str:
    """Return the name under which others read what a node makes: that after rounding, where it is rounded."""
    return _RAW_END.sub(rf"{WIDE}\1", name)


def is_final(name: str, of: str) -> bool:
    """Whether a name is that of a tensor of the model as it was, after rounding."""
    return name.startswith(of + WIDE) and not name[len(of + WIDE) :].strip("_")


def plain(name: str) -> str:
    """Return what a tensor was called before the model was rewritten."""
    return _END.sub("", name).partition(INSIDE)[0]


def node_label(node: Any) -> str:
    """Return what a node was called before the model was rewritten: its name, else its first output."""
    name = str(node.name or next((name for name in node.output if name), node.op_type))
    return (name if node.name else _RAW_END.sub("", name)).partition(INSIDE)[0]


def prefixes(graph: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of the owner of each graph, as reports name it, in reading order."""
    yield prefix
    for node in graph.node:
        for name, body in bodies(node):
            yield from prefixes(body, f"{prefix}{node_label(node)}.{name}/")
