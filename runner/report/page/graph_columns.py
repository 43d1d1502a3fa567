"""A graph in columns, with attributes and types as text.

A graph in columns: names, operators, blocks, tensors with their types, and who reads what. Weights are not read.

The nodes of nested graphs (branches, loop bodies, functions that are called) follow those of the model's top level.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any, cast

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, helper

from runner.model.graph.graph_index import Graph, display_names, initializers_of
from runner.model.graph.scopes import call_key, domain_of
from runner.model.nested.hoist import is_constant
from runner.model.values.dtypes import BY_NUMBER
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import structure_text
from runner.report.document import cut
from runner.report.page.data import PageBody, PageData, PageGraph
from runner.samples.declared_inputs import type_name
from runner.text import counted

# Types of tensors as text: ``float16[1, 128, 768]``.

_STRING = TensorProto.STRING
_CONTAINERS = {"sequence_type": "seq", "optional_type": "optional"}
_MOST_DIMS = 12


def dtype_text(number: int) -> str:
    """Return what a type of elements is called; of a number that stands for none, the number."""
    kind = BY_NUMBER.get(number)
    if kind is not None:
        return "string" if number == _STRING else kind.numpy_name
    return type_name(number)


def tensor_text(number: int, dims: Iterable[object]) -> str:
    """Return the type of a tensor of these dimensions."""
    sizes = [cut(str(one), 20) for one in dims]
    more = ", ..." if len(sizes) > _MOST_DIMS else ""
    # a long graph has few types, and many tensors
    return intern(f"{dtype_text(number)}[{', '.join(sizes[:_MOST_DIMS])}{more}]")


def type_text(kind: TypeProto) -> str:
    """Return a type as a model declares it: ``float16[1, 12, n]``, ``seq(int64[])``; "" where nothing is said."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if not tensor.HasField("shape"):
            return dtype_text(tensor.elem_type) if tensor.elem_type else ""
        dims = (one.dim_value if one.HasField("dim_value") else one.dim_param or "?" for one in tensor.shape.dim)
        return tensor_text(tensor.elem_type, dims)
    if which == "map_type":
        return f"map({dtype_text(kind.map_type.key_type)}, {type_text(kind.map_type.value_type)})"
    return f"{_CONTAINERS[which]}({type_text(getattr(kind, which).elem_type)})" if which in _CONTAINERS else ""


def value_text(value: TensorFile) -> str:
    """Return the type of a recorded value."""
    return structure_text(value.structure) if value.structure else tensor_text(value.dtype, value.shape)


def types_of(graph: Graph, material: PageData) -> dict[str, str]:
    """Return what is known of tensors' types: as recorded, or else as declared or inferred."""
    found = {name: type_text(proto) for of in (material.types, graph.value_types) for name, proto in of.items()}
    found |= ((name, value_text(value)) for name, value in material.recorded.items())
    found |= ((name, weight_text(weight)) for name, weight in graph.initializers.items())
    return found


def weight_text(weight: TensorProto | SparseTensorProto) -> str:
    """Return the type of a weight."""
    dense = weight.values if isinstance(weight, SparseTensorProto) else weight
    return tensor_text(dense.data_type, weight.dims)


def declared(graph: GraphProto | FunctionProto) -> dict[str, str]:
    """Return the types of tensors that a graph declares; "" where it says nothing."""
    groups = [getattr(graph, "value_info", ())]
    groups += [graph.output, graph.input] if isinstance(graph, GraphProto) else []
    return {one.name: type_text(one.type) for group in groups for one in group}


# Operators and attributes of nodes as text, cut short: what a page shows of a chosen node.

MOST_ELEMENTS, LONGEST = 16, 200


def operator_of(node: NodeProto) -> str:
    """Return a node's operator, with its domain unless that is ONNX's own."""
    domain = domain_of(node.domain)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def attributes_of(node: NodeProto) -> list[list[str]]:
    """Return name and text of each attribute of a node. The nodes of nested graphs are drawn."""
    return [[one.name, _attribute(one)[:LONGEST]] for one in node.attribute]


def inner_graphs(attribute: AttributeProto) -> Sequence[GraphProto]:
    """Return the graphs that an attribute holds."""
    return [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)


def _attribute(one: AttributeProto) -> str:
    if one.ref_attr_name:
        return f"@{one.ref_attr_name}"
    try:
        value = helper.get_attribute_value(one)
        return "undefined" if value is None else _text(value)
    except ValueError:  # of a type that this onnx does not know
        return f"type {one.type}"


def _text(value: Any) -> str:
    if isinstance(value, GraphProto):
        return f"a graph of {counted(len(value.node), 'node')}"
    if isinstance(value, (TensorProto, SparseTensorProto)):
        return weight_text(value)
    if isinstance(value, TypeProto):
        return type_text(value)
    if isinstance(value, bytes):
        return value[:LONGEST].decode("utf-8", "backslashreplace")
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    more = ", ..." if len(value) > MOST_ELEMENTS else ""
    return f"[{', '.join(map(_text, value[:MOST_ELEMENTS]))}{more}]"


STRETCH = 500
"""Nodes of a block where names have no scopes."""
TOP = "(no scope)"
MOST_NESTED, MOST_TEXT, DEEPEST, LONGEST_PATH = 5000, 32 << 20, 16, 1000
"""Nodes of nested graphs that are drawn and the bytes that they have in the file, graphs around one, and characters of
its path.

A function is told once for each call, and a function that calls another multiplies its nodes.
"""
_SEPARATORS = ("/", "::", ".")

Scope = ChainMap[str, int]
"""The numbers of the tensors that a graph sees by their names: its own, then those of the graphs around it."""


class _Places(dict[str, int]):
    """Gives each text its place, in the order in which they are met."""

    def __missing__(self, text: str) -> int:
        self[text] = place = len(self)
        return place


@dataclass(frozen=True)
class _Owner:
    """A node whose graphs are to be told. ``path``: its name, with the path of the graph that it lies in."""

    node: int
    proto: NodeProto
    path: str
    scope: Scope
    depth: int


@dataclass
class _Columns:
    """Those of `PageGraph` while they are made. ``wanted``: paths of the culprits. ``undrawn``: without room."""

    index: Graph
    wanted: Collection[str]
    names: list[str] = field(default_factory=list)
    operators: _Places = field(default_factory=_Places)
    operator: list[int] = field(default_factory=list)
    blocks: _Places = field(default_factory=_Places)
    block: list[int] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    inputs: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    feeds: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    culprits: list[int] = field(default_factory=list)
    attributes: dict[str, list[list[str]]] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    bodies: list[PageBody] = field(default_factory=list)
    waiting: deque[_Owner] = field(default_factory=deque)
    undrawn: int = 0
    text: int = 0

    def __post_init__(self) -> None:
        self.inside = frozenset(self.wanted).difference(self.index.names)

    def tensor(self, scope: Scope, name: str) -> int:
        """Return the number of a tensor; one that is defined nowhere is the graph's own."""
        return scope[name] if name in scope else self.define(scope, name)

    def define(self, scope: Scope, name: str, kind: str = "") -> int:
        """Return the number of a tensor of this very graph."""
        own = scope.maps[0]
        if name not in own:
            own[name] = len(self.tensors)
            self.tensors.append(name)
            self.types.append(kind)
        return own[name]

    def add(
        self,
        protos: Sequence[NodeProto],
        names: Sequence[str],
        read: Iterable[Sequence[str]],
        scope: Scope,
        path: str,
        depth: int,
    ) -> None:
        """Add the nodes of one graph. ``read``: what each reads; ``path``: of the graph, with a slash at its end."""
        first = len(self.names)
        self.outputs += [[self.define(scope, name) for name in proto.output if name] for proto in protos]
        self.inputs += [[self.tensor(scope, name) if name else -1 for name in one] for one in read]
        self.names += names
        self.paths += [path + name for name in names]  # without a path the same object
        self.operator += [self.operators[operator_of(proto)] for proto in protos]
        self.block += [self.blocks[name] for name in _blocks(names)]
        for node, proto in enumerate(protos, first):
            if proto.attribute:
                self.attributes[str(node)] = attributes_of(proto)
            if any(_graphs(proto, self.index)):
                owner = _Owner(node, proto, self.paths[node], scope, depth)
                # where culprits are is told first: there may be no room for all
                within = f"{owner.path}."
                guilty = any(name.startswith(within) for name in self.inside)
                (self.waiting.appendleft if guilty else self.waiting.append)(owner)

    def add_bodies(self, owner: _Owner) -> None:
        """Add the graphs of a node, all of them or none."""
        graphs = [*_graphs(owner.proto, self.index)]
        nested = len(self.names) - len(self.index.nodes) + len(self.bodies)
        room = nested + sum(len(graph.node) + 1 for _, _, graph in graphs) <= MOST_NESTED
        text = self.text + sum(node.ByteSize() for _, _, graph in graphs for node in graph.node) if room else 0
        longest = len(owner.path) + max(len(name) for name, _, _ in graphs)
        if not room or text > MOST_TEXT or owner.depth >= DEEPEST or longest > LONGEST_PATH:
            self.undrawn += len(graphs)
            return
        self.text = text
        for name, called, graph in graphs:
            self._add_body(owner, name, called, graph)

    def _add_body(self, owner: _Owner, name: str, called: str, graph: GraphProto | FunctionProto) -> None:
        # a function sees nothing of where it is called
        scope = ChainMap[str, int]() if isinstance(graph, FunctionProto) else owner.scope.new_child({})
        types = declared(graph)
        first = len(self.tensors)
        named = [one if isinstance(one, str) else one.name for one in graph.input]
        weights = initializers_of(graph) if isinstance(graph, GraphProto) else {}
        feeds = [self.define(scope, one, types.get(one, "")) for one in named if one not in weights]
        self.constants += [self.define(scope, one, weight_text(weight)) for one, weight in weights.items()]
        protos = []
        for proto in graph.node:
            given = [self.define(scope, one, types.get(one, "")) for one in proto.output if one]
            if is_constant(proto):
                self.constants += given
            else:
                protos.append(proto)
        path = f"{owner.path}.{name}"
        body: PageBody = {
            "owner": owner.node,
            "name": called,
            "path": path,
            "node": len(self.names),
            "nodes": len(protos),
            "tensor": first,
            "feeds": feeds,
            "results": [],
        }
        self.bodies.append(body)
        read = [[*proto.input] for proto in protos]
        self.add(protos, display_names(protos), read, scope, f"{path}/", owner.depth + 1)
        results = (one if isinstance(one, str) else one.name for one in graph.output)
        body["results"] = [self.tensor(scope, one) for one in results if one]


def columns(index: Graph, types: Mapping[str, str], culprits: Collection[str] = ()) -> PageGraph:
    """Return a model. ``types``: of tensors; ``culprits``: names of nodes, as shown, with their paths if nested."""
    made, scope = _Columns(index, frozenset(culprits)), Scope()
    made.feeds = [made.define(scope, name) for name in index.inputs]
    made.constants = [made.define(scope, name) for name in (*index.initializers, *index.carried)]
    made.add(index.protos, index.names, _read(index), scope, "", 0)
    made.results = [made.tensor(scope, name) for name in index.outputs]
    made.types = [types.get(name, "") for name in made.tensors]
    while made.waiting:
        made.add_bodies(made.waiting.popleft())
    guilty = {node for node, path in enumerate(made.paths) if path in made.wanted}
    around = set[int]()
    for body in reversed(made.bodies):  # what lies in it comes after its owner
        if not (guilty | around).isdisjoint(range(body["node"], body["node"] + body["nodes"])):
            around.add(body["owner"])
    made.culprits = sorted(guilty - around)  # what is to blame lies inside the node that owns it
    columns = {name: getattr(made, name) for name in PageGraph.__annotations__}
    return cast(PageGraph, {**columns, "operators": [*made.operators], "blocks": [*made.blocks]})


def _read(index: Graph) -> Iterator[Sequence[str]]:
    """Yield what each of a model's nodes reads, with omitted inputs."""
    for node, proto in zip(index.nodes, index.protos, strict=True):
        own = proto.input
        # what graphs nested in it capture is read by it as well
        yield [*own, *(name for name in node.inputs if name not in own)] if node.nests else own


def _graphs(node: NodeProto, index: Graph) -> Iterator[tuple[str, str, GraphProto | FunctionProto]]:
    """Yield the graphs that a node runs: the last part of each's path, what it is called in words, and the graph."""
    function = index.functions.get(call_key(node)) if index.functions else None
    if function is not None:
        yield function.name, f"function {function.name}", function
        return
    for one in sorted(node.attribute, key=lambda one: one.name == "else_branch"):  # after the other, as people read it
        if one.type == AttributeProto.GRAPH or one.HasField("g"):
            yield one.name, one.name.replace("_", " "), one.g
        for place, graph in enumerate(one.graphs):
            yield f"{one.name}[{place}]", f"{one.name.replace('_', ' ')} {place}", graph


def _blocks(names: Sequence[str]) -> list[str]:
    """Return the block of each node: where most names have a scope that, or else a stretch of the model.

    Blocks of the same name are one object.
    """
    for separator in _SEPARATORS:
        scopes = [name.strip(separator).rpartition(separator)[0] for name in names]
        if 2 * sum(map(bool, scopes)) > len(names):
            return [intern("/".join(part for part in scope.split(separator) if part)) or TOP for scope in scopes]
    last = len(names) - 1
    starts = [at - at % STRETCH for at in range(len(names))]
    return [intern(f"nodes {start} to {min(start + STRETCH - 1, last)}") for start in starts]
