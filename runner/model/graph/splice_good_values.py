"""The whole model with good values in place of what some of its nodes give, judged at its own outputs.

So the model is asked, not a part of it: without some nodes, whether it still fails; and with nothing but some nodes
and what depends on them, whether it fails because of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import NodeProto, helper

from runner.model.graph.graph_index import Graph
from runner.model.graph.rename import NameSupply, names_of


@dataclass(frozen=True)
class Splice:
    """What of a model stays, and which of its missing tensors are to be fed; `cut` makes the candidate of it.

    ``keep``: the elements that stay. ``front``: hands out good values as the model's outputs. ``shown``: outputs of
    elements that stay, to be handed out besides the model's own. ``given``: inputs under another name than the tensor
    whose good value they get, by that name.
    """

    keep: Sequence[int]
    front: tuple[NodeProto, ...] = ()
    shown: frozenset[str] = frozenset()
    given: Mapping[str, str] = field(default_factory=dict)


def splice(
    graph: Graph,
    gone: Collection[int],
    *,
    alive: bool = False,
    good: Callable[[str], bool] = lambda name: True,
    carried: Collection[int] = (),
) -> Splice:
    """Return the model without the elements ``gone``, whose outputs become inputs.

    An output of the model that one of them gives is handed out by an Identity, so that the model keeps its outputs; it
    is left out where there is no ``good`` value of it (it would be right in any case). ``alive``: what only elements
    that are gone read becomes an output too, so that no runtime drops what computes it. ``carried``: elements that come
    along with those that stay and read them.
    """
    lost = set(gone)
    keep = [node.index for node in graph.nodes if node.index not in lost and node.index not in carried]
    missing = [name for name in dict.fromkeys(graph.outputs) if graph.producers.get(name) in lost and good(name)]
    supply = NameSupply(names_of(graph.model) if missing else ())
    front, given = [], {}
    for name in missing:
        fed = supply.fresh(f"{name}_good")
        given[fed] = name
        front.append(helper.make_node("Identity", [fed], [name], name=supply.fresh(f"{name}_given")))
    shown = (
        name
        for index in (keep if alive else ())
        for name in graph.nodes[index].outputs
        if name not in graph.output_set and (readers := graph.readers.get(name)) and lost.issuperset(readers)
    )
    return Splice(keep, tuple(front), frozenset(shown), given)


def depends_on(graph: Graph, nodes: Collection[int], without: Collection[int] = ()) -> frozenset[int]:
    """Return the elements that depend on any of ``nodes``, these included; not through those ``without``."""
    reached, lost = set(nodes), set(without)
    for node in graph.nodes:
        if node.index not in lost and not reached.isdisjoint(graph.parents[node.index]):
            reached.add(node.index)
    return frozenset(reached)


def dependent_tensors(graph: Graph, nodes: Collection[int]) -> frozenset[str]:
    """Return what the elements that depend on any of ``nodes`` give, these included."""
    return frozenset(name for index in depends_on(graph, nodes) for name in graph.nodes[index].outputs)


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
