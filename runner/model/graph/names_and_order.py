"""Validation of a model that was read: names are defined once, tensors have the data they declare, nodes are sorted."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto

from runner.judgment import ModelError
from runner.model.graph import scopes
from runner.model.graph.edits import set_messages
from runner.model.values import tensor_bytes

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
    inputs = {value.name for value in graph.input}
    if "" in inputs:
        raise ModelError("a graph input has no name")
    defined: dict[str, str] = {}
    for name, place in (
        *((value.name, "a graph input") for value in graph.input),
        # those that are inputs too are overridable; of several the last one counts
        *((name, "an initializer") for name in {one.name for one in graph.initializer} - inputs),
        *(
            (one.values.name, "a sparse initializer")
            for one in graph.sparse_initializer
            if one.values.name not in inputs
        ),
        *((name, f"an output of {_shown(node)}") for node in graph.node for name in node.output if name),
    ):
        if name in defined:
            raise ModelError(f"tensor {name!r} is defined twice: as {defined[name]} and as {place}")
        defined[name] = place
    for node, names in zip(graph.node, reads, strict=True):
        for name in names:
            if name not in defined:
                raise ModelError(f"{_shown(node)} reads tensor {name!r}, which nothing in the model defines")
    for value in graph.output:
        if value.name not in defined:
            raise ModelError(f"graph output {value.name!r} is defined by nothing in the model")


def check_text(model: ModelProto) -> None:
    """Raise ModelError for a name that is no UTF-8 text.

    Protobuf hands out bytes for it, which nothing expects, and takes no such name in a new message.
    """
    for bad in _no_texts(model):
        raise ModelError(f"the name {bad!r} is not UTF-8 text; give it another one")


def _no_texts(message: Any) -> Iterator[bytes]:
    """Yield the names in a message, and in those nested in it, that are no text; what is told about a model is none."""
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE) or field.name in _TOLD:
            continue
        for one in (value,) if isinstance(value, (str, bytes, Message)) else value:
            if isinstance(one, Message):
                yield from _no_texts(one)
            elif isinstance(one, bytes):
                yield one


def sort_nodes(graph: GraphProto, reads: Sequence[Sequence[str]]) -> list[str]:
    """Put the nodes in an executable order where they are not; return warnings.

    ``reads``: what each node does (`scopes.reads`).
    The order is stable: of the nodes that could come next, the first in the file does.
    Raises ModelError for a cycle.
    """
    producers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    waits = [{producers[name] for name in names if name in producers} for names in reads]
    if all(before < at for at, sources in enumerate(waits) for before in sources):
        return []
    sorter = TopologicalSorter(dict(enumerate(waits)))
    try:
        sorter.prepare()
    except CycleError as error:
        raise ModelError(
            f"the graph has a cycle: {_shown(graph.node[error.args[1][0]])} depends on its own output"
        ) from None
    ready: list[int] = []
    order = []
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, at)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    set_messages(graph.node, [graph.node[at] for at in order])
    return ["the file's nodes are in no executable order; Winnow sorts them"]


def _shown(node: NodeProto) -> str:
    label = node.name or next((name for name in node.output if name), "")
    return f"node {label!r} ({node.op_type})"
