"""Inlines the functions of a model, and tells of each node which function and which call it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, inliner

from runner.jobs.precision.cast.layers import node_label
from runner.model.graph import scopes

Functions = Mapping[tuple[str, str], FunctionProto]


class _NotInlinedError(Exception):
    """The model is not the other one with its functions inlined, as far as can be told."""


def inlined(model: ModelProto) -> tuple[ModelProto, dict[str, str]]:
    """Return the model without functions, and where nodes come from that were in one, by their first output.

    Such a node has another name than in its function: ``node n1 of function my.F, called by node c``. Raises whatever
    native code does.
    """
    made = inliner.inline_local_functions(model)
    functions = {(scopes.domain_of(one.domain), one.name): one for one in model.functions}
    try:
        return made, dict(_below(model.graph, made.graph, functions, ""))
    except _NotInlinedError:
        return made, {}


def _below(before: GraphProto, after: GraphProto, functions: Functions, caller: str) -> Iterator[tuple[str, str]]:
    made = iter(after.node)
    yield from _nodes(before.node, made, functions, caller)
    if next(made, None) is not None:
        raise _NotInlinedError


def _nodes(
    before: Sequence[NodeProto], made: Iterator[NodeProto], functions: Functions, caller: str
) -> Iterator[tuple[str, str]]:
    """Walk what was there and what it was made into side by side. ``caller``: of the function whose body this is."""
    for place, node in enumerate(before):
        called = functions.get((scopes.domain_of(node.domain), node.op_type))
        name = f"node {node_label(node, place)}{caller}"
        if called is not None:
            function = f"{called.domain}.{called.name}" if called.domain else called.name
            yield from _nodes(called.node, made, functions, f" of function {function}, called by {name}")
            continue
        other = next(made, None)
        if other is None or other.op_type != node.op_type:
            raise _NotInlinedError
        if caller:
            yield next(one for one in other.output if one), name
        for inside, copy in zip(scopes.subgraphs(node), scopes.subgraphs(other), strict=True):
            yield from _below(inside, copy, functions, caller)
