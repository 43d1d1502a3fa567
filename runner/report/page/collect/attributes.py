"""Attributes of nodes as text, cut short: what a page shows of a chosen node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from runner.report.page.collect.tensor_types import tensor_text
from runner.text import counted

MOST_ELEMENTS, LONGEST = 16, 200
_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
_TENSORS = {AttributeProto.TENSOR: "t", AttributeProto.TENSORS: "tensors"}
_NUMBERS = (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS)
_STRINGS = (AttributeProto.STRING, AttributeProto.STRINGS)


def attributes_of(node: NodeProto) -> list[list[str]]:
    """Return name and text of each attribute of a node. The nodes of nested graphs are drawn."""
    return [[one.name, _text(one)[:LONGEST]] for one in node.attribute]


def _graphs(attribute: AttributeProto) -> Sequence[GraphProto]:
    return [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)


def _text(attribute: AttributeProto) -> str:
    kind = attribute.type
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    if kind in _GRAPHS:
        graphs = _graphs(attribute)[:MOST_ELEMENTS]
        return ", ".join(f"a graph of {counted(len(graph.node), 'node')}" for graph in graphs)
    if kind in _TENSORS:
        held = attribute.t if kind == AttributeProto.TENSOR else None
        return _tensor(held) if held is not None else counted(len(attribute.tensors), "tensor")
    if kind in _NUMBERS or kind in _STRINGS:
        return _listed(helper.get_attribute_value(attribute))
    return next((name.lower() for name, value in AttributeProto.AttributeType.items() if value == kind), f"type {kind}")


def _tensor(tensor: TensorProto) -> str:
    return tensor_text(tensor.data_type, tensor.dims)


def _listed(value: Any) -> str:
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, (bytes, str)):
        return value[:LONGEST].decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value[:LONGEST]
    more = ", ..." if len(value) > MOST_ELEMENTS else ""
    return f"[{', '.join(map(_listed, value[:MOST_ELEMENTS]))}{more}]"
