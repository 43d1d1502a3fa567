"""Edits of models and of protobuf messages.

Edits of a model, each of which can also be told as a line of Python that makes it with the onnx package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

# Copies of protobuf messages, and changes of their fields; what replaces a field may come from the field itself.

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
    set_messages(node.attribute, kept)


_HEAD = """import onnx
from onnx import helper

model = onnx.load(path)
nodes = model.graph.node


def at(tensor):
    return next(place for place, node in enumerate(nodes) if tensor in node.output)

"""


@dataclass(frozen=True)
class Edit:
    """A change of a model's top level; the nodes that are there keep their order.

    ``apply`` makes it in place, and raises KeyError for a tensor that no node makes; ``code`` is the line of Python
    that makes it.
    """

    apply: Callable[[ModelProto], None]
    code: str


def insert(node: NodeProto, before: str = "", behind: str = "") -> Edit:
    """Return a new node: right before the one that makes ``before``, or right behind the one that makes ``behind``."""

    def apply(model: ModelProto) -> None:
        place = _at(model, before) if before else _at(model, behind) + 1
        model.graph.node.insert(place, copy_of(node))

    return Edit(apply, f"nodes.insert({f'at({before!r})' if before else f'at({behind!r}) + 1'}, {_made(node)})")


def put(node: NodeProto) -> Edit:
    """Return another node in place of the one that makes its first output; the name stays."""

    def apply(model: ModelProto) -> None:
        old = model.graph.node[_at(model, node.output[0])]
        name = old.name
        old.CopyFrom(node)
        old.name = name

    return Edit(apply, f"nodes[at({node.output[0]!r})].CopyFrom({_made(node)})")


def rename(by: str, old: str, new: str, *, makes: bool = False) -> Edit:
    """Return a change of what the node that makes ``by`` reads, or makes: ``new`` where it was ``old``."""
    field = "output" if makes else "input"

    def apply(model: ModelProto) -> None:
        names = getattr(model.graph.node[_at(model, by)], field)
        names[:] = [new if name == old else name for name in names]

    place = f"nodes[at({by!r})].{field}"
    return Edit(apply, f"{place}[:] = [{new!r} if name == {old!r} else name for name in {place}]")


def expose(tensor: str, dtype: int, rank: int) -> Edit:
    """Return a tensor that is an output of the model besides the others; its sizes may be those of any input."""
    value, dims = helper.make_tensor_value_info(tensor, dtype, [None] * rank), [None] * rank
    told = f"helper.make_tensor_value_info({tensor!r}, {dtype}, {dims})"
    return Edit(lambda model: model.graph.output.append(value), f"model.graph.output.append({told})")


def weight(name: str, values: object, dtype: int) -> Edit:
    """Return a new initializer of this type."""
    array = np.asarray(values, helper.tensor_dtype_to_np_dtype(dtype))
    tensor = numpy_helper.from_array(array, name)
    told = f"helper.make_tensor({name!r}, {tensor.data_type}, {[*array.shape]}, {array.flatten().tolist()})"
    return Edit(lambda model: add_initializer(model, tensor, name), f"model.graph.initializer.append({told})")


def replaced(nodes: Sequence[NodeProto]) -> list[Edit]:
    """Return the edits that put several nodes in place of the one that makes what the last of them makes."""
    *first, last = nodes
    return [*(insert(node, before=last.output[0]) for node in first), put(last)]


def edited(model: ModelProto, edits: Iterable[Edit]) -> ModelProto:
    """Return a copy of a model with all of these changes. Raises KeyError for a tensor that no node makes."""
    made = copy_of(model)
    for edit in edits:
        edit.apply(made)
    return made


def program(edits: Iterable[Edit]) -> str:
    """Return a program that makes these changes to the model at ``path``."""
    lines = "\n".join(edit.code for edit in edits)
    return f'{_HEAD}\n{lines}\nonnx.save(model, "workaround.onnx")'


def _at(model: ModelProto, tensor: str) -> int:
    for place, node in enumerate(model.graph.node):
        if tensor in node.output:
            return place
    raise KeyError(tensor)


def _made(node: NodeProto) -> str:
    attributes = [f", {one.name}={helper.get_attribute_value(one)!r}" for one in node.attribute]
    domain = f", domain={node.domain!r}" if node.domain else ""
    told = f"{node.op_type!r}, {[*node.input]}, {[*node.output]}{domain}"
    return f"helper.make_node({told}{''.join(attributes)})"
