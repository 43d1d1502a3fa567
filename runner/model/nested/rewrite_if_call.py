"""Rewriting an If or a function call around the kept part of its body, so that their outputs stay in step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import FunctionProto, GraphProto
from onnx.helper import make_node, make_value_info

from runner.model.graph import scopes
from runner.model.graph.protobuf_edits import (
    copy_of,
    set_graph,
    set_messages,
)
from runner.model.graph.remove_unused import remove_nodes
from runner.model.nested.bodies import Kind, is_constant
from runner.model.nested.kept_part import Part, Rewritten
from runner.model.nested.rewrite_loop_scan import rewrite_loop, rewrite_scan


def rewrite_owner(part: Part) -> Rewritten:
    """Return the owner around a part of its body.

    An output that only removed nodes gave is dropped where nobody reads it, else it is the captured value; a value
    that nobody reads any more becomes an output. Raises CutError where a value that is needed is not known.
    """
    return _REWRITE[part.inner.body.kind](part)


# ---- If


def _rewrite_if(part: Part) -> Rewritten:
    """Both branches keep the same outputs."""
    inner = part.inner
    owner = copy_of(inner.graph.protos[inner.body.owner])
    other = next(a.g for a in owner.attribute if a.HasField("g") and a.name != inner.body.attribute)
    targets = part.owner_outputs(len(inner.content.output))
    kept = []
    for place, value in enumerate(inner.content.output):
        if value.name in part.removed:
            if not part.is_read(targets[place]) and _is_trivial(other, place):
                continue
            part.stand_in(value.name)
        kept.append(place)
    mine = [inner.content.output[place] for place in kept]
    theirs = [other.output[place] for place in kept if place < len(other.output)]
    gone = [value.name for place, value in enumerate(other.output) if place not in kept]
    types = {}
    for name, found in part.extras():
        mirror = part.supply.fresh(f"{inner.outer[name]}/other")
        other.node.append(make_node("Identity", [inner.outer[name]], [mirror], name=mirror))
        mine.append(make_value_info(name, found))
        theirs.append(make_value_info(mirror, found))
        types[inner.shown[name]] = found
    set_messages(other.output, theirs)
    _drop_dead(other, gone)
    set_messages(part.content.output, mine)
    owner.output[:] = [*(targets[place] for place in kept), *types]
    set_graph(owner, inner.body.attribute, part.content)
    return Rewritten(owner, None, types)


def _is_trivial(branch: GraphProto, place: int) -> bool:
    """Whether a branch's output is no work of its nodes: a constant, or a value from outside as it is."""
    if place >= len(branch.output):
        return True
    producer = next((node for node in branch.node if branch.output[place].name in node.output), None)
    if producer is None or is_constant(producer):
        return True
    made = {name for node in branch.node for name in node.output}
    return producer.op_type == "Identity" and not scopes.domain_of(producer.domain) and producer.input[0] not in made


def _drop_dead(branch: GraphProto, names: Sequence[str]) -> None:
    """Remove the nodes that gave only these outputs, which the branch does not hand out any more."""
    wanted = {value.name for value in branch.output}
    wanted.update(name for node in branch.node for name in scopes.reads(node))
    dead = [
        at
        for at, node in enumerate(branch.node)
        if any(n in names for n in node.output) and not wanted & set(node.output)
    ]
    remove_nodes(branch, dead)


# ---- functions


def _rewrite_call(part: Part) -> Rewritten:
    """What a function captures are new arguments. Where others call it too, it becomes one of its own."""
    inner = part.inner
    graph = inner.graph
    owner = copy_of(graph.protos[inner.body.owner])
    key = scopes.call_key(owner)
    function: FunctionProto = copy_of(graph.functions[key])
    targets = part.owner_outputs(len(function.output))
    outputs = []
    for name, target in zip(list(function.output), targets):  # noqa: B905 - equally long
        if name in part.removed:
            if not part.is_read(target):
                continue
            part.stand_in(name)
        outputs.append((name, target))
    types = {}
    for name, found in part.extras():
        outputs.append((name, inner.shown[name]))
        types[inner.shown[name]] = found
    arguments = [*owner.input, *[""] * len(function.input)][: len(function.input)] if part.captured else owner.input
    owner.input[:] = [*arguments, *(inner.outer[name] for name in part.captured)]
    owner.output[:] = [target for _, target in outputs]
    function.input[:] = [*function.input, *part.captured.values()]
    function.output[:] = [name for name, _ in outputs]
    set_messages(function.node, list(part.content.node))
    if hasattr(function, "value_info"):
        set_messages(function.value_info, list(part.content.value_info))
    if not any(not scopes.domain_of(entry.domain) for entry in function.opset_import):
        function.opset_import.extend(e for e in graph.model.opset_import if not scopes.domain_of(e.domain))
    if _calls(part) > 1:
        names = {function_key[1] for function_key in graph.functions}
        number = next(at for at in range(2, len(names) + 3) if f"{function.name}_{at}" not in names)
        function.name = owner.op_type = f"{function.name}_{number}"
    return Rewritten(owner, function, types)


def _calls(part: Part) -> int:
    model = part.inner.graph.model
    key = scopes.call_key(part.inner.graph.protos[part.inner.body.owner])
    places = [list(model.graph.node), *(list(function.node) for function in model.functions)]
    return sum(scopes.call_key(node) == key for nodes in places for node in scopes.all_nodes(nodes))


_REWRITE: Mapping[Kind, Callable[[Part], Rewritten]] = {
    Kind.IF: _rewrite_if,
    Kind.LOOP: rewrite_loop,
    Kind.SCAN: rewrite_scan,
    Kind.FUNCTION: _rewrite_call,
}
