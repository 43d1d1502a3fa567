"""Layers: nodes that can run in the low type, and what schemas say of their types.

The elements of a precision search: nodes, nested ones included, that can run in the low type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, defs

from runner.backends.nested_graphs import bodies
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import is_quantization, pairs_of
from runner.model.values.dtypes import BY_NAME, BY_NUMBER, COMPUTED_IN

# What schemas say of a node's types: which formal inputs and outputs share a type, and which it may be.
#
# Those of ONNX are known here. What ONNX Runtime adds (``com.microsoft`` and others) it tells itself, in a worker.

# operators that look at a tensor's shape or turn it into something else: the type it comes in costs no accuracy
AGNOSTIC = frozenset({"Shape", "Size"})
# operators that make a table of what no activation says; runtimes make it in fp32, whatever the schema allows
TABLES = frozenset({"MelWeightMatrix"})
# operators whose definition in ONNX has constants of fp32, so that no other type is valid, whatever the schema allows
WIDE = frozenset({"MeanVarianceNormalization"})
# operators whose further outputs (a mean, a deviation) have the type that `stash_type` says, whatever comes in
STASHING = frozenset({"LayerNormalization", "RMSNormalization", "GroupNormalization"})


@dataclass(frozen=True)
class Formal:
    """A formal input or output.

    ``variable``: those of one name share a type; ``floats``: float types it may have; ``only``: the one type that it
    can have, 0: there are several. ``tail``: it stands for all further ones; ``free``: each has a type of its own.
    """

    variable: str
    floats: frozenset[int]
    only: int
    tail: bool
    free: bool


@dataclass(frozen=True)
class Formals:
    """All of an operator's."""

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]

    def of_input(self, place: int) -> Formal | None:
        """Return the formal of the input at ``place``; None: there is none."""
        return _at(self.inputs, place)

    def of_output(self, place: int) -> Formal | None:
        """Return the formal of the output at ``place``; None: there is none."""
        return _at(self.outputs, place)

    def of(self, node: NodeProto) -> list[tuple[Formal | None, str]]:
        """Return what a node reads and makes, each with its formal."""
        read = [(self.of_input(place), name) for place, name in enumerate(node.input)]
        return [*read, *((self.of_output(place), name) for place, name in enumerate(node.output))]


def _at(formals: tuple[Formal, ...], place: int) -> Formal | None:
    last = formals[-1] if formals and formals[-1].tail else None
    return formals[place] if place < len(formals) else last


@dataclass(frozen=True)
class Schemas:
    """The schemas of a model's operators. ``opsets``: the version of each domain that it imports.

    ``contrib``: by (domain, operator), what `contrib_of` made of ONNX Runtime's own.
    """

    opsets: Mapping[str, int]
    contrib: Mapping[tuple[str, str], Formals] = field(default_factory=dict)

    def of(self, node: NodeProto) -> Formals | None:
        """Return a node's formals; None for an operator whose schema is not known here."""
        domain = scopes.domain_of(node.domain)
        known = _formals(node.op_type, self.opsets.get(domain), domain)
        return known or self.contrib.get((domain, node.op_type))


def contrib_of(schemas: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Formals]:
    """Return the formals of the schemas that the operation ``contrib_schemas`` returns."""

    def formals(some: Iterable[Mapping[str, Any]]) -> tuple[Formal, ...]:
        return tuple(_formal(**one) for one in some)

    return {(one["domain"], one["op"]): Formals(formals(one["inputs"]), formals(one["outputs"])) for one in schemas}


@lru_cache(maxsize=4096)
def _formals(op_type: str, version: int | None, domain: str) -> Formals | None:
    if version is None or not defs.has(op_type, version, domain):
        return None
    schema = defs.get_schema(op_type, version, domain)

    def formal(one: defs.OpSchema.FormalParameter) -> Formal:
        is_variadic = one.option == defs.OpSchema.FormalParameterOption.Variadic
        return _formal(one.type_str, one.types, is_variadic, one.is_homogeneous)

    return Formals(tuple(map(formal, schema.inputs)), tuple(map(formal, schema.outputs)))


def _formal(variable: str, types: Iterable[str], variadic: bool, homogeneous: bool) -> Formal:
    kinds = [BY_NAME.get(name.removeprefix("tensor(").removesuffix(")")) for name in types]
    numbers = [kind.number if kind else 0 for kind in kinds]
    return Formal(
        variable, COMPUTED_IN.intersection(numbers), sum(numbers[:1]) * (len(numbers) == 1), variadic, not homogeneous
    )


# Layers: nodes that can run in either type.

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
    return not obstacle(node, types, schemas, pair) and in_either(node, types, schemas, pair) <= {native}


def in_either(node: NodeProto, types: Types, schemas: Schemas, pair: Pair) -> set[int]:
    """Return in which of the two types a node has what its operator takes in both: the scales of a Resize are none."""
    formals = schemas.of(node) or Formals((), ())
    both = (name for formal, name in formals.of(node) if formal is None or {pair.low, pair.high} <= formal.floats)
    return {types[name] for name in both if types.get(name) in pair}


def obstacle(node: NodeProto, types: Types, schemas: Schemas, pair: Pair) -> str:
    """Say why a node cannot run in both types; nothing where it can, if it is in one of them."""
    formals = schemas.of(node)
    if is_quantization(node):
        return "it quantizes: its scales have the type of the model"
    if formals is None:
        return "no schema of its operator is known"
    tensors = [(formal, name) for formal, name in formals.of(node) if name]
    bound = [(formal, types[name]) for formal, name in tensors if formal and name in types]
    if len(bound) < len(tensors):
        return "the types of its tensors are not known"
    if any(dtype == 0 for _, dtype in bound):
        return "it handles a sequence or an optional, whose tensors have a type of their own"
    if takes_any(node, types, pair):
        return "it computes nothing"
    is_wide = node.op_type in TABLES | WIDE and not scopes.domain_of(node.domain)
    floats = in_either(node, types, schemas, pair)
    if is_wide or not floats:
        return f"its operator has no {BY_NUMBER[pair.low].numpy_name} kind"
    return "it is in both types as it is" if len(floats) > 1 else ""


def takes_any(node: NodeProto, types: Types, pair: Pair) -> bool:
    """Whether a node takes floats of either type without computing with them."""
    if scopes.domain_of(node.domain):
        return False
    away = node.op_type == "Cast" and types.get(node.output[0]) not in pair
    return node.op_type in AGNOSTIC or away or is_plumbing(node, types, pair)


def is_plumbing(node: NodeProto, types: Types, pair: Pair) -> bool:
    """Whether a node only turns one type of the pair into the other, or into itself."""
    return (
        node.op_type == "Cast"
        and not scopes.domain_of(node.domain)
        and types.get(node.input[0]) in pair
        and types.get(node.output[0]) in pair
    )


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
