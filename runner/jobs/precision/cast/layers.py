"""The elements of a precision search: nodes, nested ones included, that can run in the low type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from runner.backends.nested_graphs import bodies
from runner.jobs.precision.cast.operator_types import (
    AGNOSTIC,
    TABLES,
    WIDE,
    Formal,
    Formals,
    Schemas,
)
from runner.jobs.precision.cast.qdq_pairs import is_quantization, pairs_of
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of

Types = Mapping[str, int]
"""Element types of the tensors that are seen in a graph, by name; those of outer graphs included."""


@dataclass(frozen=True)
class Pair:
    """Two float types, as ``onnx.TensorProto.DataType``: ``low`` is what is wanted, ``high`` what is trusted."""

    low: int
    high: int

    def __contains__(self, dtype: object) -> bool:
        return dtype in (self.low, self.high)


@dataclass(frozen=True)
class Layer:
    """One node that can run in either type.

    ``path``: as reports name it (``If_0.then_branch/Div`` for a nested one). ``key``: the graph's number and the
    node's place in it. ``reads`` / ``writes``: its tensors of a float type of the pair; ``nested``: inside an owner.
    """

    path: str
    key: tuple[int, int]
    op_type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    nested: bool


@dataclass(frozen=True)
class TypedGraph:
    """One graph of a model: its number in reading order, the path of its owner, and the types seen in it."""

    number: int
    graph: GraphProto
    prefix: str
    types: Types
    parent: int | None


Contrib = Mapping[tuple[str, str], Formals]
"""What is known of operators that ONNX does not define, by domain and name."""


def schemas_of(model: ModelProto, contrib: Contrib | None = None) -> Schemas:
    """Return the schemas of a model's operators."""
    opsets = {scopes.domain_of(entry.domain): entry.version for entry in model.opset_import}
    return Schemas(opsets, contrib or {})


def levels(model: ModelProto, types: Mapping[str, TypeProto]) -> list[TypedGraph]:
    """Return all graphs of a model, outer ones first. ``types``: what is known besides the file's value_info."""
    found: list[TypedGraph] = []

    def visit(graph: GraphProto, prefix: str, outer: Types, parent: int | None) -> None:
        own = {**outer, **declared(graph)}
        if parent is None:
            own.update({name: kind.tensor_type.elem_type for name, kind in types.items() if _is_tensor(kind)})
        number = len(found)
        found.append(TypedGraph(number, graph, prefix, own, parent))
        for place, node in enumerate(graph.node):
            for name, body in bodies(node):
                visit(body, f"{prefix}{node_label(node, place)}.{name}/", own, number)

    visit(model.graph, "", {}, None)
    return found


def node_label(node: NodeProto, place: int) -> str:
    """Return what a node is called: its name, else its first output."""
    return node.name or next((name for name in node.output if name), f"{node.op_type}#{place}")


def layers(
    model: ModelProto, types: Mapping[str, TypeProto], pair: Pair, contrib: Contrib | None = None
) -> tuple[Layer, ...]:
    """Return the nodes that can run in either type, in executable order.

    In a model most of whose nodes run in the low type already, what is in the high one stays there: somebody chose it.
    """
    every, schemas = levels(model, types), schemas_of(model, contrib)
    counts = {
        native: sum(
            is_layer(node, level.types, schemas, pair, native)
            for level in every
            for node in level.graph.node
            if node.op_type not in ("Cast", "CastLike")
        )
        for native in {pair.low, pair.high}
    }
    native = pair.low if counts[pair.low] > counts[pair.high] else pair.high
    found: list[Layer] = []
    for level, place, node in nodes_in_order(every):
        if is_layer(node, level.types, schemas, pair, native):
            reads = tuple(name for name in dict.fromkeys(node.input) if level.types.get(name) in pair)
            writes = tuple(name for name in node.output if level.types.get(name) in pair)
            path = level.prefix + node_label(node, place)
            found.append(Layer(path, (level.number, place), node.op_type, reads, writes, bool(level.prefix)))
    return tuple(found)


def nodes_in_order(every: Sequence[TypedGraph], number: int = 0) -> Iterator[tuple[TypedGraph, int, NodeProto]]:
    """Yield the nodes of a graph and of those below it in executable order, each with its graph and its place there."""
    level = every[number]
    inner = iter([other for other in every if other.parent == number])
    for place, node in enumerate(level.graph.node):
        yield level, place, node
        for _ in bodies(node):
            yield from nodes_in_order(every, next(inner).number)


def quantized_layers(model: ModelProto, found: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return those of the layers that read, or are quantized into a graph output through, a Q/DQ pair."""
    pairs = pairs_of(model.graph)
    outer = {name for one in pairs for name in one}
    ends = {pair.source for name, pair in pairs[0].items() if name in {value.name for value in model.graph.output}}
    return tuple(layer for layer in found if outer & set(layer.reads) or ends & set(layer.writes))


def is_layer(node: NodeProto, types: Types, schemas: Schemas, pair: Pair, native: int) -> bool:
    """Whether a node, now in the ``native`` type of the pair, can run in both."""
    if node.op_type in (*AGNOSTIC, *TABLES, *WIDE) and not scopes.domain_of(node.domain):
        return False
    if is_plumbing(node, types, pair) or is_quantization(node):
        return False
    if node.op_type == "Cast" and types.get(node.output[0]) not in pair:
        return False  # it reads its input in whatever type that has
    bound = list(_bound(node, types, schemas))
    if any(dtype == 0 for _, dtype in bound):
        return False  # a sequence or an optional holds tensors of a type of its own
    if not bound or any(dtype != native for _, dtype in bound if dtype in pair):
        return False
    return any({pair.low, pair.high} <= formal.floats for formal, dtype in bound if dtype in pair)


def is_plumbing(node: NodeProto, types: Types, pair: Pair) -> bool:
    """Whether a node only turns one type of the pair into the other, or into itself."""
    return (
        node.op_type == "Cast"
        and not scopes.domain_of(node.domain)
        and types.get(node.input[0]) in pair
        and types.get(node.output[0]) in pair
    )


def _bound(node: NodeProto, types: Types, schemas: Schemas) -> Iterator[tuple[Formal, int]]:
    """Yield the formals with the types of their tensors; nothing where a schema or a type is not known."""
    formals = schemas.of(node)
    if formals is None:
        return
    found = []
    for names, formal_of in ((node.input, formals.of_input), (node.output, formals.of_output)):
        for place, name in enumerate(names):
            formal = formal_of(place)
            if not name:
                continue
            if formal is None or name not in types:
                return
            found.append((formal, types[name]))
    yield from found


def declared(graph: GraphProto) -> dict[str, int]:
    """Return the element types that a graph declares; what is no tensor has the type 0."""
    found = {
        value.name: value.type.tensor_type.elem_type if _is_tensor(value.type) else 0
        for group in (graph.value_info, graph.output, graph.input)
        for value in group
        if value.type.WhichOneof("value")
    }
    for name, tensor in initializers_of(graph).items():
        found[name] = tensor.data_type if isinstance(tensor, TensorProto) else tensor.values.data_type
    return found


def _is_tensor(kind: TypeProto) -> bool:
    return bool(kind.WhichOneof("value") == "tensor_type")
