"""The bodies of owners: branches of an If, the body of a Loop or Scan, the function that a call stands for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, ValueInfoProto, defs

from runner.model.graph import scopes
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.graph_index import Graph, initializers_of


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


def opset_of(graph: Graph, domain: str = "") -> int | None:
    """Return the version of a domain that the model imports."""
    return next((entry.version for entry in graph.model.opset_import if scopes.domain_of(entry.domain) == domain), None)


def check_supported(graph: Graph, body: Body) -> None:
    """Raise HoistError for a Scan with a batch axis (before opset 9), and where a body does not fit its owner."""
    if body.kind not in (Kind.LOOP, Kind.SCAN):
        return
    if body.kind is Kind.SCAN and (opset_of(graph) or 0) < 9:
        raise HoistError(f"{body.path}: a Scan of opset {opset_of(graph)} has a batch axis, which is not supported")
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
        version = opset_of(graph, domain)
        if version is None:
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
