"""The form of a model: operators, attributes, types and edges, without names, shapes and weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

_INERT = frozenset({"Constant", "Identity"})
# a rank or a layout decides these; what else is one number or a word is a choice between computations
_POSITIONS = frozenset({"axis"})


def operators_of(model: ModelProto) -> tuple[str, ...]:
    """Return the operators of a model, sorted, each once; without those that compute nothing."""
    named = {_operator(node) for node in model.graph.node if node.op_type not in _INERT}
    return tuple(sorted(named)) or tuple(sorted({_operator(node) for node in model.graph.node}))


def form_of(model: ModelProto) -> str:
    """Return a digest that two models share where they have the same form, wherever their inputs come from.

    Each node is described with all that leads to it, as by Merkle (1979); their order in the file does not count.
    """
    return _form(model.graph, {})


def _form(graph: GraphProto, outer: dict[str, str]) -> str:
    known = {**outer, **{value.name: f"fed {value.type.tensor_type.elem_type}" for value in graph.input}}
    known |= {tensor.name: f"weight {tensor.data_type}" for tensor in graph.initializer}
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    found = []
    for node in graph.node:
        parts = [_operator(node), *sorted(_attributes(node, known))]
        parts += [known.get(name, "outer") if name else "none" for name in node.input]
        digest = _digest(parts)
        found.append(digest)
        known |= {name: f"{digest} {at} {types.get(name, 0)}" for at, name in enumerate(node.output)}
    return _digest(sorted(found))


def _operator(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _attributes(node: NodeProto, known: dict[str, str]) -> Iterator[str]:
    for one in node.attribute:
        if one.type == AttributeProto.GRAPH:
            yield f"{one.name} {_form(one.g, known)}"
        elif one.type == AttributeProto.STRING:
            yield f"{one.name} {one.s!r}"
        elif one.type == AttributeProto.INT and one.name not in _POSITIONS:
            yield f"{one.name} {one.i}"
        elif one.type == AttributeProto.TENSOR:
            yield f"{one.name} {TensorProto.DataType.Name(one.t.data_type) if one.t.data_type else ''}"
        else:
            yield one.name


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
