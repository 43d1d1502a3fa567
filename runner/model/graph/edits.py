"""Edits of models and of protobuf messages.

Edits of a model, each of which can also be told as a line of Python that makes it with the onnx package.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

# Copies of protobuf messages, and edits of their fields; what replaces a field may come from the field itself.

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


_HEAD = """import onnx
from onnx import helper

model = onnx.load(path)
nodes = model.graph.node


def at(tensor):
    return next(place for place, node in enumerate(nodes) if tensor in node.output)

"""


# A change of a model's top level; the nodes that are there keep their order. ``apply`` makes it in place, and raises
# KeyError for a tensor that no node makes; ``code`` returns the line, or lines, of Python that make it.


@dataclass(frozen=True)
class Insert:
    """A new node: right before the one that makes ``before``, or right behind the one that makes ``behind``."""

    node: NodeProto
    before: str = ""
    behind: str = ""

    def apply(self, model: ModelProto) -> None:
        """Insert it."""
        place = _at(model, self.before) if self.before else _at(model, self.behind) + 1
        model.graph.node.insert(place, copy_of(self.node))

    def code(self) -> str:
        """Return the insertion."""
        place = f"at({self.before!r})" if self.before else f"at({self.behind!r}) + 1"
        return f"nodes.insert({place}, {_made(self.node)})"


@dataclass(frozen=True)
class Put:
    """Another node in place of the one that makes its first output."""

    node: NodeProto

    def apply(self, model: ModelProto) -> None:
        """Replace it."""
        old = model.graph.node[_at(model, self.node.output[0])]
        name = old.name
        old.CopyFrom(self.node)
        old.name = name

    def code(self) -> str:
        """Return the replacement."""
        return f"nodes[at({self.node.output[0]!r})].CopyFrom({_made(self.node)})"


@dataclass(frozen=True)
class Read:
    """The node that makes ``by`` reads ``new`` where it read ``old``."""

    by: str
    old: str
    new: str

    def apply(self, model: ModelProto) -> None:
        """Change what it reads."""
        node = model.graph.node[_at(model, self.by)]
        node.input[:] = [self.new if name == self.old else name for name in node.input]

    def code(self) -> str:
        """Return the change."""
        found = f"[{self.new!r} if name == {self.old!r} else name for name in nodes[at({self.by!r})].input]"
        return f"nodes[at({self.by!r})].input[:] = {found}"


@dataclass(frozen=True)
class Make:
    """The node that makes ``old`` makes ``new`` in its place."""

    old: str
    new: str

    def apply(self, model: ModelProto) -> None:
        """Change what it makes."""
        node = model.graph.node[_at(model, self.old)]
        node.output[:] = [self.new if name == self.old else name for name in node.output]

    def code(self) -> str:
        """Return the change."""
        place = f"nodes[at({self.old!r})]"
        return f"{place}.output[[*{place}.output].index({self.old!r})] = {self.new!r}"


@dataclass(frozen=True)
class Expose:
    """A tensor that is an output of the model besides the others; its sizes may be those of any input."""

    tensor: str
    dtype: int
    rank: int

    def apply(self, model: ModelProto) -> None:
        """Add the output."""
        model.graph.output.append(helper.make_tensor_value_info(self.tensor, self.dtype, [None] * self.rank))

    def code(self) -> str:
        """Return the addition."""
        told = f"{self.tensor!r}, {self.dtype}, {[None] * self.rank}"
        return f"model.graph.output.append(helper.make_tensor_value_info({told}))"


@dataclass(frozen=True)
class Weight:
    """A new initializer."""

    tensor: TensorProto

    def apply(self, model: ModelProto) -> None:
        """Add it."""
        add_initializer(model, self.tensor, self.tensor.name)

    def code(self) -> str:
        """Return the addition."""
        held = numpy_helper.to_array(self.tensor)
        told = f"{self.tensor.name!r}, {self.tensor.data_type}, {[*held.shape]}, {held.flatten().tolist()}"
        return f"model.graph.initializer.append(helper.make_tensor({told}))"


Edit: TypeAlias = Insert | Put | Read | Make | Expose | Weight


def weight(name: str, values: object, dtype: int) -> Weight:
    """Return a new initializer of this type."""
    array = np.asarray(values, helper.tensor_dtype_to_np_dtype(dtype))
    return Weight(numpy_helper.from_array(array, name))


def replaced(nodes: Sequence[NodeProto]) -> list[Edit]:
    """Return the edits that put several nodes in place of the one that makes what the last of them makes."""
    *first, last = nodes
    return [*(Insert(node, before=last.output[0]) for node in first), Put(last)]


def edited(model: ModelProto, edits: Iterable[Edit]) -> ModelProto:
    """Return a copy of a model with all of these changes. Raises KeyError for a tensor that no node makes."""
    made = copy_of(model)
    for edit in edits:
        edit.apply(made)
    return made


def program(edits: Iterable[Edit]) -> str:
    """Return a program that makes these changes to the model at ``path``."""
    lines = "\n".join(edit.code() for edit in edits)
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
