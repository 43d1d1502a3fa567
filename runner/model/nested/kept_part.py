"""The kept part of a body: its nodes in the file's order, and what they take from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import FunctionProto, GraphProto, NodeProto, TypeProto, helper

from runner.model.graph.cut import CutError, Expose, exposed
from runner.model.graph.protobuf_edits import copy_of
from runner.model.graph.rename import rename_node
from runner.model.nested.bodies import Kind
from runner.model.nested.body_index import Inner, Knowledge
from runner.model.values.value_types import tensor_type


@dataclass(frozen=True, eq=False)
class Rewritten:
    """``owner``: the node. ``function``: the one that it calls, if it is a call. ``types``: of outputs it has anew."""

    owner: NodeProto
    function: FunctionProto | None = None
    types: Mapping[str, TypeProto] = field(default_factory=dict)


class Part:
    """A body in the making.

    ``removed``: what removed nodes gave. ``reads``: what kept nodes read. ``captured``: tensors that come from
    outside: their names in the body and the names they come under.
    """

    def __init__(self, inner: Inner, keep: Sequence[int], known: Knowledge, expose: Expose) -> None:
        self.inner, self.known = inner, known
        self.supply = inner.supply()
        self.keep = set(keep)
        self._expose = expose
        nodes = [inner.elements.nodes[index] for index in keep]
        made = {name for node in nodes for name in node.outputs}
        self.removed = set(inner.elements.producers) - made
        self.reads = {name for node in nodes for name in node.inputs}
        self.captured: dict[str, str] = {}
        self._stand_ins: dict[str, NodeProto] = {}
        self.content = self._content(keep, made)

    def capture(self, name: str) -> str:
        """Return the name in the body of a removed tensor's value that comes from outside. Raises CutError."""
        self.type_of(name)
        if name not in self.captured:
            # a function sees its arguments only
            function = self.inner.body.kind is Kind.FUNCTION
            self.captured[name] = self.supply.fresh(f"{name}/in") if function else self.inner.outer[name]
        return self.captured[name]

    def stand_in(self, name: str, source: str = "") -> None:
        """Give a removed tensor that the body hands out: its captured value, or ``source``."""
        if name not in self._stand_ins:
            node = helper.make_node("Identity", [source or self.capture(name)], [name], name=self.inner.outer[name])
            self._stand_ins[name] = node
            self.content.node.append(node)

    def extras(self) -> list[tuple[str, TypeProto]]:
        """Return the tensors to hand out that the body does not: (name, type). Raises CutError for an unknown type."""
        names = exposed(self.inner.elements, sorted(self.keep), self._expose)
        return [(name, self.type_of(name)) for name in names if name not in self.inner.elements.output_set]

    def type_of(self, name: str) -> TypeProto:
        """Return the type of a tensor that one of the body's nodes gives. Raises CutError where it is not known."""
        if name not in self.known.inner:
            raise CutError(f"no value is recorded of {self.inner.outer[name]!r}")
        return self.known.inner[name]

    def is_read(self, name: str) -> bool:
        """Whether a node of the model outside the owner reads one of the owner's outputs.

        An owner whose body was emptied gives nothing else: all of its outputs count.
        """
        return bool(name) and (not self.keep or bool(self.inner.graph.readers.get(name)))

    def owner_outputs(self, count: int) -> list[str]:
        """Return the owner's outputs, each with a name where more are to follow."""
        owner = self.inner.graph.protos[self.inner.body.owner]
        names = [*owner.output, *[""] * count][:count]
        return [name or self.supply.fresh(f"{self.inner.body.path}/unused") for name in names]

    def _content(self, keep: Sequence[int], made: set[str]) -> GraphProto:
        """Return the kept nodes with the constants that they need; inputs and outputs as they were."""
        inner, source = self.inner, self.inner.content
        names = {name: self.capture(name) for name in sorted(self.reads & self.removed)}
        placed = {inner.places[index]: inner.elements.protos[index] for index in keep}
        wanted = self.reads.union(value.name for value in source.output)
        placed.update(constant for name, constant in inner.constants.items() if name in wanted)
        content = copy_of(source)
        for part in ("node", "initializer", "sparse_initializer", "value_info", "quantization_annotation"):
            content.ClearField(part)
        for _, proto in sorted(placed.items(), key=lambda pair: pair[0]):
            node = content.node.add()
            node.CopyFrom(proto)
            rename_node(node, names, self.supply)
        content.initializer.extend(tensor for tensor in source.initializer if tensor.name in wanted)
        content.sparse_initializer.extend(one for one in source.sparse_initializer if one.values.name in wanted)
        content.value_info.extend(info for info in source.value_info if info.name in made)
        return content


def without_dims(found: TypeProto) -> TypeProto:
    """Return a tensor type with its rank and no dimensions; other types as they are."""
    copy = copy_of(found)
    for dim in copy.tensor_type.shape.dim if copy.WhichOneof("value") == "tensor_type" else ():
        dim.Clear()
    return copy


def stacked_type(found: TypeProto) -> TypeProto:
    """Return the type of tensors of a type, one from each iteration, along a new first axis; its other axes stay."""
    tensor = found.tensor_type
    if not tensor.HasField("shape"):
        return tensor_type(tensor.elem_type, None)
    return tensor_type(tensor.elem_type, (None, *(dim.dim_value or None for dim in tensor.shape.dim)))
