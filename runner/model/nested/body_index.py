"""The body of an owner as elements of their own, and what is known of its values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from runner.model.graph.cut import depends_on
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import NameSupply, names_in, names_of
from runner.model.nested.hoist import (
    Body,
    Kind,
    body_graph,
    check_supported,
    formal_inputs,
    is_constant,
)


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
