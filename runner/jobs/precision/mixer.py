"""Writing a model in two precisions.

A model in which some layers run in the high type and the rest in the low one: valid, strongly typed, few casts.

Every tensor of a float type of the pair has the type that its producer makes; whoever reads it in the other gets one
Cast, right behind the producer, that all such readers share. Initializers are never cast: they come in both types,
made once (see `weights`). A raised layer reads what its Q/DQ pairs quantize, not what they make of it, and pairs that
nobody reads any more go. What a graph takes in and hands out keeps its type unless that is to be converted too. Casts
of the original from one type of the pair to the other are plumbing: they go, and are put back where a boundary is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from runner.backends.nested_graphs import bodies
from runner.jobs.precision.layers import (
    STASHING,
    Contrib,
    Formal,
    Formals,
    Layer,
    Pair,
    TypedGraph,
    Types,
    in_either,
    is_plumbing,
    levels,
    node_label,
    nodes_in_order,
    obstacle,
    schemas_of,
    takes_any,
)
from runner.jobs.precision.prepare_model import convert
from runner.model.graph import scopes
from runner.model.graph.cut import remove_unused_initializers
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.low_precision import Limits, apart, pairs_of, without_unused
from runner.model.graph.scopes import NameSupply
from runner.model.values.dtypes import BY_NUMBER, FLOATS

# One graph while it is rewritten to two precisions: its names and types, and its assembly at the end.


@dataclass
class Scope:
    """One graph while it is rewritten.

    ``native``: the type that a float tensor of this graph has now; ``versions``: (tensor, type) -> its name in that
    type; ``same``: plumbing that went: output -> what it was made of; ``lifted``: what raised layers make; ``supply``:
    gives names to new tensors, in all graphs; ``raised``: layers in the high type; ``inner``: graphs of nodes to come;
    ``outward``: the types that the model's float outputs have.
    """

    level: TypedGraph
    outer: Scope | None
    supply: NameSupply
    raised: frozenset[int]
    inner: Iterator[TypedGraph]
    outward: dict[str, int] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    native: dict[str, int] = field(default_factory=dict)
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    weights: dict[str, TensorProto] = field(default_factory=dict)
    added: dict[str, TensorProto] = field(default_factory=dict)
    lifted: set[str] = field(default_factory=set)
    same: dict[str, str] = field(default_factory=dict)

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


def assemble(graph: GraphProto, scope: Scope) -> None:
    """Put the nodes of a scope into a copy of its graph, without pairs and initializers that nobody reads.

    The element types of what nodes make are said: ONNX infers none behind operators that it does not define.
    """
    set_messages(graph.node, without_unused(scope.nodes, {value.name for value in graph.output}))
    del graph.value_info[:]
    graph.initializer.extend(scope.added.values())
    remove_unused_initializers(graph)
    known = {**scope.level.types, **scope.native, **{name: dtype for (_, dtype), name in scope.versions.items()}}
    outputs = {value.name for value in graph.output}
    for name in (name for node in graph.node for name in node.output):
        if name and name not in outputs and known.get(name):
            graph.value_info.add(name=name).type.tensor_type.elem_type = known[name]


def set_io_types(graph: GraphProto, scope: Scope, pair: Pair, wanted: int | None) -> None:
    """Give the inputs and outputs of a top-level graph their types; ``wanted``: of the pair's, None: as they are."""
    # an input whose default was replaced by another tensor would be fed without effect
    set_messages(graph.input, [value for value in graph.input if value.name not in scope.weights])
    for value in (*graph.input, *graph.output):
        if wanted is not None and value.type.tensor_type.elem_type in pair and value.name not in scope.weights:
            value.type.tensor_type.elem_type = wanted


# Attributes of a node that state an output type (`to`, `dtype`), and the types in which it reads and makes tensors.

# attributes that say which type comes out
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")
# operators whose type is float where it is not said
_FLOAT_BY_DEFAULT = ("RandomNormal", "RandomUniform", "HannWindow", "HammingWindow", "BlackmanWindow")


def typed(formal: Formal | None, wanted: int, native: int) -> int:
    """Return the type in which a node reads, or makes, what this stands for."""
    return wanted if formal and wanted in formal.floats else native


def retype(node: NodeProto, types: Types, pair: Pair, wanted: int) -> None:
    """Make attributes that say which type comes out say the wanted one."""
    if types.get(node.output[0] if node.output else "") not in pair:
        return
    seen = False
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT and attribute.i in pair:
            attribute.i, seen = wanted, True
        elif attribute.name == "value" and attribute.type == AttributeProto.TENSOR and attribute.t.data_type in pair:
            array = numpy_helper.to_array(attribute.t)
            values, _ = convert(array, wanted, alone=array.size == 1)
            dims = list(attribute.t.dims)
            attribute.t.CopyFrom(helper.make_tensor(attribute.t.name, wanted, dims, values.tobytes(), raw=True))
            seen = True
    if seen:
        return
    if node.op_type in _FLOAT_BY_DEFAULT:
        key = "dtype" if node.op_type.startswith("Random") else "output_datatype"
        node.attribute.append(helper.make_attribute(key, wanted))
    elif node.op_type == "ConstantOfShape":
        zero = helper.make_tensor("value", wanted, [1], [0.0])
        node.attribute.append(helper.make_attribute("value", zero))


# All float nodes of a model, and why some of them cannot be searched (no low kind of the operator, unknown types).


@dataclass(frozen=True)
class FloatNode:
    """A node that reads or makes floats of the pair.

    ``index``: of its layer; None: its type is the same whatever is raised. ``number``: of its graph. ``high``: whether
    it stays in the high type, where it is no layer; ``why``: it is no layer.
    """

    path: str
    number: int
    node: NodeProto
    index: int | None
    high: bool
    why: str

    @property
    def op(self) -> str:
        """The operator, with the domain of one that is not ONNX's."""
        domain = scopes.domain_of(self.node.domain)
        return f"{domain}.{self.node.op_type}" if domain else self.node.op_type

    def is_high(self, raised: frozenset[int]) -> bool:
        """Whether it is in the high type where these layers are raised."""
        return self.high if self.index is None else self.index in raised


@dataclass
class Mixer:
    """Makes mixed-precision models of one model.

    ``types``: what is known of top-level tensors besides the file's own value_info. ``layers``: see `layers`.
    ``weights``: initializers in the other type, and what DequantizeLinear nodes make of constants, by NUMBER/NAME.
    ``keep_io``: graph inputs and outputs keep their types; else they get the low one. ``restores``: raised nodes lose
    their Q/DQ pairs, which stay otherwise. ``contrib``: operators that ONNX does not define. ``instead``: nodes that a
    raised node becomes in place of the parent's, by the first tensor that they make.
    """

    model: ModelProto
    types: Mapping[str, TypeProto]
    layers: tuple[Layer, ...]
    pair: Pair
    weights: Mapping[str, TensorProto]
    keep_io: bool = True
    restores: bool = False
    contrib: Contrib = field(default_factory=dict)
    instead: Mapping[str, NodeProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.levels = levels(self.model, self.types)
        self._pairs = pairs_of(self.model.graph) if self.restores else [{} for _ in self.levels]
        self._schemas = schemas_of(self.model, self.contrib)
        self._numbers = {layer.key: index for index, layer in enumerate(self.layers)}
        self._names = scopes.names_of(self.model)

    @cached_property
    def float_nodes(self) -> tuple[FloatNode, ...]:
        """The float nodes of all graphs, in executable order.

        A Cast from one type of the pair to the other is none, nor is what takes floats of any type without computing
        with them: Shape, Size, and a Cast to another kind.
        """
        pair, schemas = self.pair, self._schemas
        low, high = (BY_NUMBER[dtype].numpy_name for dtype in (pair.low, pair.high))
        found = []
        for level, place, node in nodes_in_order(self.levels):
            index, types = self._numbers.get((level.number, place)), level.types
            kinds = {types.get(name, -1) for name in (*node.input, *node.output) if name}
            unknown = any(name and name not in types for name in node.output)  # it may make floats
            if index is None and (takes_any(node, types, pair) or not (unknown or kinds & {pair.low, pair.high})):
                continue
            beside = f"it is in {high} beside others that are in {low} as they are"
            why = "" if index is not None else obstacle(node, types, schemas, pair) or beside
            own = in_either(node, types, schemas, pair) or kinds
            is_high = pair.high in own or pair.low not in own
            found.append(FloatNode(level.prefix + node_label(node, place), level.number, node, index, is_high, why))
        return tuple(found)

    @property
    def everything(self) -> frozenset[int]:
        """All layers."""
        return frozenset(range(len(self.layers)))

    def mixed(self, raised: frozenset[int]) -> ModelProto:
        """Return the model in which the layers with these indices are in the high type, all others in the low one."""
        made = copy_of(self.model)
        scope = self._rewritten(self.levels[0], None, raised)
        if self.restores:
            scope.nodes = apart(scope.nodes, self.model.graph, scope.supply)
        set_io_types(made.graph, scope, self.pair, None if self.keep_io else self.pair.low)
        assemble(made.graph, scope)
        return made

    # ---- one graph

    def _rewritten(self, level: TypedGraph, outer: Scope | None, raised: frozenset[int], boundary: int = 0) -> Scope:
        """Rewrite a graph; ``boundary``: the type that its owner gives to its float inputs, 0: they keep theirs."""
        inner, graph = iter([other for other in self.levels if other.parent == level.number]), level.graph
        scope = Scope(level, outer, outer.supply if outer else NameSupply(self._names), raised, inner)
        for name in (value.name for value in graph.output if outer is None):
            if level.types.get(name) in self.pair:
                scope.outward[name] = level.types[name] if self.keep_io else self.pair.low
        scope.weights = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in self.pair}
        for value in graph.input:
            dtype = level.types.get(value.name, 0)
            if dtype in self.pair and value.name not in scope.weights:
                converted = self.pair.low if outer is None and not self.keep_io else dtype
                scope.native[value.name] = boundary or converted
        for sparse in graph.sparse_initializer:
            if sparse.values.data_type in self.pair:
                scope.native[sparse.values.name] = sparse.values.data_type
        for place, node in enumerate(graph.node):
            index = self._numbers.get((level.number, place))
            if index in raised:
                scope.lifted.update(node.output)
            self._add(scope, node, 0 if index is None else self.pair.high if index in raised else self.pair.low)
        return scope

    def _add(self, scope: Scope, node: NodeProto, wanted: int) -> None:
        types = scope.level.types
        if is_plumbing(node, types, self.pair):
            name = node.output[0]
            if (outward := scope.outward.get(name)) is not None:
                scope.hand(self._fetch(scope, node.input[0], outward), name, outward, outward)
            else:
                scope.same[name] = node.input[0]
            return
        if self._ends_a_pair(scope, node):
            return
        formals = self._schemas.of(node) or Formals((), ())
        fetch = self._raw if self.restores and scope.lifted & set(node.output) else self._fetch
        copy = copy_of(node)
        agnostic = takes_any(node, types, self.pair)
        for place, name in enumerate(node.input):
            if name and types.get(name) in self.pair:
                read = None if agnostic else typed(formals.of_input(place), wanted, types[name])
                copy.input[place] = fetch(scope, name, read)
        for _, body in bodies(copy):
            self._body(body, scope, wanted)
        if wanted:
            retype(copy, types, self.pair, wanted)
        scope.nodes.append(copy)
        for place, name in enumerate(node.output):
            if name and types.get(name) in self.pair:
                formal = None if place and node.op_type in STASHING else formals.of_output(place)
                self._define(scope, copy, place, name, typed(formal, wanted, types[name]))

    def _define(self, scope: Scope, copy: NodeProto, place: int, name: str, dtype: int) -> None:
        """Note what a node makes; a graph output of another type is made under another name and cast."""
        scope.native[name] = dtype
        if (outward := scope.outward.get(name, dtype)) != dtype:
            inner = self._fresh(scope, name, dtype)
            copy.output[place] = inner
            scope.versions[name, dtype] = inner
            scope.versions[name, outward] = name
            scope.nodes.append(helper.make_node("Cast", [inner], [name], name=f"{name}__cast", to=outward))

    def _body(self, body: GraphProto, outer: Scope, owner_type: int) -> None:
        scope = self._rewritten(next(outer.inner), outer, outer.raised, owner_type)
        for value in body.output:
            if (dtype := scope.level.types.get(value.name, 0)) in self.pair:
                value.type.tensor_type.elem_type = owner_type or dtype
                value.name = self._own(scope, value.name, owner_type or dtype)
        for value in body.input:
            if value.name in scope.native:
                value.type.tensor_type.elem_type = scope.native[value.name]
        assemble(body, scope)

    def _own(self, scope: Scope, name: str, wanted: int) -> str:
        """Return the name of a body's output, which must be made in the body itself."""
        found = scope.home(name)
        given = self._fetch(scope, name, wanted)
        if found is None or found[0] is scope:
            return given
        made = self._fresh(scope, f"{name}__inside", wanted)
        scope.nodes.append(helper.make_node("Identity", [given], [made], name=f"{made}__identity"))
        return made

    # ---- tensors in a type

    def _fetch(self, scope: Scope, name: str, wanted: int | None) -> str:
        """Return the name of a float tensor in the type that is wanted (None: whichever it has)."""
        found = scope.home(name)
        if found is None:
            return name
        home, name = found
        if name in home.weights:
            own = home.weights[name].data_type
            return name if wanted in (None, own) else self._added(home, (name, wanted), name, name)
        native = home.native[name]
        wanted = native if wanted is None else wanted
        if wanted == native or (name, wanted) in home.versions:
            return home.versions.get((name, wanted), name)
        made = self._fresh(home, name, wanted)
        home.versions[name, wanted] = made
        home.nodes.append(
            helper.make_node("Cast", [home.versions.get((name, native), name)], [made], name=f"{made}__cast", to=wanted)
        )
        return made

    def _raw(self, scope: Scope, name: str, wanted: int | None) -> str:
        """Return the name of what a tensor was before it was quantized, in the type that is wanted."""
        at: Scope | None = scope
        while at is not None and name not in at.native:
            at = at.outer
        pair = self._pairs[at.level.number].get(name) if at else None
        if at is None or pair is None:
            return self._fetch(scope, name, wanted)
        if pair.source is not None:
            if at.level.types.get(pair.source) not in self.pair:
                return self._fetch(at, name, wanted)
            given = self._fetch(at, pair.source, wanted)
            return self._limited(at, given, wanted or self.pair.high, pair.ends)
        return self._added(at, (f"{name} before", self.pair.high), name, f"{name}__raw")

    def _limited(self, home: Scope, name: str, dtype: int, ends: Limits) -> str:
        """Return the name of a tensor without what is beyond its ends, which the pair that went had cut off."""
        if ends == (None, None):
            return name
        key = f"{name} within {ends}", dtype
        if key not in home.versions:
            made = name
            for op, end in (("Max", ends[0]), ("Min", ends[1])):
                if end is not None:
                    limit = helper.make_tensor(self._fresh(home, f"{name}__{op.lower()}", dtype), dtype, [], [end])
                    home.added[limit.name] = limit
                    read, made = [made, limit.name], self._fresh(home, f"{name}__{op.lower()}ed", dtype)
                    home.nodes.append(helper.make_node(op, read, [made], name=made))
            home.versions[key] = made
        return home.versions[key]

    def _ends_a_pair(self, scope: Scope, node: NodeProto) -> bool:
        """Hand out what a raised layer makes as it is, where a pair would quantize it for a graph output."""
        pair = self._pairs[scope.level.number].get(node.output[0]) if node.output else None
        if pair is None or pair.source not in scope.lifted or node.output[0] not in scope.outward:
            return False
        assert pair.source
        # cut off before it is cast: few runtimes compare in every low type
        made = scope.native.get(pair.source, self.pair.high)
        given = self._fetch(scope, pair.source, made)
        given = self._limited(scope, given, made, pair.ends)
        scope.hand(given, node.output[0], made, scope.outward[node.output[0]])
        return True

    def _added(self, home: Scope, key: tuple[str, int], name: str, under: str) -> str:
        """Return the name of a weight in the type of ``key``, made once, named after ``under``."""
        if key not in home.versions:
            other = copy_of(self.weights[f"{home.level.number}/{name}"])
            other.name = home.versions[key] = self._fresh(home, under, key[1])
            home.added[other.name] = other
        return home.versions[key]

    def _fresh(self, scope: Scope, name: str, dtype: int) -> str:
        """Return a name that no tensor of the model has, and none that was made for this one."""
        return scope.supply.fresh(f"{name}__{FLOATS[dtype].short}")
