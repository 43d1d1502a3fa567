"""Rewriting a Loop or Scan around the kept part of its body: what is carried, stacked and handed out stays in step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto, helper

from runner.model.graph.cut import CutError
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.protobuf_edits import (
    copy_of,
    set_graph,
    set_ints,
    set_messages,
)
from runner.model.nested.bodies import Kind, axes, formal_inputs, states
from runner.model.nested.kept_part import Part, Rewritten, stacked_type, without_dims


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


def rewrite_loop(part: Part) -> Rewritten:
    """Return a Loop around a part of its body.

    The condition and carried values that are needed stay, as they came in or as what was captured; of a value that
    nobody reads the last one is given. Raises CutError where a value that is needed is not known.
    """
    inner = part.inner
    owner = copy_of(inner.graph.protos[inner.body.owner])
    condition = inner.content.output[0].name
    if condition in part.removed:
        part.stand_in(condition, formal_inputs(inner.content)[1].name)
    carried, stacked = _carried(part, owner), _stacked(part, owner)
    types: dict[str, TypeProto] = {}
    # the last value, carried: it may change its shape, and the reference evaluator stacks wrongly
    for name, found in part.extras():
        types[inner.shown[name]] = without_dims(found)
        carried.append(_last_value(part, name, name))
    if not carried and not stacked:  # a Loop must have an output
        mirror = part.supply.fresh(f"{inner.outer[condition]}/last")
        part.content.node.append(helper.make_node("Identity", [condition], [mirror], name=mirror))
        carried.append(_last_value(part, condition, mirror))
        types[inner.shown[condition]] = without_dims(part.type_of(condition))
    leading = [*owner.input, "", ""][:2]
    if part.known.limit and not inner.keeps_condition(part.keep):
        leading[0] = part.known.limit
    _assemble(part, owner, leading, carried, stacked)
    return Rewritten(owner, None, types)


def rewrite_scan(part: Part) -> Rewritten:
    """Return a Scan around a part of its body.

    Carried values that are needed stay, as what was captured; a value that nobody reads is stacked. Raises CutError
    where a value that is needed is not known.
    """
    inner = part.inner
    owner = copy_of(inner.graph.protos[inner.body.owner])
    carried, stacked = _carried(part, owner), _stacked(part, owner)
    types: dict[str, TypeProto] = {}
    for name, found in part.extras():
        if found.WhichOneof("value") != "tensor_type":
            raise CutError(f"{inner.outer[name]!r} is no tensor, and a Scan can hand out nothing else")
        types[inner.shown[name]] = stacked_type(found)
        stacked.append(_Stacked(helper.make_value_info(name, found), inner.shown[name]))
    set_ints(owner, "scan_output_axes", [one.axis for one in stacked])
    set_ints(owner, "scan_output_directions", [one.direction for one in stacked])
    _assemble(part, owner, [], carried, stacked)
    return Rewritten(owner, None, types)


def _assemble(
    part: Part, owner: NodeProto, leading: Sequence[str], carried: Sequence[_Carried], stacked: Sequence[_Stacked]
) -> None:
    """Put inputs and outputs of an owner and its body in step. ``leading``: the owner's inputs before the carried."""
    inner = part.inner
    first = len(leading)
    inputs = formal_inputs(inner.content)
    count = states(inner.graph, inner.body)
    scanned = list(owner.input[first + count :])
    listed = [value for value in inner.content.input if value not in inputs and _is_initializer(part.content, value)]
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


def _carried(part: Part, owner: NodeProto) -> list[_Carried]:
    inner = part.inner
    inputs = formal_inputs(inner.content)
    loop = inner.body.kind is Kind.LOOP
    first, given_from = (1, 2) if loop else (0, 0)
    outputs = inner.content.output
    targets = part.owner_outputs(len(outputs) - first)
    handed = {value.name for value in outputs}
    found = []
    for place in range(states(inner.graph, inner.body)):
        given, made = inputs[given_from + place], outputs[first + place]
        if made.name in part.removed:
            if given.name not in part.reads | handed and not part.is_read(targets[place]):
                continue
            part.stand_in(made.name, "" if made.name in part.known.inner else given.name)
        found.append(_Carried(owner.input[given_from + place], given, made, targets[place]))
    return found


def _stacked(part: Part, owner: NodeProto) -> list[_Stacked]:
    inner = part.inner
    first = 1 if inner.body.kind is Kind.LOOP else 0
    outputs = inner.content.output
    targets = part.owner_outputs(len(outputs) - first)
    count = states(inner.graph, inner.body)
    along = axes(owner, "scan_output_axes", len(targets) - count)
    directions = axes(owner, "scan_output_directions", len(targets) - count)
    found = []
    for place in range(count, len(targets)):
        made = outputs[first + place]
        if made.name in part.removed:
            if not part.is_read(targets[place]):
                continue
            part.stand_in(made.name)
        found.append(_Stacked(made, targets[place], along[place - count], directions[place - count]))
    return found


def _is_initializer(content: GraphProto, value: ValueInfoProto) -> bool:
    return value.name in initializers_of(content)
