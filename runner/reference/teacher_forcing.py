"""Teacher forcing: a model of which every node is given good values.

What it then makes says whether a node is right, whatever is upstream. Tensors with a good value become inputs of the
model, and what their nodes make gets another name. One run of that model shows all nodes side by side (after Williams
and Zipser, 1989). What comes out right then says, too, which tensors without a partner hold what can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ValueInfoProto

from runner.model.files.candidate_store import Store
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.graph_index import Graph, needed
from runner.model.graph.scopes import NameSupply, names_of
from runner.model.values import recorded
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.reference.fingerprints import Weights, agree, print_of
from runner.reference.quantized import Reading, readings
from runner.reference.recording import Recorded
from runner.reference.tensor_pairs import TAKES_A_PART

Samples = tuple[Mapping[str, TensorFile], ...]
Record = Callable[[Graph, Store, Path, Sequence[Mapping[str, TensorFile]]], Recorded]
"""Runs a graph with weights of a store, all tensors shown; what it writes goes into the folder."""


@dataclass(frozen=True, eq=False)
class RecordedModel:
    """A model and what its tensors held when it ran as a whole."""

    graph: Graph
    store: Store
    values: Samples


@dataclass(frozen=True, eq=False)
class ForcedRun:
    """One run of a model on good values.

    ``good``: these. ``unfit``: those of them that must not be fed. ``made``: what each node makes of them.
    """

    good: Samples
    unfit: Mapping[str, str]
    made: Samples


@dataclass(frozen=True, eq=False)
class Forced:
    """``made``: what a tensor with a good value is called where its own node makes it, by its name."""

    graph: Graph
    made: dict[str, str]


def forced(graph: Graph, given: Collection[str]) -> Forced:
    """Return the model with the tensors ``given`` as inputs, initializers too."""
    model = copy_of(graph.model)
    supply = NameSupply(names_of(model))
    made = {name: supply.fresh(f"{name}/made") for name in graph.producers if name in given}
    for node in model.graph.node:
        node.output[:] = [made.get(name, name) for name in node.output]
    model.graph.input.extend(ValueInfoProto(name=name) for name in made)
    weights = {name for name in graph.initializers if name in given}
    if weights:
        set_messages(model.graph.initializer, [one for one in model.graph.initializer if one.name not in weights])
        model.graph.input.extend(ValueInfoProto(name=name) for name in weights - {*graph.overridable})
    for values in (model.graph.value_info, model.graph.output):
        set_messages(values, [value for value in values if value.name not in made])
    return Forced(Graph.of(model), made)


def only(one_of_each: Forced, ends: Collection[str]) -> Forced:
    """Return of such a model what makes these tensors, and nothing else."""
    graph, made = one_of_each.graph, one_of_each.made
    last = {graph.producers[made.get(name, name)] for name in ends}
    kept = needed(graph, last) | last
    gone = {name for node in graph.nodes if node.index not in kept for name in node.outputs}
    model = copy_of(graph.model)
    set_messages(model.graph.node, [node for node in model.graph.node if gone.isdisjoint(node.output)])
    set_messages(model.graph.output, [value for value in model.graph.output if value.name not in gone])
    read = {name for index in kept for name in graph.nodes[index].inputs}
    set_messages(model.graph.input, [value for value in model.graph.input if value.name in read])
    return Forced(Graph.of(model), made)


def made_of(record: Record, one_of_each: Forced, store: Store, folder: Path, good: Samples) -> Samples:
    """Return what the nodes of a model make of good values, by the tensor's own name."""
    graph, names = one_of_each.graph, {own: name for name, own in one_of_each.made.items()}
    found = record(graph, store, folder, good).values
    return tuple({names.get(own, own): sample[own] for own in graph.producers if own in sample} for sample in found)


def everywhere(samples: Samples) -> frozenset[str]:
    """Return the tensors that have a value in every sample."""
    return frozenset(samples[0]).intersection(*samples[1:]) if samples else frozenset()


def doubtful(graph: Graph, partnered: Collection[str], right: Collection[str]) -> tuple[str, ...]:
    """Return the tensors without a partner on which something wrong depends and nothing that is right, in order.

    A part of a tensor that is right says nothing of a part that is wrong. ``partnered``: the tensors with a partner.
    ``right``: those of them that come out right on good values.
    """
    fine, bad = {*right}, {*partnered} - {*right}
    for node in reversed(graph.nodes):
        for name in node.outputs:
            if name in partnered:
                continue
            readers = [graph.nodes[index] for index in graph.readers.get(name, ())]
            whole = (reader for reader in readers if reader.op_type not in TAKES_A_PART)
            if any(out in fine for reader in whole for out in reader.outputs):
                fine.add(name)
            elif any(out in bad for reader in readers for out in reader.outputs):
                bad.add(name)
            elif any(out in fine for reader in readers for out in reader.outputs):
                fine.add(name)
    bad -= {*partnered}
    return tuple(name for node in graph.nodes for name in node.outputs if name in bad)


def restored(
    graph: Graph,
    name: str,
    good: Sequence[Mapping[str, TensorFile]],
    made: Sequence[Mapping[str, TensorFile]],
    weights: Weights,
) -> bool:
    """Whether ``name`` is what a node that quantizes makes of a good value, which its scale and zero point give back.

    Or they give the good value of what reads it: integers that end at 0 may do the work of a Relu. False where that
    cannot be said: another operator, no good value.
    """
    proto = graph.protos[graph.producers[name]]
    told = readings(proto, {}, weights.array).get(name, []) if proto.op_type == "QuantizeLinear" else []
    if not told and proto.op_type != "DynamicQuantizeLinear":
        return False
    ends = {proto.input[0], *graph.made_of(name)}
    for before, after in zip(good, made, strict=True):
        if not after.keys() >= {*proto.output}:
            return False
        steps, *beside = (recorded.read(after[one]) for one in proto.output)
        reading = Reading(*beside) if beside else told[0]
        back, kind = reading.floats(steps), FLOATS.get(after[proto.output[0]].dtype)
        rounding = 2.0**-kind.digits if kind else 0.0  # of 8 bits it is more than what tells two tensors apart
        held = (print_of([recorded.read(before[end])]) for end in ends if end in before)
        if not any(agree(print_of([back]), one, rounding) for one in held):
            return False
    return True
