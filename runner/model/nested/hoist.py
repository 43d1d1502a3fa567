"""Bodies at top level: an owner replaced by a body's nodes, or stopped after some iterations.

Hoisting: an owner is replaced by the nodes of one of its bodies, which become elements like all others.

Of a Loop or Scan it is one iteration; what follows the owner is then fed with what the owner gave. So it is for the
branch of an If that was not taken: what follows may not even be possible with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    defs,
    helper,
)

from runner.model.graph import scopes
from runner.model.graph.edits import add_initializer, copy_of, set_messages
from runner.model.graph.graph_index import Graph, display_names, initializers_of, is_sparse_constant
from runner.model.graph.scopes import NameSupply, names_in, names_of, rename_graph, rename_node
from runner.model.passes.lift_constants import lower_constants
from runner.model.values.value_types import tensor_type

# The bodies of owners: branches of an If, the body of a Loop or Scan, the function that a call stands for.


class HoistError(Exception):
    """A body cannot be worked on as asked; the message says why."""


class Kind(str, Enum):
    """What owns a body. The value is the operator's name, or ``Function``."""

    IF = "If"
    LOOP = "Loop"
    SCAN = "Scan"
    FUNCTION = "Function"


_ATTRIBUTES = {Kind.IF: ("then_branch", "else_branch"), Kind.LOOP: ("body",), Kind.SCAN: ("body",)}


@dataclass(frozen=True)
class Body:
    """One body of one top-level node.

    ``owner``: the element. ``path``: ``OWNER.ATTRIBUTE``, for a function ``CALL.FUNCTION``. ``attribute``: empty for a
    function. ``nodes``: how many elements it has: its own nodes, Constants left out; an owner in it counts as one.
    """

    owner: int
    path: str
    kind: Kind
    attribute: str
    nodes: int


def bodies(graph: Graph, among: Iterable[int] | None = None) -> tuple[Body, ...]:
    """Return the bodies of all elements, or of some, as these stand; those of an If: then, else."""
    found = []
    for node in graph.nodes if among is None else (graph.nodes[index] for index in among):
        kind = kind_of(graph, node.index)
        if kind is Kind.FUNCTION:
            function = graph.functions[scopes.call_key(graph.protos[node.index])]
            path = f"{node.name}.{function.name}"
            found.append(Body(node.index, path, kind, "", _elements(function.node)))
        elif kind is not None:
            for name in _ATTRIBUTES[kind]:
                inner = _graph_attribute(graph.protos[node.index], name)
                if inner is not None:
                    found.append(Body(node.index, f"{node.name}.{name}", kind, name, _elements(inner.node)))
    return tuple(found)


def kind_of(graph: Graph, element: int) -> Kind | None:
    """Return what kind of owner an element is, None if it is none."""
    if scopes.call_key(graph.protos[element]) in graph.functions:
        return Kind.FUNCTION  # a model's own function goes before the operator of that name
    node = graph.nodes[element]
    found = next((kind for kind in _ATTRIBUTES if kind.value == node.op_type), None)
    return found if not node.domain else None


def is_constant(node: NodeProto) -> bool:
    """Whether a node is a Constant, of whatever form: it is data, and no element."""
    return node.op_type == "Constant" and not scopes.domain_of(node.domain) and not node.input


def body_graph(graph: Graph, body: Body, *, bound: bool = True) -> GraphProto:
    """Return a copy of a body as a graph, to be changed at will.

    Of a function: with the attributes of the call (``bound``) or as references; its inputs and outputs have no types.
    """
    owner = graph.protos[body.owner]
    if body.kind is Kind.FUNCTION:
        copy = GraphProto()
        function = graph.functions[scopes.call_key(owner)]
        copy.node.extend(function.node)
        copy.input.extend(ValueInfoProto(name=name) for name in function.input)
        copy.output.extend(ValueInfoProto(name=name) for name in function.output)
        copy.value_info.extend(getattr(function, "value_info", ()))
        if bound:
            _bind(copy.node, owner, function)
        return copy
    found = _graph_attribute(owner, body.attribute)
    assert found is not None
    return copy_of(found)


def formal_inputs(inner: GraphProto) -> list[ValueInfoProto]:
    """Return the inputs that the owner fills, by place; an initializer may be listed as an input too."""
    constant = initializers_of(inner)
    return [value for value in inner.input if value.name not in constant]


def states(graph: Graph, body: Body) -> int:
    """Return how many values a Loop or Scan carries from one iteration to the next."""
    owner = graph.protos[body.owner]
    if body.kind is Kind.LOOP:
        return max(len(owner.input) - 2, 0)
    return len(owner.input) - scan_inputs(owner)


def scan_inputs(owner: NodeProto) -> int:
    """Return how many inputs a Scan takes slices of."""
    return next((int(attribute.i) for attribute in owner.attribute if attribute.name == "num_scan_inputs"), 0)


def axes(owner: NodeProto, name: str, count: int) -> list[int]:
    """Return a list attribute of a Scan: axes or directions, 0 where it says nothing."""
    given = next((list(attribute.ints) for attribute in owner.attribute if attribute.name == name), [])
    return (given + [0] * count)[:count]


def check_supported(graph: Graph, body: Body) -> None:
    """Raise HoistError for a Scan with a batch axis (before opset 9), and where a body does not fit its owner."""
    if body.kind not in (Kind.LOOP, Kind.SCAN):
        return
    if body.kind is Kind.SCAN and graph.opset() < 9:
        raise HoistError(f"{body.path}: a Scan of opset {graph.opset()} has a batch axis, which is not supported")
    loop, inner = body.kind is Kind.LOOP, _graph_attribute(graph.protos[body.owner], body.attribute)
    assert inner is not None
    inputs, carried = len(formal_inputs(inner)), states(graph, body)
    wanted = carried + 2 if loop else len(graph.protos[body.owner].input)
    if inputs != wanted or len(inner.output) < carried + loop:
        raise HoistError(f"{body.path} has {inputs} inputs and {len(inner.output)} outputs, its owner wants others")


def missing_imports(graph: Graph, function: FunctionProto) -> dict[str, int]:
    """Return what the function's nodes need imported beyond what the model imports.

    Raises HoistError where the two import versions of a domain between which an operator used changed.
    """
    found = {}
    for entry in function.opset_import:
        domain = scopes.domain_of(entry.domain)
        version = graph.opset(domain)
        if not version:
            found[domain] = int(entry.version)
        elif version != entry.version:
            for node in scopes.all_nodes(function.node):
                if scopes.domain_of(node.domain) == domain and scopes.call_key(node) not in graph.functions:
                    _check_unchanged(node, domain, version, int(entry.version), function.name)
    return found


def _check_unchanged(node: NodeProto, domain: str, ours: int, theirs: int, name: str) -> None:
    try:
        same = len({defs.get_schema(node.op_type, version, domain).since_version for version in (ours, theirs)}) == 1
    except Exception:  # noqa: BLE001 - the class that onnx raises for an unknown operator differs between its versions
        same = False
    if not same:
        raise HoistError(
            f"function {name} imports opset {theirs} of {domain or 'ai.onnx'}, the model {ours}, "
            f"and {node.op_type} is not known to be the same in both"
        )


def _elements(nodes: Iterable[NodeProto]) -> int:
    return sum(not is_constant(node) for node in nodes)


def _graph_attribute(owner: NodeProto, name: str) -> GraphProto | None:
    return next((one.g for one in owner.attribute if one.name == name and one.HasField("g")), None)


def _bind(nodes: Iterable[NodeProto], call: NodeProto, function: FunctionProto) -> None:
    """Give attributes that refer to one of the function their values: the call's, else the default, else none."""
    values: dict[str, AttributeProto] = {one.name: one for one in getattr(function, "attribute_proto", ())}
    values.update((attribute.name, attribute) for attribute in call.attribute)
    for node in list(scopes.all_nodes(list(nodes))):
        bound = []
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                bound.append(attribute)
            elif attribute.ref_attr_name in values:
                value = copy_of(values[attribute.ref_attr_name])
                value.name = attribute.name
                if value.HasField("g") or value.graphs:
                    raise HoistError(f"function {function.name} takes a graph as its attribute {attribute.name!r}")
                bound.append(value)
        if any(attribute.ref_attr_name for attribute in node.attribute):
            set_messages(node.attribute, bound)


@dataclass(frozen=True)
class Need:
    """A graph input of the hoisted model that the model it came from did not have.

    ``name``: the input. ``role``: ``carried`` (what a Loop or Scan carries into this iteration: state number
    ``place``), ``slice`` (of the tensor ``source`` along ``axis``, from its end if ``reverse``; the axis is gone) or
    ``result`` (what the owner gave, under its own name). ``source``: the owner's input, or its output for a result.
    """

    name: str
    role: str
    source: str
    place: int
    axis: int = 0
    reverse: bool = False


@dataclass(frozen=True, eq=False)
class Hoisted:
    """A model in which a body stands in its owner's place.

    ``needs``: inputs that are new. ``inside``: the elements (of ``Graph.of(model)``) that were the body's, in order;
    their names are ``PATH/NAME``. ``names``: for each tensor of the body, its name now.
    """

    model: ModelProto
    needs: tuple[Need, ...]
    inside: tuple[int, ...]
    names: Mapping[str, str]


def hoist(
    graph: Graph, body: Body, *, iteration: int = 0, types: Mapping[str, TypeProto] | None = None, in_place: bool = True
) -> Hoisted:
    """Replace the owner of a body by the body's nodes; the graph stays as it is.

    ``iteration``: which one of a Loop or Scan. ``types``: of tensors, where the file does not declare them.
    ``in_place``: whether the body's outputs take the place of the owner's, or else what follows is fed with what the
    owner gave (always so for a Loop or Scan). Constants of the body become initializers.
    Raises HoistError for what cannot stand at top level.
    """
    check_supported(graph, body)
    return _Hoisting(graph, body, iteration, types or {}, in_place and body.kind in (Kind.IF, Kind.FUNCTION)).run()


class _Hoisting:
    """One body on its way to the top. ``model``: a copy of the model, in which the owner has no body any more."""

    def __init__(
        self, graph: Graph, body: Body, iteration: int, types: Mapping[str, TypeProto], in_place: bool
    ) -> None:
        self._graph, self._body, self._iteration, self._types = graph, body, iteration, types
        self._in_place = in_place
        self._owner = graph.protos[body.owner]
        self._inner = body_graph(graph, body)
        lower_constants(self._inner, 4)
        self._supply = NameSupply({*names_of(graph.model), *names_in(self._inner)})
        self._model = copy_of(graph.model)
        self._model.graph.node[graph.positions[body.owner]].ClearField("attribute")
        # names in the owner's other bodies are free: they go with the owner
        self._outside = names_of(self._model)
        self._names: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._needs: list[Need] = []
        self._inputs: list[ValueInfoProto] = []
        self._constants: list[TensorProto] = []
        self._results: dict[str, ValueInfoProto] = {}

    def run(self) -> Hoisted:
        own = scopes.definitions(self._inner)
        if self._body.kind is Kind.FUNCTION:
            self._bind_arguments()
        elif self._body.kind in (Kind.LOOP, Kind.SCAN):
            self._bind_iteration()
        # a tensor that is handed out twice takes the owner's first name for it
        targets = list(zip((value.name for value in self._inner.output), self._owner.output))  # noqa: B905 - may differ
        for name, target in targets if self._in_place else ():
            if target and name in own and name not in self._names:
                self._names[name] = target
        for name in sorted(own - set(self._names)):
            self._names[name] = self._unique(name)
        if self._in_place:
            self._alias_results(targets)
        else:
            self._cut_results()
        formal = {self._names[value.name] for value in formal_inputs(self._inner)}
        shown = display_names(list(self._inner.node))
        rename_graph(self._inner, self._names, self._supply, set(self._names.values()) - {""})
        for node, name in zip(self._inner.node, shown):  # noqa: B905 - equally long; runs on older interpreters too
            node.name = f"{self._body.path}/{name}"
        elements = sum(not is_sparse_constant(node) for node in self._inner.node)
        inside = tuple(range(self._body.owner, self._body.owner + elements))
        self._assemble(formal)
        return Hoisted(self._model, tuple(self._needs), inside, dict(self._names))

    # ---- what the body's inputs are

    def _bind_arguments(self) -> None:
        for place, value in enumerate(self._inner.input):
            self._names[value.name] = self._owner.input[place] if place < len(self._owner.input) else ""

    def _bind_iteration(self) -> None:
        inputs, sources = formal_inputs(self._inner), list(self._owner.input)
        if self._body.kind is Kind.LOOP:
            for value, content in zip(inputs, (self._iteration, True)):  # noqa: B905 - the two that come first
                self._constant(value, content)
            inputs, sources = inputs[2:], sources[2:]
        carried = states(self._graph, self._body)
        for place in range(carried):
            if self._iteration == 0:
                self._names[inputs[place].name] = sources[place]
            else:
                self._need(inputs[place], "carried", sources[place], place)
        count = len(sources) - carried
        along = axes(self._owner, "scan_input_axes", count)
        reverse = axes(self._owner, "scan_input_directions", count)
        for place in range(count):
            value, source = inputs[carried + place], sources[carried + place]
            self._need(value, "slice", source, place, along[place], reverse=bool(reverse[place]))

    def _constant(self, value: ValueInfoProto, content: int | bool) -> None:
        """A number of the iteration; a body may declare it with one dimension."""
        self._names[value.name] = name = self._unique(value.name)
        dtype = TensorProto.BOOL if content is True else TensorProto.INT64
        dims = [1] * len(value.type.tensor_type.shape.dim)
        self._constants.append(helper.make_tensor(name, dtype, dims, [content]))

    def _need(
        self, value: ValueInfoProto, role: str, source: str, place: int, axis: int = 0, *, reverse: bool = False
    ) -> None:
        self._names[value.name] = name = self._unique(value.name)
        self._needs.append(Need(name, role, source, place, axis, reverse))
        self._inputs.append(ValueInfoProto(name=name, type=value.type))

    # ---- what becomes of the owner's outputs

    def _alias_results(self, targets: Sequence[tuple[str, str]]) -> None:
        """Note the owner's outputs that are another tensor: a captured one, an argument, one handed out twice."""
        for name, target in targets:
            source = self._names.get(name, name)
            if target and source != target:
                if not source:
                    raise HoistError(f"{self._body.path}: its output {name!r} is an argument that is not given")
                self._aliases[target] = source

    def _cut_results(self) -> None:
        """Feed whoever reads the owner's outputs with what it gave, and hand out what the body's nodes give."""
        for place, name in enumerate(self._owner.output):
            if name and self._graph.readers.get(name):
                self._inputs.append(
                    ValueInfoProto(name=name, type=self._types.get(name) or self._graph.value_types.get(name))
                )
                self._needs.append(Need(name, "result", name, place))
        made = {name for node in self._inner.node for name in node.output}
        for value in self._inner.output:
            if value.name in made:
                name = self._names[value.name]
                self._results.setdefault(name, ValueInfoProto(name=name, type=value.type))

    # ---- the new model

    def _assemble(self, formal: set[str]) -> None:
        model, graph = self._model, self._model.graph
        removed = set(self._aliases) if self._in_place else set(self._owner.output)
        outputs = [value for value in graph.output if self._in_place or value.name not in removed]
        set_messages(graph.output, [*outputs, *self._results.values()])
        graph.input.extend(self._inputs)
        self._place_nodes({value.name for value in graph.output})
        for tensor in [*self._inner.initializer, *self._constants]:
            add_initializer(model, tensor, tensor.name)
        graph.sparse_initializer.extend(self._inner.sparse_initializer)
        graph.quantization_annotation.extend(self._inner.quantization_annotation)
        self._add_value_info(formal, removed)
        if self._body.kind is Kind.FUNCTION:
            function = self._graph.functions[scopes.call_key(self._owner)]
            for domain, version in missing_imports(self._graph, function).items():
                model.opset_import.add(domain=domain, version=version)

    def _place_nodes(self, outputs: set[str]) -> None:
        graph = self._model.graph
        for node in graph.node if self._aliases else ():
            rename_node(node, self._aliases, self._supply)
        at = self._graph.positions[self._body.owner]
        # only the caller needs a tensor under its old name; readers read the other one
        identities = [
            helper.make_node("Identity", [source], [target], name=f"{self._body.path}/{target}")
            for target, source in self._aliases.items()
            if target in outputs
        ]
        set_messages(graph.node, [*graph.node[:at], *self._inner.node, *identities, *graph.node[at + 1 :]])

    def _add_value_info(self, formal: set[str], removed: set[str]) -> None:
        """Keep what the body says of its tensors; ``formal``: its inputs, which the outside knows better."""
        graph = self._model.graph
        set_messages(graph.value_info, [value for value in graph.value_info if value.name not in removed])
        known = {value.name for group in (graph.input, graph.output, graph.value_info) for value in group}
        known |= formal | {tensor.name for tensor in graph.initializer}
        own = set(self._names.values())
        for value in [*self._inner.value_info, *self._inner.output]:
            if value.name not in known and value.name in own and value.HasField("type"):
                known.add(value.name)
                graph.value_info.append(value)

    def _unique(self, name: str) -> str:
        """A name for the top level: the tensor's own where that is free."""
        found = name if name not in self._outside else self._supply.fresh(f"{self._body.path}/{name}")
        self._outside.add(found)
        return found


# A Loop or Scan as a model of its own that stops after a number of iterations, to record what the next one gets.

COUNT = "winnow.last_iteration"
"""The output of a limited Loop that holds the number of its last iteration, -1 where there was none."""


def limited_loop(graph: Graph, body: Body, limit: int, *, stacked: bool = False) -> ModelProto:
    """Return a model of a Loop alone that makes ``limit`` iterations at most and gives COUNT besides.

    Its outputs are what it carries, each under a name, then COUNT, then what it stacks, if that is wanted. The
    types of its inputs are those that the file declares, if any: a recorder knows better. Raises HoistError for a
    loop that is not one.
    """
    model, owner, supply = _alone(graph, body)
    carried = states(graph, body)
    inner = next(attribute.g for attribute in owner.attribute if attribute.name == body.attribute)
    inputs = formal_inputs(inner)
    limit_name, start, last, before, after = (
        supply.fresh(f"winnow.{what}") for what in ("limit", "start", "none", "before", "now")
    )
    go_on = owner.input[1] if len(owner.input) > 1 and owner.input[1] else start
    # a body may declare its iteration number with one dimension
    dims = [1] * len(inputs[0].type.tensor_type.shape.dim)
    model.graph.initializer.append(helper.make_tensor(limit_name, TensorProto.INT64, [], [limit]))
    model.graph.initializer.append(helper.make_tensor(last, TensorProto.INT64, dims, [-1]))
    if go_on == start:
        # omitted, the condition is true; some runtimes take it for false
        model.graph.initializer.append(helper.make_tensor(start, TensorProto.BOOL, [], [True]))
    # the number is a carried value: some runtimes stack scan outputs wrongly
    number = tensor_type(TensorProto.INT64, tuple(dims))
    inner.node.append(helper.make_node("Identity", [inputs[0].name], [after]))
    inner.input.append(helper.make_value_info(before, number))
    more = list(inner.output[1 + carried :]) if stacked else []
    set_messages(inner.output, [*inner.output[: 1 + carried], helper.make_value_info(after, number), *more])
    owner.input[:] = [limit_name, go_on, *owner.input[2:], last]
    outputs = [name or supply.fresh("winnow.given") for name in [*owner.output, *[""] * (carried + len(more))]]
    return _finished(model, owner, [*outputs[:carried], COUNT, *outputs[carried : carried + len(more)]])


def shortened_scan(graph: Graph, body: Body) -> tuple[ModelProto, dict[str, str]]:
    """Return a model of a Scan alone that scans other tensors, and what these stand for: new name, old name."""
    model, owner, supply = _alone(graph, body)
    count, carried = scan_inputs(owner), states(graph, body)
    found = {}
    for place in range(carried, carried + count):
        name = supply.fresh(f"winnow.part{place}")
        found[name] = owner.input[place]
        owner.input[place] = name
    outputs = [name or supply.fresh("winnow.given") for name in owner.output]
    return _finished(model, owner, outputs), found


def _alone(graph: Graph, body: Body) -> tuple[ModelProto, NodeProto, NameSupply]:
    """Return a model of the owner alone, with the constants that it reads, and its node in it, which stands last."""
    check_supported(graph, body)
    source = graph.model
    model = ModelProto(ir_version=max(source.ir_version, 4))  # from then on, initializers are no inputs
    model.opset_import.extend(source.opset_import)
    model.functions.extend(source.functions)
    model.graph.name = "owner"
    for name in graph.nodes[body.owner].inputs:
        found = graph.initializers.get(name)
        if isinstance(found, SparseTensorProto):
            model.graph.sparse_initializer.append(found)
        elif found is not None:
            model.graph.initializer.append(found)
        elif name in graph.carried:
            model.graph.node.append(graph.carried[name][1])
    model.graph.node.append(graph.protos[body.owner])
    return model, model.graph.node[-1], NameSupply(names_of(source))


def _finished(model: ModelProto, owner: NodeProto, outputs: list[str]) -> ModelProto:
    owner.output[:] = outputs
    set_messages(model.graph.output, [ValueInfoProto(name=name) for name in outputs])
    return model
