"""Copies of protobuf messages, and edits of their fields; what replaces a field may come from the field itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

Repeated = Any  # protobuf has no type of its own for these that its versions share
Message = TypeVar("Message")


def copy_of(message: Message) -> Message:
    """Return a message that shares nothing with the other."""
    copy: Any = type(message)()
    copy.CopyFrom(message)
    return cast(Message, copy)


def add_initializer(model: ModelProto, value: TensorProto, name: str) -> None:
    """Add a copy of a tensor under this name; before IR version 4 every initializer is listed as an input too."""
    tensor = model.graph.initializer.add()
    tensor.CopyFrom(value)
    tensor.name = name
    if model.ir_version < 4:
        model.graph.input.append(helper.make_tensor_value_info(name, value.data_type, list(value.dims)))


def set_messages(repeated: Repeated, items: Sequence[Any]) -> None:
    """Replace the messages of a field."""
    copies = [copy_of(item) for item in items]
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
