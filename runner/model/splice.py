"""The whole model with good values in place of what a set of nodes gives, or of what it reads.

What is left is judged at the model's own outputs, so that such a model says whether a failure of the whole arises
inside the set. Good values reach the set's nodes alone: another node that reads the same tensor gets what the model
computes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from runner.model import scopes
from runner.model.graph import Graph
from runner.model.rename import NameSupply, names_of, rename_node


@dataclass(frozen=True, eq=False)
class Splice:
    """A model whose missing tensors are to be fed.

    ``graph``: all its nodes belong to the candidate, and its outputs are what is judged. ``given``: inputs under
    another name than the tensor whose good value they get, by that name. ``silent``: nodes of the set on which none of
    the model's own outputs depends once its inputs are good (`good_inputs` only).
    """

    graph: Graph
    given: Mapping[str, str] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()


def good_outputs(graph: Graph, nodes: Collection[int], *, alive: bool = False) -> Splice:
    """Return the model without ``nodes`` (elements), whose outputs become inputs.

    An output of the model that one of them gives is handed out by an Identity, so that the model keeps its outputs.
    ``alive``: what only these nodes read becomes an output too, so that no runtime drops what computes it.
    """
    gone = set(nodes)
    model = _without_nodes(graph)
    supply = NameSupply(names_of(graph.model))
    given = {}
    for name in dict.fromkeys(graph.outputs):
        if graph.producers.get(name) in gone:
            fed = supply.fresh(f"{name}_good")
            given[fed] = name
            model.graph.node.append(helper.make_node("Identity", [fed], [name], name=supply.fresh(f"{name}_given")))
    model.graph.node.extend(_others(graph, gone))
    unread = [
        name
        for node in graph.nodes
        if node.index not in gone
        for name in node.outputs
        if name not in graph.output_set and gone.issuperset(readers := graph.readers.get(name, ())) and readers
    ]
    if alive:
        model.graph.output.extend(ValueInfoProto(name=name) for name in unread)
    return Splice(Graph.of(model), given)


def good_inputs(graph: Graph, nodes: Collection[int], fed: Collection[str], *, alive: bool = False) -> Splice:
    """Return the model in which ``nodes`` (elements) read good values in place of the tensors ``fed``.

    What nothing depends on any more, neither the model's outputs nor ``nodes``, is left out. ``alive``: those of
    ``nodes`` that no output of the model depends on hand out what they give.
    """
    inside, wanted = frozenset(nodes), frozenset(fed)
    judged = [graph.producers[name] for name in graph.outputs if name in graph.producers]
    audible = _reached(graph, judged, inside, wanted)
    silent = inside - audible
    # what a silent node still computes from stays, too
    kept = inside | audible | _reached(graph, silent, inside, wanted)
    supply = NameSupply(names_of(graph.model))
    # a tensor that nobody computes any more keeps its name
    aliases = {name: supply.fresh(f"{name}_good") for name in fed if graph.producers.get(name) in kept}
    model = _without_nodes(graph)
    gone = frozenset(range(len(graph.nodes))) - kept
    model.graph.node.extend(_others(graph, gone, inside, aliases, supply))
    if alive:
        read = {name for node in model.graph.node for name in scopes.reads(node)}
        shown = [name for index in sorted(silent) for name in graph.nodes[index].outputs if name not in read]
        model.graph.output.extend(ValueInfoProto(name=name) for name in shown if name not in graph.output_set)
    return Splice(Graph.of(model), {alias: name for name, alias in aliases.items()}, frozenset(silent))


def outside_reads(graph: Graph, nodes: Collection[int]) -> tuple[str, ...]:
    """Return the tensors that ``nodes`` read and other nodes of the model compute, in order of first use."""
    inside = set(nodes)
    return tuple(
        dict.fromkeys(
            name
            for index in sorted(inside)
            for name in graph.nodes[index].inputs
            if name in graph.producers and graph.producers[name] not in inside
        )
    )


def depends_on(graph: Graph, nodes: Collection[int]) -> frozenset[int]:
    """Return the elements that depend on any of ``nodes``, these included."""
    reached = set(nodes)
    for node in graph.nodes:
        if not reached.isdisjoint(graph.parents[node.index]):
            reached.add(node.index)
    return frozenset(reached)


def ancestors(graph: Graph, nodes: Collection[int]) -> frozenset[int]:
    """Return the elements that any of ``nodes`` depends on, these left out."""
    reached = set(nodes)
    waiting = list(reached)
    while waiting:
        for parent in graph.parents[waiting.pop()]:
            if parent not in reached:
                reached.add(parent)
                waiting.append(parent)
    return frozenset(reached - set(nodes))


def _reached(graph: Graph, start: Collection[int], inside: Collection[int], fed: Collection[str]) -> frozenset[int]:
    """Return ``start`` and what it depends on, where the nodes ``inside`` read good values for ``fed``."""
    reached: set[int] = set()
    waiting = list(start)
    while waiting:
        index = waiting.pop()
        if index in reached:
            continue
        reached.add(index)
        waiting += [
            graph.producers[name]
            for name in graph.nodes[index].inputs
            if name in graph.producers and not (index in inside and name in fed)
        ]
    return frozenset(reached)


def _without_nodes(graph: Graph) -> ModelProto:
    model = ModelProto()
    model.CopyFrom(graph.model)
    model.ClearField("training_info")
    del model.graph.node[:]
    return model


def _others(
    graph: Graph,
    gone: Collection[int],
    inside: Collection[int] = (),
    aliases: Mapping[str, str] | None = None,
    supply: NameSupply | None = None,
) -> list[NodeProto]:
    """Return the file's nodes but those ``gone``; those ``inside`` read the aliases."""
    elements = {position: index for index, position in enumerate(graph.positions)}
    found = []
    for position, proto in enumerate(graph.model.graph.node):
        index = elements.get(position)
        if index is None:  # a constant that is no element
            found.append(proto)
        elif index in gone:
            continue
        elif aliases and index in inside and not aliases.keys().isdisjoint(graph.nodes[index].inputs):
            assert supply is not None
            node = NodeProto()
            node.CopyFrom(proto)
            rename_node(node, aliases, supply)
            found.append(node)
        else:
            found.append(proto)
    return found
