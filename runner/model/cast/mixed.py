"""A model in which some layers run in the high type and the rest in the low one: valid, strongly typed, few casts.

Every tensor of a float type of the pair has the type that its producer makes; whoever reads it in the other gets one
Cast, right behind the producer, that all such readers share. Initializers are never cast: they come in both types,
made once (see `weights`). What a graph takes in and hands out keeps its type unless that is to be converted too. Casts
of the original from one type of the pair to the other are plumbing: they go, and are put back where a boundary is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from runner.model import scopes
from runner.model.cast.formals import Formals, formals_of
from runner.model.cast.layers import Layer, Level, Pair, Types, bodies, is_plumbing, levels, opsets_of

Weights = Callable[[int, str, int], TensorProto]
"""Returns an initializer (by the number of its graph and its name) in another type, under any name."""

_SUFFIX = {
    TensorProto.FLOAT: "fp32",
    TensorProto.FLOAT16: "fp16",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.DOUBLE: "fp64",
}
# attributes that say which type comes out
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")
# operators whose `dtype` is float where it is not said
_FLOAT_BY_DEFAULT = ("RandomNormal", "RandomUniform", "HannWindow", "HammingWindow", "BlackmanWindow")


@dataclass
class _Scope:
    """One graph while it is rewritten.

    ``native``: the type that a float tensor of this graph has now; ``versions``: (tensor, type) -> its name in that
    type; ``same``: plumbing that went: output -> what it was made of.
    """

    level: Level
    outer: _Scope | None
    nodes: list[NodeProto] = field(default_factory=list)
    native: dict[str, int] = field(default_factory=dict)
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    weights: dict[str, TensorProto] = field(default_factory=dict)
    added: dict[str, TensorProto] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)

    def home(self, name: str) -> tuple[_Scope, str] | None:
        """Return the scope in which a float tensor is defined, and its name there."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.same:
                return scope.home(scope.same[name])
            if name in scope.native or name in scope.weights:
                return scope, name
            scope = scope.outer
        return None


@dataclass
class Mixer:
    """Makes mixed-precision models of one model.

    ``types``: what is known of top-level tensors besides the file's own value_info. ``layers``: see `layers`.
    ``weights``: gives initializers in the other type. ``keep_io``: graph inputs and outputs keep their types; else they
    get the low one.
    """

    model: ModelProto
    types: Mapping[str, TypeProto]
    layers: tuple[Layer, ...]
    pair: Pair
    weights: Weights
    keep_io: bool = True

    def __post_init__(self) -> None:
        self._levels = levels(self.model, self.types)
        self._opsets = opsets_of(self.model)
        self._numbers = {layer.key: index for index, layer in enumerate(self.layers)}
        self._names = {
            name for level in self._levels for node in level.graph.node for name in (*node.input, *node.output)
        }

    def mixed(self, raised: frozenset[int]) -> ModelProto:
        """Return the model in which the layers with these indices are in the high type, all others in the low one."""
        made = ModelProto()
        made.CopyFrom(_without_graph(self.model))
        scope = self._rewritten(0, None, raised)
        _assemble(made.graph, self._levels[0].graph, scope)
        self._hand_over(made.graph, scope)
        return made

    # ---- one graph

    def _rewritten(self, number: int, outer: _Scope | None, raised: frozenset[int], boundary: int = 0) -> _Scope:
        """Rewrite a graph; ``boundary``: the type that its owner gives to its float inputs, 0: they keep theirs."""
        level = self._levels[number]
        scope = _Scope(level, outer)
        graph = level.graph
        scope.weights = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in self.pair}
        for value in graph.input:
            dtype = level.types.get(value.name, 0)
            if dtype in self.pair and value.name not in scope.weights:
                converted = self.pair.low if outer is None and not self.keep_io else dtype
                scope.native[value.name] = boundary or converted
        inner = iter([other for other in self._levels if other.parent == number])
        declared = {value.name for value in graph.output} if outer is None else set()
        for place, node in enumerate(graph.node):
            nested = [next(inner).number for _ in bodies(node)]
            self._add(scope, node, self._type_of(number, place, raised), nested, raised, declared)
        return scope

    def _type_of(self, number: int, place: int, raised: frozenset[int]) -> int:
        """Return the type that a node runs in; 0 for one that is no layer."""
        index = self._numbers.get((number, place))
        if index is None:
            return 0
        return self.pair.high if index in raised else self.pair.low

    def _add(
        self,
        scope: _Scope,
        node: NodeProto,
        wanted: int,
        nested: list[int],
        raised: frozenset[int],
        declared: set[str],
    ) -> None:
        types = scope.level.types
        if is_plumbing(node, types, self.pair):
            scope.same[node.output[0]] = node.input[0]
            if node.output[0] in declared:
                self._declare(scope, node.output[0])
            return
        formals = formals_of(node, self._opsets)
        copy = NodeProto()
        copy.CopyFrom(node)
        for place, name in enumerate(node.input):
            if name and types.get(name) in self.pair:
                copy.input[place] = self._fetch(
                    scope, name, None if self._is_agnostic(node) else _typed(formals, place, wanted, types[name])
                )
        for (_, body), number in zip(bodies(copy), nested, strict=True):
            self._body(body, number, scope, wanted, raised)
        made = {
            name: _made(formals, place, wanted, types[name])
            for place, name in enumerate(node.output)
            if name and types.get(name) in self.pair
        }
        if wanted:
            _retype(copy, types, self.pair, wanted)
        scope.nodes.append(copy)
        for place, name in enumerate(node.output):
            if name in made:
                self._define(scope, copy, place, name, made[name], declared)

    def _is_agnostic(self, node: NodeProto) -> bool:
        """Whether it does not matter in which type a node that is no layer reads."""
        return not scopes.domain_of(node.domain) and node.op_type in ("Shape", "Size", "Cast")

    def _define(self, scope: _Scope, copy: NodeProto, place: int, name: str, dtype: int, declared: set[str]) -> None:
        """Note what a node makes; a graph output of another type is made under another name and cast."""
        scope.native[name] = dtype
        outward = scope.level.types[name] if self.keep_io else self.pair.low
        if name in declared and dtype != outward:
            inner = self._fresh(name, dtype)
            copy.output[place] = inner
            scope.versions[name, dtype] = inner
            scope.versions[name, outward] = name
            scope.nodes.append(helper.make_node("Cast", [inner], [name], name=f"{name}__cast", to=outward))

    def _body(self, body: GraphProto, number: int, outer: _Scope, owner_type: int, raised: frozenset[int]) -> None:
        scope = self._rewritten(number, outer, raised, owner_type)
        original = self._levels[number]
        handed = {}
        for value in original.graph.output:
            dtype = original.types.get(value.name)
            if dtype is not None and dtype in self.pair:
                handed[value.name] = self._fetch(scope, value.name, owner_type or dtype), owner_type or dtype
        _assemble(body, original.graph, scope, {name for name, _ in handed.values()})
        for value in body.output:
            if value.name in handed:
                value.name, value.type.tensor_type.elem_type = handed[value.name]
        for value in body.input:
            if value.name in scope.native:
                value.type.tensor_type.elem_type = scope.native[value.name]

    def _declare(self, scope: _Scope, name: str) -> None:
        """Make a graph output of what plumbing handed through."""
        outward = scope.level.types[name] if self.keep_io else self.pair.low
        source = self._fetch(scope, scope.same.pop(name), outward)
        scope.nodes.append(helper.make_node("Identity", [source], [name], name=f"{name}__identity"))
        scope.native[name] = outward

    # ---- tensors in a type

    def _fetch(self, scope: _Scope, name: str, wanted: int | None) -> str:
        """Return the name of a float tensor in the type that is wanted (None: whichever it has)."""
        found = scope.home(name)
        if found is None:
            return name
        home, name = found
        if name in home.weights:
            return self._weight(home, name, wanted or home.weights[name].data_type)
        native = home.native[name]
        wanted = native if wanted is None else wanted
        known = home.versions.get((name, wanted))
        if known is not None:
            return known
        if wanted == native:
            return name
        made = self._fresh(name, wanted)
        home.versions[name, wanted] = made
        home.nodes.append(
            helper.make_node("Cast", [home.versions.get((name, native), name)], [made], name=f"{made}__cast", to=wanted)
        )
        return made

    def _weight(self, home: _Scope, name: str, wanted: int) -> str:
        if wanted == home.weights[name].data_type:
            return name
        known = home.versions.get((name, wanted))
        if known is None:
            known = self._fresh(name, wanted)
            other = TensorProto()
            other.CopyFrom(self.weights(home.level.number, name, wanted))
            other.name = known
            home.versions[name, wanted] = known
            home.added[known] = other
        return known

    def _fresh(self, name: str, dtype: int) -> str:
        made = f"{name}__{_SUFFIX.get(dtype, dtype)}"
        while made in self._names:
            made += "_"
        return made

    def _hand_over(self, graph: GraphProto, scope: _Scope) -> None:
        """Give graph inputs and outputs their types."""
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type in self.pair and not self.keep_io and value.name not in scope.weights:
                value.type.tensor_type.elem_type = self.pair.low


def _typed(formals: Formals | None, place: int, wanted: int, native: int) -> int:
    """Return the type in which a node reads an input."""
    formal = formals.of_input(place) if formals else None
    return wanted if formal and wanted in formal.floats else native


def _made(formals: Formals | None, place: int, wanted: int, native: int) -> int:
    """Return the type in which a node makes an output."""
    formal = formals.of_output(place) if formals else None
    return wanted if formal and wanted in formal.floats else native


def _retype(node: NodeProto, types: Types, pair: Pair, wanted: int) -> None:
    """Make attributes that say which type comes out say the wanted one."""
    if types.get(node.output[0] if node.output else "") not in pair:
        return
    seen = False
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT and attribute.i in pair:
            attribute.i, seen = wanted, True
        elif attribute.name == "value" and attribute.type == AttributeProto.TENSOR and attribute.t.data_type in pair:
            array = numpy_helper.to_array(attribute.t)
            attribute.t.CopyFrom(
                numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(wanted)), attribute.t.name)
            )
            seen = True
    if seen:
        return
    if node.op_type in _FLOAT_BY_DEFAULT:
        key = "output_datatype" if node.op_type.endswith("Window") else "dtype"
        node.attribute.append(helper.make_attribute(key, wanted))
    elif node.op_type == "ConstantOfShape":
        zero = helper.make_tensor("value", wanted, [1], [0.0])
        node.attribute.append(helper.make_attribute("value", zero))


def _without_graph(model: ModelProto) -> ModelProto:
    """Return the model around a graph."""
    found = ModelProto()
    for entry in model.opset_import:
        found.opset_import.add(domain=entry.domain, version=entry.version)
    found.ir_version = model.ir_version
    found.producer_name, found.producer_version = model.producer_name, model.producer_version
    found.domain, found.model_version, found.doc_string = model.domain, model.model_version, model.doc_string
    found.functions.extend(model.functions)
    found.metadata_props.extend(model.metadata_props)
    return found


def _assemble(graph: GraphProto, original: GraphProto, scope: _Scope, handed: Collection[str] = ()) -> None:
    """Put a graph together: its nodes, and of its float initializers those that are read."""
    del graph.node[:]
    del graph.initializer[:]
    del graph.value_info[:]
    if not graph.name:
        graph.name = original.name
        graph.input.extend(original.input)
        graph.output.extend(original.output)
        graph.sparse_initializer.extend(original.sparse_initializer)
    used = {name for node in scope.nodes for name in scopes.reads(node)}
    used |= {value.name for value in (*original.output, *original.input)} | {*handed}
    graph.initializer.extend(t for t in original.initializer if t.name in used or t.name not in scope.weights)
    graph.initializer.extend(tensor for name, tensor in scope.added.items() if name in used)
    graph.node.extend(scope.nodes)
