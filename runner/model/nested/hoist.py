"""Hoisting: an owner is replaced by the nodes of one of its bodies, which become elements like all others.

Of a Loop or Scan it is one iteration; what follows the owner is then fed with what the owner gave. So it is for the
branch of an If that was not taken: what follows may not even be possible with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from runner.model.graph import scopes
from runner.model.graph.graph_index import Graph, is_sparse_constant
from runner.model.graph.rename import (
    NameSupply,
    names_in,
    names_in_nodes,
    names_of,
    rename_graph,
    rename_node,
)
from runner.model.nested.bodies import (
    Body,
    HoistError,
    Kind,
    axes,
    body_graph,
    check_supported,
    formal_inputs,
    missing_imports,
    scan_inputs,
    states,
)
from runner.model.passes.lift_constants import lower_constants


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
    graph: Graph,
    body: Body,
    *,
    iteration: int = 0,
    types: Mapping[str, TypeProto] | None = None,
    in_place: bool = True,
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
    """One body on its way to the top."""

    def __init__(
        self, graph: Graph, body: Body, iteration: int, types: Mapping[str, TypeProto], in_place: bool
    ) -> None:
        self._graph, self._body, self._iteration, self._types = graph, body, iteration, types
        self._in_place = in_place
        self._owner = graph.protos[body.owner]
        self._inner = body_graph(graph, body)
        lower_constants(self._inner, 4)
        self._supply = NameSupply({*names_of(graph.model), *names_in(self._inner)})
        # names in the owner's other bodies are free: they go with the owner
        others = [proto for index, proto in enumerate(graph.protos) if index != body.owner]
        shell = GraphProto()
        shell.CopyFrom(graph.model.graph)
        del shell.node[:]
        self._outside = {
            *scopes.definitions(shell),
            *(value.name for value in shell.output),
            *names_in_nodes([*others, *(node for _, node in graph.carried.values())]),
            *self._owner.input,
            *self._owner.output,
        }
        self._names: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._needs: list[Need] = []
        self._inputs: list[ValueInfoProto] = []
        self._constants: list[TensorProto] = []
        self._results: list[ValueInfoProto] = []

    def run(self) -> Hoisted:
        own = scopes.definitions(self._inner)
        if self._body.kind is Kind.FUNCTION:
            self._bind_arguments()
        elif self._body.kind in (Kind.LOOP, Kind.SCAN):
            self._bind_iteration()
        if self._in_place:
            self._claim_results()
        for name in sorted(own - set(self._names)):
            self._names[name] = self._unique(name)
        if self._in_place:
            self._alias_results(own)
        else:
            self._cut_results()
        shown = self._display_names()
        formal = {value.name for value in formal_inputs(self._inner)}
        rename_graph(self._inner, self._names, self._supply, set(self._names.values()) - {""})
        for node, name in zip(self._inner.node, shown):  # noqa: B905 - equally long; runs on older interpreters too
            node.name = f"{self._body.path}/{name}"
        elements = sum(not is_sparse_constant(node) for node in self._inner.node)
        inside = tuple(range(self._body.owner, self._body.owner + elements))
        model = self._assembled({self._names[name] for name in formal})
        return Hoisted(model, tuple(self._needs), inside, dict(self._names))

    # ---- what the body's inputs are

    def _bind_arguments(self) -> None:
        for place, value in enumerate(self._inner.input):
            self._names[value.name] = self._owner.input[place] if place < len(self._owner.input) else ""

    def _bind_iteration(self) -> None:
        inputs = formal_inputs(self._inner)
        first = 2 if self._body.kind is Kind.LOOP else 0
        carried = states(self._graph, self._body)
        expected = first + carried + (scan_inputs(self._owner) if self._body.kind is Kind.SCAN else 0)
        if len(inputs) != expected:
            raise HoistError(f"{self._body.path} has {len(inputs)} inputs, its owner wants {expected}")
        if self._body.kind is Kind.LOOP:
            for value, tensor in zip(inputs, (self._iteration, True)):  # noqa: B905 - the two that come first
                self._constant(value, tensor)
        for place in range(carried):
            value, source = inputs[first + place], self._owner.input[first + place]
            if self._iteration == 0:
                self._names[value.name] = source
            else:
                self._need(value, Need(self._unique(value.name), "carried", source, place))
        if self._body.kind is Kind.SCAN:
            count = scan_inputs(self._owner)
            along = axes(self._owner, "scan_input_axes", count)
            reverse = axes(self._owner, "scan_input_directions", count)
            for place in range(count):
                value, source = inputs[carried + place], self._owner.input[carried + place]
                name = self._unique(value.name)
                self._need(value, Need(name, "slice", source, place, along[place], bool(reverse[place])))

    def _constant(self, value: ValueInfoProto, content: int | bool) -> None:
        """A number of the iteration; a body may declare it with one dimension."""
        self._names[value.name] = name = self._unique(value.name)
        dtype = TensorProto.BOOL if content is True else TensorProto.INT64
        dims = [1] * len(value.type.tensor_type.shape.dim)
        self._constants.append(helper.make_tensor(name, dtype, dims, [content]))

    def _need(self, value: ValueInfoProto, need: Need) -> None:
        self._names[value.name] = need.name
        self._needs.append(need)
        self._inputs.append(_copied(value, need.name))

    # ---- what becomes of the owner's outputs

    def _claim_results(self) -> None:
        """Give the first output of each tensor of the body the owner's name for it."""
        made = {name for node in self._inner.node for name in node.output}
        made.update(tensor.name for tensor in self._inner.initializer)
        made.update(sparse.values.name for sparse in self._inner.sparse_initializer)
        for place, value in enumerate(self._inner.output):
            target = self._owner.output[place] if place < len(self._owner.output) else ""
            if target and value.name in made and value.name not in self._names:
                self._names[value.name] = target

    def _alias_results(self, own: set[str]) -> None:
        """Note the owner's outputs that are another tensor: a captured one, an argument, one handed out twice."""
        for place, value in enumerate(self._inner.output):
            target = self._owner.output[place] if place < len(self._owner.output) else ""
            source = self._names[value.name] if value.name in own else value.name
            if target and source != target:
                if not source:
                    raise HoistError(f"{self._body.path}: its output {value.name!r} is an argument that is not given")
                self._aliases[target] = source

    def _cut_results(self) -> None:
        """Feed whoever reads the owner's outputs with what it gave, and hand out what the body's nodes give."""
        for place, name in enumerate(self._owner.output):
            if name and self._graph.readers.get(name):
                found = self._types.get(name) or self._graph.value_types.get(name)
                self._inputs.append(helper.make_value_info(name, found) if found else ValueInfoProto(name=name))
                self._needs.append(Need(name, "result", name, place))
        made = {name for node in self._inner.node for name in node.output}
        for value in self._inner.output:
            if value.name in made and self._names[value.name] not in {info.name for info in self._results}:
                self._results.append(_copied(value, self._names[value.name]))

    # ---- the new model

    def _assembled(self, formal: set[str]) -> ModelProto:
        model = ModelProto()
        model.CopyFrom(self._graph.model)
        graph = model.graph
        removed = set() if self._in_place else set(self._owner.output)
        outputs = [_copied(value, value.name) for value in graph.output if value.name not in removed]
        del graph.output[:]
        graph.output.extend(outputs)
        graph.output.extend(self._results)
        graph.input.extend(self._inputs)
        self._place_nodes(graph, {value.name for value in outputs})
        for tensor in [*self._inner.initializer, *self._constants]:
            graph.initializer.add().CopyFrom(tensor)
            if model.ir_version < 4:  # before IR version 4 every initializer is listed as an input
                graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        graph.sparse_initializer.extend(self._inner.sparse_initializer)
        graph.quantization_annotation.extend(self._inner.quantization_annotation)
        self._add_value_info(graph, formal, removed)
        if self._body.kind is Kind.FUNCTION:
            function = self._graph.functions[scopes.call_key(self._owner)]
            for domain, version in missing_imports(self._graph, function).items():
                model.opset_import.add(domain=domain, version=version)
        return model

    def _place_nodes(self, graph: GraphProto, outputs: set[str]) -> None:
        nodes = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        if self._aliases:
            for node in nodes:
                rename_node(node, self._aliases, self._supply)
        at = self._graph.positions[self._body.owner]
        # only the caller needs a tensor under its old name; readers read the other one
        identities = [
            helper.make_node("Identity", [source], [target], name=f"{self._body.path}/{target}")
            for target, source in self._aliases.items()
            if target in outputs
        ]
        del graph.node[:]
        graph.node.extend([*nodes[:at], *self._inner.node, *identities, *nodes[at + 1 :]])

    def _add_value_info(self, graph: GraphProto, formal: set[str], removed: set[str]) -> None:
        """Keep what the body says of its tensors; ``formal``: its inputs, which the outside knows better."""
        kept = [
            _copied(value, value.name) for value in graph.value_info if value.name not in removed | set(self._aliases)
        ]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        known = {value.name for group in (graph.input, graph.output, graph.value_info) for value in group}
        known |= formal | {tensor.name for tensor in graph.initializer}
        own = set(self._names.values())
        for value in [*self._inner.value_info, *self._inner.output]:
            if value.name not in known and value.name in own and value.HasField("type"):
                known.add(value.name)
                graph.value_info.append(value)

    def _display_names(self) -> list[str]:
        """The nodes' names as Graph shows them: unique in the body."""
        copies = ModelProto()
        copies.graph.node.extend(self._inner.node)
        graph = Graph.of(copies)
        named = {position: node.name for position, node in zip(graph.positions, graph.nodes)}  # noqa: B905
        return [named.get(at, node.output[0] if node.output else "") for at, node in enumerate(self._inner.node)]

    def _unique(self, name: str) -> str:
        """A name for the top level: the tensor's own where that is free."""
        if name not in self._outside:
            self._outside.add(name)
            return name
        found = self._supply.fresh(f"{self._body.path}/{name}")
        self._outside.add(found)
        return found


def _copied(value: ValueInfoProto, name: str) -> ValueInfoProto:
    copy = ValueInfoProto()
    copy.CopyFrom(value)
    copy.name = name
    return copy
