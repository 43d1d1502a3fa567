"""Replacing the repeated fields of protobuf messages; what replaces them may come from the fields themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto, helper

Repeated = Any  # protobuf has no type of its own for these that its versions share


def copy_of(node: NodeProto) -> NodeProto:
    """Return a node that shares nothing with the other."""
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def set_messages(repeated: Repeated, items: Sequence[Any]) -> None:
    """Replace the messages of a field."""
    copies = []
    for item in items:
        copy = type(item)()
        copy.CopyFrom(item)
        copies.append(copy)
    del repeated[:]
    repeated.extend(copies)


def set_values(repeated: Repeated, values: Sequence[Any]) -> None:
    """Replace the strings or numbers of a field."""
    copies = list(values)
    del repeated[:]
    repeated.extend(copies)


def set_graph(node: NodeProto, name: str, graph: GraphProto) -> None:
    """Replace the graph in the attribute of this name, which the node has."""
    next(attribute.g for attribute in node.attribute if attribute.name == name).CopyFrom(graph)


def set_ints(node: NodeProto, name: str, numbers: Sequence[int]) -> None:
    """Set a list attribute; it is left out where it would say nothing but 0."""
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    if any(numbers):
        kept.append(helper.make_attribute(name, list(numbers)))
    if len(kept) != len(node.attribute) or any(numbers):
        set_messages(node.attribute, kept)


def value_info(name: str, found: TypeProto) -> ValueInfoProto:
    """Return the declaration of a value."""
    info: ValueInfoProto = helper.make_value_info(name, found)
    return info
