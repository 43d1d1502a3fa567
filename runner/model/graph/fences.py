"""Fences: borders in a model that no fusion crosses, so that nodes are computed as the kernels that they are alone.

A value crosses a fence through an If that hands it on in both of its branches. Its condition is an input of the model,
so no runtime can leave it out, and what stands before it and behind it is never computed by one kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from onnx import NodeProto, TensorProto, TypeProto, helper

from runner.model.graph.control_model import takes_identity
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.graph_index import Graph
from runner.model.graph.rename import NameSupply, names_of

CONDITION = "fence"
"""How the input is called that decides nothing."""


def fenced(made: Cut, graph: Graph, parts: Sequence[Collection[int]], types: Mapping[str, TypeProto]) -> Cut:
    """Return a candidate with a fence around each of some parts; its last input is the condition, any bool.

    A constant crosses none: with one in front of a weight its reader would be another kernel. ``types``: of tensors.
    Raises CutError where a value that crosses a fence has no type that can be handed on, or is read inside a body.
    """
    part_of = {index: at for at, part in enumerate(parts, 1) for index in part}
    supply, nodes = NameSupply({*names_of(graph.model), *made.inputs}), list(made.model.graph.node)
    condition, behind = supply.fresh(CONDITION), dict[str, str]()

    def part(node: NodeProto) -> int:
        return next((part_of.get(graph.producers[name], 0) for name in node.output if name in graph.producers), 0)

    made_in = {name: part(node) for node in nodes for name in node.output if name in graph.producers}
    for node in nodes:
        own = part(node)
        crossing = {
            name
            for name in node.input
            if made_in.get(name, own) != own and graph.producers.get(name) not in graph.constants
        }
        index = next((graph.producers[name] for name in node.output if name in graph.producers), None)
        read = graph.nodes[index].inputs if index is not None else ()
        if any(made_in.get(name, own) != own and name not in node.input for name in read):
            raise CutError("a value that crosses a fence is read inside a body")
        for name in crossing:
            behind.setdefault(name, supply.fresh(f"{name}_behind_fence"))
        node.input[:] = [behind[name] if name in crossing else name for name in node.input]
    placed: list[NodeProto] = []
    for node in nodes:
        placed.append(node)
        placed += [
            _fence(graph, condition, name, behind[name], types.get(name)) for name in node.output if name in behind
        ]
    del made.model.graph.node[:]
    made.model.graph.node.extend(placed)
    made.model.graph.input.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, []))
    return replace(made, inputs=(*made.inputs, condition))


def _fence(graph: Graph, condition: str, name: str, gives: str, found: TypeProto | None) -> NodeProto:
    if found is None or not takes_identity(graph, found):
        raise CutError(f"{name!r} is of no type that can be handed on")
    branches = {
        branch: helper.make_graph(
            [helper.make_node("Identity", [name], [f"{gives}_{branch}"])],
            branch,
            [],
            [helper.make_value_info(f"{gives}_{branch}", found)],
        )
        for branch in ("then_branch", "else_branch")
    }
    return helper.make_node("If", [condition], [gives], name=gives, **branches)
