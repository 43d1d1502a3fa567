"""Validation of a model that was read: names are defined once, tensors have the data they declare, nodes are sorted."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import chain
from typing import Any

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto

from runner.judgment import ModelError
from runner.model.graph import scopes
from runner.model.graph.edits import set_messages
from runner.model.values import tensor_bytes

_TEXTS, _MESSAGES = 1, 2
"""What a field holds that may be no text, or hold one."""
_KINDS = {FieldDescriptor.TYPE_STRING: _TEXTS, FieldDescriptor.TYPE_MESSAGE: _MESSAGES}
# texts that name nothing
_TOLD = frozenset({"doc_string", "producer_name", "producer_version", "metadata_props", "denotation", "external_data"})


def check_tensors(model: ModelProto) -> None:
    """Raise ModelError for a tensor whose inline data do not fit its dims and dtype."""
    # the dims of sparse parts and attributes follow the same rules
    for tensor in chain(scopes.initializers(model), scopes.inline_tensors(model)):
        if not tensor_bytes.is_external(tensor) and (problem := tensor_bytes.size_problem(tensor)):
            raise ModelError(f"tensor {tensor.name!r}: {problem}")


def drop_duplicate_initializers(graph: GraphProto) -> list[str]:
    """Keep the last of initializers that share a name, as runtimes do; return warnings."""
    last = {tensor.name: place for place, tensor in enumerate(graph.initializer)}
    if len(last) == len(graph.initializer):
        return []
    extra = [place for place, tensor in enumerate(graph.initializer) if last[tensor.name] != place]
    names = sorted({graph.initializer[place].name for place in extra})
    for place in reversed(extra):
        del graph.initializer[place]
    return [f"initializers that are defined more than once, the last one counts: {', '.join(names)}"]


def check_names(graph: GraphProto, reads: Sequence[Sequence[str]]) -> None:
    """Raise ModelError where the top-level graph defines a name twice, or reads what nobody defines.

    ``reads``: what each node does (`scopes.reads`).
    """
    inputs = _inputs(graph)
    initializers = _initializers(graph)
    defined = inputs | initializers
    for node in graph.node:
        for name in node.output:
            if name and name in defined:
                kind = (
                    "a graph input" if name in inputs else "an initializer" if name in initializers else "another node"
                )
                raise ModelError(
                    f"tensor {name!r} is an output of {_shown(node)} and of {kind}: names must be defined once"
                )
            defined.add(name)
    _check_reads(graph, reads, defined)


def check_text(model: ModelProto) -> None:
    """Raise ModelError for a name that is no UTF-8 text.

    Protobuf hands out bytes for it, which nothing expects, and takes no such name in a new message.
    """
    bad = _no_text(model, {})
    if bad is not None:
        raise ModelError(f"the name {bad!r} is not UTF-8 text; give it another one")


def _no_text(message: Any, kinds: dict[Any, int]) -> bytes | None:
    """Return the first text in a message, or in one nested in it, that is none; what is told about a model is no text.

    ``kinds``: of the fields that were met, what they hold.
    """
    for field, value in message.ListFields():
        kind = kinds.get(field)
        if kind is None:
            kind = kinds[field] = 0 if field.name in _TOLD else _KINDS.get(field.type, 0)
        if not kind:
            continue
        single = isinstance(value, (str, bytes, Message))
        for one in (value,) if single else value:
            bad = _no_text(one, kinds) if kind == _MESSAGES else one if isinstance(one, bytes) else None
            if bad is not None:
                return bad
    return None


def _inputs(graph: GraphProto) -> set[str]:
    inputs: set[str] = set()
    for value in graph.input:
        if not value.name:
            raise ModelError("a graph input has no name")
        if value.name in inputs:
            raise ModelError(f"graph input {value.name!r} is listed twice")
        inputs.add(value.name)
    return inputs


def _initializers(graph: GraphProto) -> set[str]:
    initializers: set[str] = {tensor.name for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        if sparse.values.name in initializers:
            raise ModelError(f"initializer {sparse.values.name!r} is defined twice, dense and sparse")
        initializers.add(sparse.values.name)
    return initializers


def _check_reads(graph: GraphProto, reads: Sequence[Sequence[str]], defined: set[str]) -> None:
    for at, names in enumerate(reads):
        for name in names:
            if name not in defined:
                raise ModelError(f"{_shown(graph.node[at])} reads tensor {name!r}, which nothing in the model defines")
    for value in graph.output:
        if value.name not in defined:
            raise ModelError(f"graph output {value.name!r} is defined by nothing in the model")


def sort_nodes(graph: GraphProto, reads: Sequence[Sequence[str]]) -> list[str]:
    """Put the nodes in an executable order where they are not; return warnings.

    ``reads``: what each node does (`scopes.reads`).
    The order is stable: of the nodes that could come next, the first in the file does (Kahn's algorithm with a heap).
    Raises ModelError for a cycle.
    """
    producers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    waits = [{producers[name] for name in names if name in producers} for names in reads]
    if all(before < at for at, sources in enumerate(waits) for before in sources):
        return []
    readers: dict[int, list[int]] = {}
    for at, sources in enumerate(waits):
        for source in sources:
            readers.setdefault(source, []).append(at)
    left = [len(sources) for sources in waits]
    ready = [at for at, count in enumerate(left) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for reader in readers.get(at, ()):
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(graph.node):
        stuck = next(at for at, count in enumerate(left) if count)
        raise ModelError(f"the graph has a cycle: {_shown(graph.node[stuck])} depends on its own output")
    set_messages(graph.node, [graph.node[at] for at in order])
    return ["the file's nodes are in no executable order; Winnow sorts them"]


def _shown(node: NodeProto) -> str:
    label = node.name or next((name for name in node.output if name), "")
    return f"node {label!r} ({node.op_type})"
