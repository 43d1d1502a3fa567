"""Good values inside the whole model: held by it, behind borders that no fusion crosses.

Values that a model holds itself, in place of some of its tensors, in a form that no optimizer folds.

A check that feeds the model's own inputs, and compares its own outputs, takes no other model: good values cannot be
fed to it. As initializers they would be constants, which runtimes fold and fuse what reads them. So each is gathered
from its initializer by an index that is computed of an input when the model runs: the place of the largest among one
element, which is always 0. Of several samples it is that of the one whose input is nearest to what the model is fed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from runner.model.graph.cut import Cut, CutError, takes
from runner.model.graph.edits import add_initializer, set_messages
from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import NameSupply, names_of, rename_node
from runner.model.values import tensor_bytes

HOLDS, FENCES = "holds good values", "hands on a value, so that no fusion crosses it"
"""What the nodes that are put into a model say of themselves (their doc_string)."""
_LEAST_OPSET, _BROADCAST_OPSET = 5, 7
_LOOKED_AT = 4096
"""Numbers of an input, at most, that may tell samples apart."""
_NUMBERS = frozenset({*range(1, 8), *range(9, 14)})
"""Dtypes that Cast makes a float of: numbers and bools, no texts."""


Telling = tuple[str, int, tuple[float, ...]]
"""An input by which samples are told apart, the place of one of its numbers, and that number in each sample."""


def telling(graph: Graph, fed: Mapping[str, Sequence[np.ndarray[Any, Any]]]) -> Telling | None:
    """Return what tells samples apart; None: no single number does. ``fed``: the inputs of each sample, by name."""
    found: list[tuple[float, Telling]] = []
    for name in _numbers(graph):
        rows = [one.reshape(-1)[:_LOOKED_AT].astype(np.float32) for one in fed.get(name, ())]
        if len(rows) > 1 and rows[0].size:
            held = np.stack(rows)
            gaps = np.diff(np.sort(held, axis=0), axis=0).min(axis=0)
            place = int(np.argmax(np.where(np.isfinite(held).all(axis=0), gaps, 0)))
            found.append((float(gaps[place]), (name, place, tuple(held[:, place].tolist()))))
    gap, told = max(found, key=lambda one: one[0], default=(0.0, None))
    return told if gap > 0 else None


def stacked(tensors: Sequence[TensorProto]) -> TensorProto:
    """Return values of one type and shape, one behind the other along a first axis. Raises CutError for a few types."""
    first = tensors[0]
    made = TensorProto(data_type=first.data_type, dims=[len(tensors), *first.dims])
    parts = [tensor_bytes.raw_bytes(one) for one in tensors]
    if first.data_type == TensorProto.STRING:
        made.string_data.extend(text for one in tensors for text in one.string_data)
    elif len(tensors) > 1 and tensor_bytes.BITS.get(first.data_type, 1) % 8:
        raise CutError("values of less than a byte are not held for several samples")
    else:
        made.raw_data = b"".join(part or b"" for part in parts)
    return made


def holding(
    made: Cut, graph: Graph, values: Mapping[str, TensorProto], condition: str = "", told: Telling | None = None
) -> Cut:
    """Return a candidate with the inputs and outputs of its model, that holds what it would be fed.

    ``values``: of its inputs, those of the model's own as well, one behind the other along a first axis: one, and then
    what the model is fed makes no difference, or as many as ``told`` tells apart. ``condition``: an input that may be
    any bool. Raises CutError where the candidate lacks an output of the model, or a value or an operator for that.
    """
    if missing := [name for name in graph.outputs if name not in made.outputs]:
        raise CutError(f"the model's output {missing[0]!r} has no good value")
    model, supply, own = made.model, NameSupply({*names_of(graph.model), *names_of(made.model)}), set(graph.inputs)
    front, index = _index(graph, model, supply, told)
    renamed = {name: supply.fresh(f"{name}_good") for name in made.inputs if name in own}
    for node in model.graph.node if renamed else ():
        rename_node(node, renamed, supply)
    for name in made.inputs:
        if name == condition:
            front.append(helper.make_node("Cast", [index], [name], name=name, to=TensorProto.BOOL))
            continue
        value, held = values[name], supply.fresh(f"{name}_values")
        if not takes(graph, "Gather", helper.make_tensor_type_proto(value.data_type, list(value.dims))):
            raise CutError(f"{name!r} is of a type that no Gather takes")
        add_initializer(model, value, held)
        given = renamed.get(name, name)
        front.append(helper.make_node("Gather", [held, index], [given], name=supply.fresh(f"{name}_held")))
    for node in front:
        node.doc_string = HOLDS
    set_messages(model.graph.node, [*front, *model.graph.node])
    _declare(model, graph, own)
    return replace(made, inputs=graph.inputs, outputs=graph.outputs)


def _index(graph: Graph, model: ModelProto, supply: NameSupply, told: Telling | None) -> tuple[list[NodeProto], str]:
    """Return nodes that compute of an input of the model which sample it is fed, and what that is called."""
    fed, place, numbers = told or (next(_numbers(graph), None), 0, ())
    least = _BROADCAST_OPSET if told else _LEAST_OPSET
    if fed is None or graph.opset() < least:
        raise CutError("no input holds numbers" if fed is None else f"the opset is older than {least}")
    flat, first = (supply.fresh(name) for name in ("held_flat", "held_first"))
    add_initializer(model, helper.make_tensor("", TensorProto.INT64, [1], [-1]), flat)
    add_initializer(model, helper.make_tensor("", TensorProto.INT64, [1], [place]), first)
    number, row, one, index = (supply.fresh(f"held_{name}") for name in ("number", "row", "one", "index"))
    nodes = [
        helper.make_node("Cast", [fed], [number], name=number, to=TensorProto.FLOAT),
        helper.make_node("Reshape", [number, flat], [row], name=row),
        helper.make_node("Gather", [row, first], [one], name=one),
    ]
    if told:
        known, apart, far, near = (supply.fresh(f"held_{name}") for name in ("known", "apart", "far", "near"))
        add_initializer(model, numpy_helper.from_array(np.array(numbers, np.float32)), known)
        nodes += [
            helper.make_node("Sub", [known, one], [apart], name=apart),
            helper.make_node("Abs", [apart], [far], name=far),
            helper.make_node("Neg", [far], [near], name=near),
        ]
        one = near
    nodes.append(helper.make_node("ArgMax", [one], [index], name=index, axis=0, keepdims=0))
    return nodes, index


def _numbers(graph: Graph) -> Iterator[str]:
    """Yield the model's inputs that hold numbers."""
    return (value.name for value in _own(graph.model.graph.input, graph.inputs) if _is_number(value))


def _is_number(value: ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    empty = any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in tensor.shape.dim)
    return tensor.elem_type in _NUMBERS and not empty


def _own(values: Iterable[ValueInfoProto], names: Iterable[str]) -> list[ValueInfoProto]:
    declared = {value.name: value for value in values}
    return [declared[name] for name in names]


def _declare(model: ModelProto, graph: Graph, own: set[str]) -> None:
    """Declare inputs and outputs as the model does."""
    initializers = {one.name for one in model.graph.initializer}
    others = [value for value in model.graph.input if value.name in initializers - own]
    source = graph.model.graph
    for field, values in (
        (model.graph.input, [*_own(source.input, graph.inputs), *others]),
        (model.graph.output, _own(source.output, graph.outputs)),
    ):
        set_messages(field, values)


# Fences: borders in a model that no fusion crosses, so that nodes are computed as the kernels that they are alone.
#
# A value crosses a fence through an If that hands it on in both of its branches. Its condition is an input of the
# model, so no runtime can leave it out, and what stands before it and behind it is never computed by one kernel.

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

    present = {name for node in nodes for name in node.output}
    made_in = {name: part_of.get(index, 0) for name, index in graph.producers.items() if name in present}
    for node in nodes:
        index = next((graph.producers[name] for name in node.output if name in graph.producers), None)
        own = part_of.get(index, 0) if index is not None else 0
        crossing = {
            name
            for name in node.input
            if made_in.get(name, own) != own and graph.producers.get(name) not in graph.constants
        }
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
    set_messages(made.model.graph.node, placed)
    made.model.graph.input.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, []))
    return replace(made, inputs=(*made.inputs, condition))


def _fence(graph: Graph, condition: str, name: str, gives: str, found: TypeProto | None) -> NodeProto:
    if found is None or not takes(graph, "Identity", found):
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
    return helper.make_node("If", [condition], [gives], name=gives, doc_string=FENCES, **branches)
