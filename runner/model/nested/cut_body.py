"""Cutting inside an owner, which stays: exactly these nodes of its body, in the file's order.

What kept nodes read and removed ones gave is captured from outside, as a graph input or a constant of the model; in a
Loop or Scan it is the same in every iteration. The rest of the model stays as it is, and so does its index: a trial is
indexed in time proportional to the owner.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from onnx import ModelProto, TensorProto, TypeProto, helper

from runner.model.graph import scopes
from runner.model.graph.cut import Cut, CutError, Expose, cut
from runner.model.graph.graph_index import Graph
from runner.model.graph.protobuf_edits import copy_of, set_messages
from runner.model.nested.bodies import Kind, states
from runner.model.nested.body_index import Inner, Knowledge
from runner.model.nested.kept_part import Part, Rewritten, stacked_type, without_dims
from runner.model.nested.rewrite_if_call import rewrite_owner


def cut_inside(
    inner: Inner, keep: Collection[int], known: Knowledge, expose: Expose = "sinks", *, emptied: bool = False
) -> Cut:
    """Return the model in which of this body only the elements ``keep`` are left.

    ``expose``: which values of kept nodes the owner hands out besides: ``sinks``: those that removed nodes read and no
    kept one does; ``frontier``: all that removed nodes read; a node that nobody reads always hands out its first.
    ``emptied``: nothing need be kept; then the body hands out what comes from outside, and the owner all that it did.
    Raises CutError where nothing is kept otherwise, or a value that must come from outside has no known type.
    """
    indices = sorted(set(keep))
    if not indices and not emptied:
        raise CutError("no node is kept")
    rewritten = rewrite_owner(Part(inner, indices, known, expose))
    # later iterations, and what follows, may now have other shapes
    reshaped = inner.body.kind in (Kind.LOOP, Kind.SCAN) and len(indices) < len(inner.elements.nodes)
    whole = _replaced(inner, rewritten, inner.without_followers if reshaped else inner.graph.model)
    types = {**_given_types(inner, known), **known.types, **rewritten.types}
    types.update((inner.outer[name], found) for name, found in known.inner.items() if name in inner.outer)
    constants = {inner.outer[name]: value for name, value in known.constants.items() if name in inner.outer}
    if known.limit:
        types[known.limit] = helper.make_tensor_type_proto(TensorProto.INT64, [])
        if known.limit_value is not None:
            constants[known.limit] = known.limit_value
    if reshaped:
        for name in {*rewritten.types, *inner.open_ends}:
            declared = types.get(name) or inner.graph.value_types.get(name)
            if declared is not None:
                types[name] = without_dims(declared)
    # tensors that only removed nodes read become outputs, or are inputs no more
    lost = frozenset(name for name in inner.graph.nodes[inner.body.owner].inputs if not whole.readers.get(name))
    return cut(whole, range(len(whole.nodes)), types=types, constants=constants, shown=lost)


def _replaced(inner: Inner, rewritten: Rewritten, around: ModelProto) -> Graph:
    """Return a model, indexed, with the rewritten owner in the old one's place; ``around``: what the rest is."""
    graph, at = inner.graph, inner.body.owner
    model = copy_of(around)
    owner = model.graph.node[graph.positions[at]]
    owner.CopyFrom(rewritten.owner)
    if rewritten.function is not None:
        key = scopes.function_key(rewritten.function)
        old = next((one for one in model.functions if scopes.function_key(one) == key), None)
        (old if old is not None else model.functions.add()).CopyFrom(rewritten.function)
    gone = set(graph.protos[at].output) - set(owner.output)
    set_messages(model.graph.output, [value for value in model.graph.output if value.name not in gone])
    model.graph.output.extend(helper.make_value_info(name, found) for name, found in rewritten.types.items())
    old, outputs = graph.nodes[at], tuple(name for name in owner.output if name)
    nests = bool(scopes.subgraphs(owner))
    node = replace(old, op_type=owner.op_type, inputs=scopes.reads(owner), outputs=outputs, nests=nests)
    readers, producers = dict(graph.readers), dict(graph.producers)
    for name in {*old.inputs, *node.inputs}:
        others = {*readers.pop(name, ())} - {at}
        if found := others | {at} if name in node.inputs else others:
            readers[name] = tuple(sorted(found))
    for name in gone - {""}:  # nobody reads it
        del producers[name]
    producers.update((name, at) for name in node.outputs)
    above = tuple(sorted({producers[name] for name in node.inputs if name in producers}))
    return replace(
        graph,
        model=model,
        nodes=(*graph.nodes[:at], node, *graph.nodes[at + 1 :]),
        protos=(*graph.protos[:at], owner, *graph.protos[at + 1 :]),
        producers=producers,
        readers=readers,
        outputs=tuple(value.name for value in model.graph.output),
        parents=(*graph.parents[:at], above, *graph.parents[at + 1 :]),
        value_types={**graph.value_types, **rewritten.types},
    )


def _given_types(inner: Inner, known: Knowledge) -> dict[str, TypeProto]:
    """Return the types of the owner's outputs as its body has them: an owner that nobody could run has no others."""
    loop, repeated = inner.body.kind is Kind.LOOP, inner.body.kind in (Kind.LOOP, Kind.SCAN)
    carried = states(inner.graph, inner.body) if repeated else 0
    found = {}
    targets = inner.graph.protos[inner.body.owner].output
    for place, (target, made) in enumerate(zip(targets, inner.content.output[loop:])):  # noqa: B905 - some are omitted
        inside = known.inner.get(made.name)
        if inside is not None and repeated:
            tensor = inside.WhichOneof("value") == "tensor_type"
            inside = without_dims(inside) if place < carried else stacked_type(inside) if tensor else None
        if inside is not None:
            found[target] = inside
    return found
