"""One graph while it is rewritten to two precisions: its names and types, and its assembly at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from runner.jobs.precision.cast.layers import Pair, TypedGraph
from runner.jobs.precision.cast.qdq_pairs import constants_dropped, without_unused
from runner.model.graph import scopes
from runner.model.graph.cut import shell
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.protobuf_edits import set_messages


@dataclass
class Scope:
    """One graph while it is rewritten.

    ``native``: the type that a float tensor of this graph has now; ``versions``: (tensor, type) -> its name in that
    type; ``same``: plumbing that went: output -> what it was made of; ``lifted``: what raised layers make; ``taken``:
    names that were given to new tensors, of all graphs.
    """

    level: TypedGraph
    outer: Scope | None
    nodes: list[NodeProto] = field(default_factory=list)
    native: dict[str, int] = field(default_factory=dict)
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    weights: dict[str, TensorProto] = field(default_factory=dict)
    added: dict[str, TensorProto] = field(default_factory=dict)
    lifted: set[str] = field(default_factory=set)
    same: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.outer is not None:
            self.taken = self.outer.taken

    def hand(self, given: str, name: str, dtype: int, outward: int) -> None:
        """Hand out what is given in a type under another name, in the type that it has outside."""
        if dtype == outward:
            self.nodes.append(helper.make_node("Identity", [given], [name], name=f"{name}__identity"))
        else:
            self.nodes.append(helper.make_node("Cast", [given], [name], name=f"{name}__cast", to=outward))
        self.native[name] = outward

    def home(self, name: str) -> tuple[Scope, str] | None:
        """Return the scope in which a float tensor is defined, and its name there."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.same:
                return scope.home(scope.same[name])
            if name in scope.native or name in scope.weights:
                return scope, name
            scope = scope.outer
        return None


def names_of(graph: GraphProto) -> Iterator[str]:
    """Yield all names of tensors in a graph."""
    for node in graph.node:
        yield from (*node.input, *node.output)
    for value in (*graph.input, *graph.output):
        yield value.name
    yield from initializers_of(graph)


def without_graph(model: ModelProto) -> ModelProto:
    """Return the model around a graph."""
    found = shell(model)
    found.ClearField("graph")
    found.opset_import.extend(model.opset_import)
    found.functions.extend(model.functions)
    return found


def assemble(graph: GraphProto, original: GraphProto, scope: Scope, handed: Collection[str] | None = None) -> None:
    """Put a graph together: its nodes, and of its float initializers those that are read."""
    del graph.node[:]
    del graph.initializer[:]
    del graph.value_info[:]
    if not graph.name:
        graph.name = original.name
        graph.input.extend(original.input)
        graph.output.extend(original.output)
        graph.sparse_initializer.extend(original.sparse_initializer)
    fed = {value.name for value in original.input} - scope.weights.keys()
    outputs = {value.name for value in original.output}
    # a body may hand out a weight in another type
    outward = fed | (outputs if handed is None else {*handed} | (outputs - scope.weights.keys()))
    nodes = without_unused(scope.nodes, outward)
    used = {name for node in nodes for name in scopes.reads(node)} | outward
    dropped = constants_dropped(original, nodes)
    graph.initializer.extend(
        tensor
        for tensor in original.initializer
        if tensor.name in used or (tensor.name not in scope.weights and tensor.name not in dropped)
    )
    graph.initializer.extend(tensor for name, tensor in scope.added.items() if name in used)
    graph.node.extend(nodes)


def declare(graph: GraphProto, scope: Scope) -> None:
    """Say the element types of what nodes make: behind operators that ONNX does not define, none are inferred."""
    known = {**scope.level.types, **scope.native}
    known |= {name: dtype for (_, dtype), name in scope.versions.items()}
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        for name in node.output:
            if name and name not in outputs and known.get(name):
                graph.value_info.add(name=name).type.tensor_type.elem_type = known[name]


def set_io_types(graph: GraphProto, scope: Scope, pair: Pair, wanted: int | None) -> None:
    """Give the inputs and outputs of a top-level graph their types; ``wanted``: of the pair's, None: as they are."""
    # an input whose default was replaced by another tensor would be fed without effect
    set_messages(graph.input, [value for value in graph.input if value.name not in scope.weights])
    for value in (*graph.input, *graph.output):
        if wanted is not None and value.type.tensor_type.elem_type in pair and value.name not in scope.weights:
            value.type.tensor_type.elem_type = wanted
