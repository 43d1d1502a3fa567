"""Cutting inside an owner, which stays and is rewritten around exactly these nodes of its body, in the file's order.

What kept nodes read and removed ones gave is captured from outside, as a graph input or a constant of the model; in a
Loop or Scan it is the same in every iteration. The rest of the model stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from runner.model.graph import scopes
from runner.model.graph.cut import Cut, CutError, cut, depends_on, exposed, remove_dead_nodes
from runner.model.graph.edits import copy_of, set_graph, set_ints, set_messages
from runner.model.graph.graph_index import Graph, initializers_of
from runner.model.graph.scopes import NameSupply, names_in, names_of, rename_node
from runner.model.nested.hoist import Body, Kind, axes, body_graph, check_supported, formal_inputs, is_constant, states
from runner.model.values.value_types import tensor_type

# The body of an owner as elements of their own, and what is known of its values.


@dataclass(frozen=True, eq=False)
class Inner:
    """The body of an owner, indexed.

    ``content``: a copy of it; attributes of a function stay references. ``elements``: its nodes without Constants as a
    graph of their own: element ids are its indices. ``places``: where they stand in the body. ``constants``: Constant
    nodes by output: (place in the body, node). ``outer``: for each tensor of the body that is no constant, the name
    under which its value comes from outside, ``PATH/NAME``. ``shown``: the name under which the owner hands it out
    where the original does not.
    """

    graph: Graph
    body: Body
    content: GraphProto
    elements: Graph
    places: tuple[int, ...]
    constants: Mapping[str, tuple[int, NodeProto]]
    outer: Mapping[str, str]
    shown: Mapping[str, str]

    @staticmethod
    def of(graph: Graph, body: Body) -> Inner:
        """Index a body. Raises HoistError for one that is not supported."""
        check_supported(graph, body)
        content = body_graph(graph, body, bound=False)
        shell = ModelProto()
        shell.graph.output.extend(content.output)
        places = []
        constants: dict[str, tuple[int, NodeProto]] = {}
        for place, node in enumerate(content.node):
            if is_constant(node):
                constants.update((name, (place, node)) for name in node.output if name)
            else:
                places.append(place)
                shell.graph.node.append(node)
        elements = Graph.of(shell)
        supply = NameSupply({*names_of(graph.model), *names_in(content)})
        made = [name for node in elements.nodes for name in node.outputs]
        outer = {name: supply.fresh(f"{body.path}/{name}") for name in made}
        shown = {name: supply.fresh(f"{body.path}/{name}/out") for name in made}
        return Inner(graph, body, content, elements, tuple(places), constants, outer, shown)

    def names(self, elements: Iterable[int]) -> tuple[str, ...]:
        """Return the paths of elements."""
        return tuple(f"{self.body.path}/{self.elements.nodes[index].name}" for index in elements)

    def supply(self) -> NameSupply:
        """Return names that neither the model nor this body uses; the same ones every time."""
        return NameSupply(self._taken)

    @cached_property
    def followers(self) -> frozenset[str]:
        """The tensors of the model that depend on the owner, its own outputs included."""
        below = depends_on(self.graph, [self.body.owner])
        return frozenset(name for index in below for name in self.graph.nodes[index].outputs)

    @cached_property
    def open_ends(self) -> tuple[str, ...]:
        """Those followers that a candidate hands out: outputs of the model, and what nobody reads."""
        graph = self.graph
        return tuple(sorted(one for one in self.followers if one in graph.output_set or not graph.readers.get(one)))

    @cached_property
    def without_followers(self) -> ModelProto:
        """The model, which says nothing of the types of followers inside it; not to be changed."""
        model = copy_of(self.graph.model)
        known = [info for info in model.graph.value_info if info.name not in self.followers]
        set_messages(model.graph.value_info, known)
        return model

    @cached_property
    def _taken(self) -> frozenset[str]:
        names = names_of(self.graph.model) | names_in(self.content)
        return frozenset(names.union(self.outer.values(), self.shown.values()))

    def keeps_condition(self, keep: Collection[int]) -> bool:
        """Whether all nodes that decide how often a Loop runs are among these; of others: True."""
        if self.body.kind is not Kind.LOOP:
            return True
        pairs = zip(formal_inputs(self.content)[2:], self.content.output[1:])  # noqa: B905 - scan outputs follow
        carried = {given.name: made.name for given, made in pairs}
        waiting = [self.content.output[0].name]
        seen = set()
        while waiting:
            name = waiting.pop()
            index = self.elements.producers.get(name)
            if name in seen:
                continue
            seen.add(name)
            if name in carried:
                waiting.append(carried[name])
            elif index is not None:
                if index not in keep:
                    return False
                waiting.extend(self.elements.nodes[index].inputs)
        return True


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What is known of values, beside the model.

    ``types``: of the model's tensors. ``inner``: of the body's, by their names there. ``constants``: values of the
    body's tensors that may be written into the model, by their names there. ``limit``: the name of an int64 scalar
    that bounds a Loop whose own condition was cut (empty: nothing does); ``limit_value``: what it is, if all samples
    agree.
    """

    types: Mapping[str, TypeProto]
    inner: Mapping[str, TypeProto]
    constants: Mapping[str, TensorProto] = field(default_factory=dict)
    limit: str = ""
    limit_value: TensorProto | None = None


# The kept part of a body: its nodes in the file's order, and what they take from outside.


class Part:
    """A body and its owner in the making.

    ``removed``: what removed nodes gave. ``reads``: what kept nodes read. ``captured``: tensors that come from
    outside: their names in the body and the names they come under. ``owner``: the node; ``function``: the one that it
    calls, if it is a call; ``types``: of outputs that it has anew.
    """

    def __init__(self, inner: Inner, keep: Sequence[int], known: Knowledge) -> None:
        self.inner, self.known = inner, known
        self.supply = inner.supply()
        self.keep = set(keep)
        nodes = [inner.elements.nodes[index] for index in keep]
        made = {name for node in nodes for name in node.outputs}
        self.removed = set(inner.elements.producers) - made
        self.reads = {name for node in nodes for name in node.inputs}
        self.captured: dict[str, str] = {}
        self.owner = copy_of(inner.graph.protos[inner.body.owner])
        self.function: FunctionProto | None = None
        self.types: dict[str, TypeProto] = {}
        self._stand_ins: set[str] = set()
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
            self._stand_ins.add(name)
            node = helper.make_node("Identity", [source or self.capture(name)], [name], name=self.inner.outer[name])
            self.content.node.append(node)

    def hands_out(self, name: str, target: str, *, needed: bool = False) -> bool:
        """Whether the owner hands out a tensor of the body as ``target``: it is there, ``needed``, or it is read."""
        if name in self.removed:
            if not needed and not self.is_read(target):
                return False
            self.stand_in(name)
        return True

    def extras(self) -> list[tuple[str, TypeProto]]:
        """Return the tensors to hand out that the body does not: (name, type). Raises CutError for an unknown type."""
        names = exposed(self.inner.elements, sorted(self.keep), "sinks")
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
        names = [*self.owner.output, *[""] * count][:count]
        return [name or self.supply.fresh(f"{self.inner.body.path}/unused") for name in names]

    def _content(self, keep: Sequence[int], made: set[str]) -> GraphProto:
        """Return the kept nodes with the constants that they need; inputs and outputs as they were."""
        inner, source = self.inner, self.inner.content
        names = {name: self.capture(name) for name in sorted(self.reads & self.removed)}
        placed = {inner.places[index]: inner.elements.protos[index] for index in keep}
        wanted = self.reads.union(value.name for value in source.output)
        placed.update(constant for name, constant in inner.constants.items() if name in wanted)
        content = GraphProto(name=source.name, doc_string=source.doc_string, input=source.input, output=source.output)
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


# Rewriting a Loop or Scan around the kept part of its body: what is carried, stacked and handed out stays in step.


@dataclass(frozen=True)
class _Carried:
    source: str
    given: ValueInfoProto
    made: ValueInfoProto
    target: str


@dataclass(frozen=True)
class _Stacked:
    made: ValueInfoProto
    target: str
    axis: int = 0
    direction: int = 0


def _rewrite_loop(part: Part) -> None:
    """The condition and carried values that are needed stay, as they came in or as what was captured.

    Of a value that nobody reads the last one is given.
    """
    inner = part.inner
    condition = inner.content.output[0].name
    if condition in part.removed:
        part.stand_in(condition, formal_inputs(inner.content)[1].name)
    carried, stacked = _carried_and_stacked(part)
    # the last value, carried: it may change its shape, and the reference evaluator stacks wrongly
    for name, found in part.extras():
        part.types[inner.shown[name]] = without_dims(found)
        carried.append(_last_value(part, name, name))
    if not carried and not stacked:  # a Loop must have an output
        mirror = part.supply.fresh(f"{inner.outer[condition]}/last")
        part.content.node.append(helper.make_node("Identity", [condition], [mirror], name=mirror))
        carried.append(_last_value(part, condition, mirror))
        part.types[inner.shown[condition]] = without_dims(part.type_of(condition))
    leading = [*part.owner.input, "", ""][:2]
    if part.known.limit and not inner.keeps_condition(part.keep):
        leading[0] = part.known.limit
    _assemble(part, leading, carried, stacked)


def _rewrite_scan(part: Part) -> None:
    """Carried values that are needed stay, as what was captured; a value that nobody reads is stacked."""
    inner = part.inner
    carried, stacked = _carried_and_stacked(part)
    for name, found in part.extras():
        if found.WhichOneof("value") != "tensor_type":
            raise CutError(f"{inner.outer[name]!r} is no tensor, and a Scan can hand out nothing else")
        part.types[inner.shown[name]] = stacked_type(found)
        stacked.append(_Stacked(helper.make_value_info(name, found), inner.shown[name]))
    set_ints(part.owner, "scan_output_axes", [one.axis for one in stacked])
    set_ints(part.owner, "scan_output_directions", [one.direction for one in stacked])
    _assemble(part, [], carried, stacked)


def _assemble(part: Part, leading: Sequence[str], carried: Sequence[_Carried], stacked: Sequence[_Stacked]) -> None:
    """Put inputs and outputs of an owner and its body in step. ``leading``: the owner's inputs before the carried."""
    inner, owner = part.inner, part.owner
    first = len(leading)
    inputs = formal_inputs(inner.content)
    count = states(inner.graph, inner.body)
    scanned = list(owner.input[first + count :])
    held = initializers_of(part.content)
    listed = [value for value in inner.content.input if value not in inputs and value.name in held]
    set_messages(
        part.content.input, [*inputs[:first], *(one.given for one in carried), *inputs[first + count :], *listed]
    )
    conditions = list(inner.content.output[: 1 if leading else 0])
    set_messages(part.content.output, [*conditions, *(one.made for one in carried), *(one.made for one in stacked)])
    owner.input[:] = [*leading, *(one.source for one in carried), *scanned]
    owner.output[:] = [*(one.target for one in carried), *(one.target for one in stacked)]
    set_graph(owner, inner.body.attribute, part.content)


def _last_value(part: Part, name: str, made: str) -> _Carried:
    """A carried value that only shows what the tensor ``name`` of the body holds in the end: ``made`` there."""
    outer, any_shape = part.inner.outer[name], without_dims(part.type_of(name))
    given = helper.make_value_info(part.supply.fresh(f"{outer}/before"), any_shape)
    return _Carried(outer, given, helper.make_value_info(made, any_shape), part.inner.shown[name])


def _carried_and_stacked(part: Part) -> tuple[list[_Carried], list[_Stacked]]:
    """Return what a Loop or Scan carries, and what it stacks, as far as that is needed."""
    inner, owner = part.inner, part.owner
    first, given_from = (1, 2) if inner.body.kind is Kind.LOOP else (0, 0)
    inputs, outputs = formal_inputs(inner.content)[given_from:], inner.content.output[first:]
    targets, count = part.owner_outputs(len(outputs)), states(inner.graph, inner.body)
    read = part.reads.union(value.name for value in inner.content.output)
    carried, stacked = [], []
    for place in range(count):
        given, made = inputs[place], outputs[place]
        if made.name in part.removed:
            if given.name not in read and not part.is_read(targets[place]):
                continue
            part.stand_in(made.name, "" if made.name in part.known.inner else given.name)
        carried.append(_Carried(owner.input[given_from + place], given, made, targets[place]))
    along = axes(owner, "scan_output_axes", len(targets) - count)
    directions = axes(owner, "scan_output_directions", len(targets) - count)
    for made, target, axis, direction in zip(outputs[count:], targets[count:], along, directions, strict=True):
        if part.hands_out(made.name, target):
            stacked.append(_Stacked(made, target, axis, direction))
    return carried, stacked


# Rewriting an If or a function call around the kept part of its body, so that their outputs stay in step.
#
# An output that only removed nodes gave is dropped where nobody reads it, else it is the captured value; a value that
# nobody reads any more becomes an output.


def _rewrite_if(part: Part) -> None:
    """Both branches keep the same outputs."""
    inner, owner = part.inner, part.owner
    other = next(a.g for a in owner.attribute if a.HasField("g") and a.name != inner.body.attribute)
    outputs, targets = inner.content.output, part.owner_outputs(len(inner.content.output))
    kept = [
        place
        for place, value in enumerate(outputs)
        if part.hands_out(value.name, targets[place], needed=not _is_trivial(other, place))
    ]
    mine, theirs = ([group[place] for place in kept] for group in (outputs, other.output))
    for name, found in part.extras():
        mirror = part.supply.fresh(f"{inner.outer[name]}/other")
        other.node.append(helper.make_node("Identity", [inner.outer[name]], [mirror], name=mirror))
        mine.append(helper.make_value_info(name, found))
        theirs.append(helper.make_value_info(mirror, found))
        part.types[inner.shown[name]] = found
    set_messages(other.output, theirs)
    if len(kept) < len(outputs):
        remove_dead_nodes(other)
    set_messages(part.content.output, mine)
    owner.output[:] = [*(targets[place] for place in kept), *part.types]
    set_graph(owner, inner.body.attribute, part.content)


def _is_trivial(branch: GraphProto, place: int) -> bool:
    """Whether a branch's output is no work of its nodes: a constant, or a value from outside as it is."""
    producer = next((node for node in branch.node if branch.output[place].name in node.output), None)
    if producer is None or is_constant(producer):
        return True
    made = {name for node in branch.node for name in node.output}
    return producer.op_type == "Identity" and not scopes.domain_of(producer.domain) and producer.input[0] not in made


def _rewrite_call(part: Part) -> None:
    """What a function captures are new arguments. Where others call it too, it becomes one of its own."""
    inner, owner = part.inner, part.owner
    graph = inner.graph
    part.function = function = copy_of(graph.functions[scopes.call_key(owner)])
    pairs = zip(function.output, part.owner_outputs(len(function.output)), strict=True)
    outputs = [(name, target) for name, target in pairs if part.hands_out(name, target)]
    for name, found in part.extras():
        outputs.append((name, inner.shown[name]))
        part.types[inner.shown[name]] = found
    arguments = [*owner.input, *[""] * len(function.input)][: len(function.input)] if part.captured else owner.input
    owner.input[:] = [*arguments, *(inner.outer[name] for name in part.captured)]
    owner.output[:] = [target for _, target in outputs]
    function.input[:] = [*function.input, *part.captured.values()]
    function.output[:] = [name for name, _ in outputs]
    set_messages(function.node, list(part.content.node))
    set_messages(function.value_info, list(part.content.value_info))
    if not any(not scopes.domain_of(entry.domain) for entry in function.opset_import):
        function.opset_import.extend(e for e in graph.model.opset_import if not scopes.domain_of(e.domain))
    if _calls(part) > 1:
        function.name = owner.op_type = NameSupply(name for _, name, _ in graph.functions).fresh(function.name)


def _calls(part: Part) -> int:
    model = part.inner.graph.model
    key = scopes.call_key(part.inner.graph.protos[part.inner.body.owner])
    places = [list(model.graph.node), *(list(function.node) for function in model.functions)]
    return sum(scopes.call_key(node) == key for nodes in places for node in scopes.all_nodes(nodes))


_REWRITE: Mapping[Kind, Callable[[Part], None]] = {
    Kind.IF: _rewrite_if,
    Kind.LOOP: _rewrite_loop,
    Kind.SCAN: _rewrite_scan,
    Kind.FUNCTION: _rewrite_call,
}


def cut_inside(inner: Inner, keep: Collection[int], known: Knowledge, *, emptied: bool = False) -> Cut:
    """Return the model in which of this body only the elements ``keep`` are left.

    The owner hands out besides what removed nodes read and no kept one does; a node that nobody reads its first.
    ``emptied``: nothing need be kept; then the body hands out what comes from outside, and the owner all that it did.
    Raises CutError where nothing is kept otherwise, or a value that must come from outside has no known type.
    """
    indices = sorted(set(keep))
    if not indices and not emptied:
        raise CutError("no node is kept")
    part = Part(inner, indices, known)
    _REWRITE[inner.body.kind](part)
    # later iterations, and what follows, may now have other shapes
    reshaped = inner.body.kind in (Kind.LOOP, Kind.SCAN) and len(indices) < len(inner.elements.nodes)
    whole = _replaced(inner, part, inner.without_followers if reshaped else inner.graph.model)
    types = {**_given_types(inner, known), **known.types, **part.types}
    types.update((inner.outer[name], found) for name, found in known.inner.items() if name in inner.outer)
    constants = {inner.outer[name]: value for name, value in known.constants.items() if name in inner.outer}
    if known.limit:
        types[known.limit] = helper.make_tensor_type_proto(TensorProto.INT64, [])
        if known.limit_value is not None:
            constants[known.limit] = known.limit_value
    if reshaped:
        for name in {*part.types, *inner.open_ends}:
            declared = types.get(name) or inner.graph.value_types.get(name)
            if declared is not None:
                types[name] = without_dims(declared)
    # tensors that only removed nodes read become outputs, or are inputs no more
    lost = frozenset(name for name in inner.graph.nodes[inner.body.owner].inputs if not whole.readers.get(name))
    return cut(whole, range(len(whole.nodes)), types=types, constants=constants, shown=lost)


def _replaced(inner: Inner, part: Part, around: ModelProto) -> Graph:
    """Return a model, indexed, with the rewritten owner in the old one's place; ``around``: what the rest is."""
    graph, at = inner.graph, inner.body.owner
    model = copy_of(around)
    owner = model.graph.node[graph.positions[at]]
    owner.CopyFrom(part.owner)
    if part.function is not None:
        key = scopes.function_key(part.function)
        old = next((one for one in model.functions if scopes.function_key(one) == key), None)
        (old if old is not None else model.functions.add()).CopyFrom(part.function)
    gone = set(graph.protos[at].output) - set(owner.output)
    set_messages(model.graph.output, [value for value in model.graph.output if value.name not in gone])
    model.graph.output.extend(helper.make_value_info(name, found) for name, found in part.types.items())
    return Graph.of(model, graph.carried.keys())


def _given_types(inner: Inner, known: Knowledge) -> dict[str, TypeProto]:
    """Return the types of the owner's outputs as its body has them: an owner that nobody could run has no others."""
    loop, repeated = inner.body.kind is Kind.LOOP, inner.body.kind in (Kind.LOOP, Kind.SCAN)
    carried = states(inner.graph, inner.body) if repeated else 0
    found = {}
    targets = inner.graph.protos[inner.body.owner].output
    for place, (target, made) in enumerate(zip(targets, inner.content.output[loop:])):  # noqa: B905 - some are omitted
        inside = known.inner.get(made.name)
        if inside is not None and repeated:
            tensor = inside.WhichOneof("value") == "tensor_type"
            inside = without_dims(inside) if place < carried else stacked_type(inside) if tensor else None
        if inside is not None:
            found[target] = inside
    return found
