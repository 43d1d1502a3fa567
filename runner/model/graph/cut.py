"""Cutting a graph, removing what is unused, and the whole model with good values spliced in.

Cutting: a set of nodes becomes a model of its own, exactly these nodes in the file's order.

What the kept nodes read and do not produce comes from outside: as a constant where its value is given, else as a graph
input. The cost is that of the kept part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, defs, helper

from runner.model.graph import scopes
from runner.model.graph.edits import add_initializer, copy_of, set_messages
from runner.model.graph.graph_index import Graph, needed
from runner.model.graph.scopes import NameSupply, names_of
from runner.model.values.dtypes import BY_NUMBER
from runner.model.values.value_types import Structure, declares_type, structure_of

Expose = Literal["frontier", "sinks", "own", "all"]
# protobuf refuses 2 GiB; what is no tensor needs room as well
LARGEST_FILE = (1 << 31) - (64 << 20)
_PARTS = ("graph", "functions", "opset_import", "training_info")


class CutError(Exception):
    """No candidate can be made of these nodes; the message says why."""


def too_large(size: int) -> CutError:
    """Say that a candidate with ``size`` bytes of tensors in it cannot be written."""
    return CutError(
        f"the candidate would take {size / 2**30:.3g} GiB with the constants in it, and a model file has less than "
        "2 GiB; cut.policy=input feeds recorded values instead of writing them into candidates"
    )


@dataclass(frozen=True)
class Cut:
    """A candidate model, which shares nothing with the original.

    ``inputs``: what must be fed. ``outputs``: its graph outputs. ``constants``: which of the given constants it holds.
    """

    model: ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]


def cut(  # noqa: PLR0913 - all that decides a candidate
    graph: Graph,
    keep: Collection[int],
    *,
    types: Mapping[str, TypeProto],
    constants: Mapping[str, TensorProto],
    expose: Expose = "frontier",
    keep_inputs: bool = False,
    front: Sequence[NodeProto] = (),
    shown: Collection[str] = (),
    carried: Collection[int] = (),
) -> Cut:
    """Return the model of the kept nodes.

    ``types``: of tensors, by name (what the file declares is used where there is none). ``constants``: values from
    outside that the candidate holds itself.
    ``expose``: ``frontier``: what the rest of the model or its caller reads; ``sinks``: of these, what no kept node
    reads; where that is nothing, the first output of each node that nobody reads. ``own``: the model's own outputs
    alone; ``all``: every output of every kept node, without a type where none is known.
    ``keep_inputs``: the model's own inputs stay, read or not. ``front``: nodes that are not the model's, which come
    before the kept ones and whose outputs are the candidate's. ``shown``: further outputs of kept nodes. ``carried``:
    elements that come along, and hand out nothing, where a kept one needs what they give.
    Raises CutError where there is nothing to keep, or a value from outside has no known type.
    """
    asked = sorted(set(keep))
    if not asked and not front:
        raise CutError("no node is kept")
    kept = {*asked, *needed(graph, asked, carried)}
    indices = sorted(kept)
    first = [name for node in front for name in node.output]
    given = set(first)
    read = [name for node in front for name in node.input if graph.producers.get(name) not in kept]
    read += [name for index in indices for name in graph.nodes[index].inputs if graph.producers.get(name) not in kept]
    outside = [name for name in dict.fromkeys(read) if name not in given]

    model = shell(graph.model)
    model.graph.node.extend(front)
    lowered = {name: graph.carried[name] for name in outside if name in graph.carried}
    placed = {**dict(lowered.values()), **{graph.positions[index]: graph.protos[index] for index in indices}}
    model.graph.node.extend([placed[position] for position in sorted(placed)])
    weights, fed, held = [], [], []
    for name in outside:
        if name in graph.initializers:
            weights.append(graph.initializers[name])
            # an initializer that is also a graph input can be overridden, and runtimes do not fold it: it stays so
            if name in graph.overridable:
                model.graph.input.append(graph.overridable[name])
        elif name in lowered:
            continue
        elif name in constants:
            held.append(name)
            weights.append(_constant(model, constants[name], name))
        else:
            fed.append(name)
    # all at once: each call of protobuf takes longer than to copy a small weight
    model.graph.sparse_initializer.extend(one for one in weights if isinstance(one, SparseTensorProto))
    model.graph.initializer.extend(one for one in weights if not isinstance(one, SparseTensorProto))
    if keep_inputs:
        fed = list(dict.fromkeys([*fed, *(name for name in graph.inputs if name in graph.value_types)]))
    # the caller's own inputs first, as the caller knows them, then the cut ones in order of first use
    last = len(graph.inputs)
    fed.sort(key=lambda name: graph.input_order.get(name, last))
    model.graph.input.extend(_input(graph, types, name) for name in fed)

    outputs = exposed(graph, asked, expose, first, shown)
    if not outputs:
        raise CutError("the kept nodes have no outputs")
    model.graph.output.extend(_output(graph, types, name) for name in outputs)
    shown = set(outputs)
    made = [name for index in indices for name in graph.nodes[index].outputs]
    # what comes in decides about what comes of it: where the file declares another shape, both cannot be
    stale = any(_contradicts(types.get(name), graph.value_types.get(name)) for name in outside)
    declared = (graph.value_info[name] for name in made if name in graph.value_info and name not in shown)
    model.graph.value_info.extend(
        one for one in declared if not (stale and _contradicts(types.get(one.name), one.type))
    )
    present = {*made, *first, *outside}
    for annotation in graph.model.graph.quantization_annotation:
        names = [annotation.tensor_name, *(entry.value for entry in annotation.quant_parameter_tensor_names)]
        if present.issuperset(names):
            model.graph.quantization_annotation.append(annotation)
    _add_functions_and_opsets(model, graph, indices)
    return Cut(model, tuple(fed), tuple(outputs), tuple(held))


def whole(graph: Graph) -> Cut:
    """Return the original as a candidate: all its nodes, its own inputs and outputs in their order."""
    model = copy_of(graph.model)
    model.ClearField("training_info")
    return Cut(model, graph.inputs, graph.outputs, ())


def _type_of(graph: Graph, types: Mapping[str, TypeProto], name: str) -> TypeProto | None:
    """Return the type of a tensor, the given one before the declared one; None where neither says what it is."""
    known = (found for source in (types, graph.value_types) if (found := source.get(name)) is not None)
    return next((found for found in known if declares_type(found)), None)


def _contradicts(known: TypeProto | None, declared: TypeProto | None) -> bool:
    """Whether two types of one tensor cannot both be right."""
    if known is None or declared is None:
        return False
    shapes = [one.tensor_type.shape.dim for one in (known, declared) if one.tensor_type.HasField("shape")]
    if len(shapes) < 2 or len(shapes[0]) != len(shapes[1]):
        return len(shapes) == 2
    both = zip(*shapes, strict=True)
    return any(a.HasField("dim_value") and b.HasField("dim_value") and a.dim_value != b.dim_value for a, b in both)


def _input(graph: Graph, types: Mapping[str, TypeProto], name: str) -> object:
    """Return the value info of a graph input. Raises CutError where the type is unknown."""
    found = _type_of(graph, types, name)
    if found is None:
        known = name in graph.producers or name in graph.input_order
        raise CutError(
            f"the type of tensor {name!r} is not known" if known else f"no node and no input gives tensor {name!r}"
        )
    return helper.make_value_info(name, found)


def _output(graph: Graph, types: Mapping[str, TypeProto], name: str) -> object:
    """Return the value info of a graph output, bare where the type is unknown."""
    found = _type_of(graph, types, name)
    return helper.make_value_info(name, found) if found is not None else helper.make_empty_tensor_value_info(name)


def shell(source: ModelProto) -> ModelProto:
    """Return a model with the original's metadata and an empty graph."""
    kept = {field.name: value for field, value in source.ListFields() if field.name not in _PARTS}
    return ModelProto(**kept, graph=GraphProto(name=source.graph.name or "graph", doc_string=source.graph.doc_string))


def _constant(model: ModelProto, value: TensorProto, name: str) -> TensorProto:
    """Return a value as an initializer of this name; before IR version 4 each is listed as an input too."""
    if model.ir_version < 4:
        model.graph.input.append(helper.make_tensor_value_info(name, value.data_type, list(value.dims)))
    if value.name == name:
        return value
    renamed = copy_of(value)
    renamed.name = name
    return renamed


def exposed(
    graph: Graph, indices: Sequence[int], expose: Expose, first: Iterable[str] = (), shown: Collection[str] = ()
) -> list[str]:
    """Return the outputs: first those that the original hands out, in its order, then the others as nodes stand."""
    names, kept = dict.fromkeys(first), set(indices)
    unread: list[str] = []
    for node in (graph.nodes[index] for index in indices):
        readers = {name: graph.readers.get(name, ()) for name in node.outputs}
        found = [
            name
            for name in node.outputs
            if expose == "all"
            or name in graph.output_set
            or name in shown
            or (expose != "own" and not kept.issuperset(readers[name]))
        ]
        if expose != "own" and not found and not any(readers.values()):
            unread += node.outputs[:1]
        names.update((name, None) for name in found if expose != "sinks" or kept.isdisjoint(readers[name]))
    names = names or dict.fromkeys(unread)
    last = len(graph.outputs)
    return sorted(names, key=lambda name: graph.output_order.get(name, last))


def _add_functions_and_opsets(model: ModelProto, graph: Graph, indices: list[int]) -> None:
    """Add the functions that the kept nodes call, through others too, and the opset imports of all of these."""
    used: set[str] = set().union(*set(map(graph.domains.__getitem__, indices)))
    called = graph.called(graph.protos[index] for index in indices)
    functions = [function for key, function in graph.functions.items() if key in called]
    used.update(scopes.domain_of(entry.domain) for function in functions for entry in function.opset_import)
    model.functions.extend(functions)
    for entry in graph.model.opset_import:
        # the default domain stays: runtimes insert its operators on their own
        if not scopes.domain_of(entry.domain) or scopes.domain_of(entry.domain) in used:
            model.opset_import.append(entry)


# Removing outputs, dead nodes, unused initializers and stale value_info from a graph; the rest keeps its order.


def remove_dead_nodes(graph: GraphProto) -> int:
    """Remove the nodes that no graph output depends on, and return how many there were."""
    needed = {value.name for value in graph.output}
    dead = []
    for at in reversed(range(len(graph.node))):
        node = graph.node[at]
        if needed.intersection(node.output):
            needed.update(scopes.reads(node))
        else:
            dead.append(at)
    remove_nodes(graph, dead)
    return len(dead)


def remove_nodes(graph: GraphProto, places: Iterable[int]) -> None:
    """Remove nodes by their places in the file."""
    for at in sorted(places, reverse=True):
        del graph.node[at]


def remove_unused_initializers(graph: GraphProto, among: Iterable[str] | None = None) -> int:
    """Remove the initializers (``among`` these names only, if given) that nothing reads; return how many there were.

    Those that are graph inputs or outputs too are part of the model's face and stay.
    """
    used = {name for node in graph.node for name in scopes.reads(node)}
    used.update(value.name for group in (graph.input, graph.output) for value in group)
    names = None if among is None else set(among)
    dense = [tensor.name for tensor in graph.initializer]
    sparse = [tensor.values.name for tensor in graph.sparse_initializer]
    count = 0
    for group, held in ((graph.initializer, dense), (graph.sparse_initializer, sparse)):
        for at in reversed(range(len(held))):
            if held[at] not in used and (names is None or held[at] in names):
                del group[at]
                count += 1
    return count


def remove_stale_value_info(graph: GraphProto) -> None:
    """Remove what is said about tensors that are not there."""
    there = {value.name for group in (graph.input, graph.output) for value in group}
    there.update(name for node in graph.node for name in (*node.input, *node.output))
    for at in reversed([at for at, value in enumerate(graph.value_info) if value.name not in there]):
        del graph.value_info[at]


def with_outputs(made: Cut, names: Collection[str], why: str = "which is infinite on purpose") -> Cut:
    """Return a cut with these of its outputs alone. Raises CutError where it has none of them; ``why``: they go."""
    kept = tuple(name for name in made.outputs if name in names)
    if not kept:
        raise CutError(f"it hands out nothing but {', '.join(made.outputs)}, {why}")
    set_messages(made.model.graph.output, [value for value in made.model.graph.output if value.name in names])
    return replace(made, outputs=kept)


# The whole model with good values in place of what some of its nodes give, judged at its own outputs.
#
# So the model is asked, not a part of it: without some nodes, whether it still fails; and with nothing but some nodes
# and what depends on them, whether it fails because of these.


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


# The control: a model that computes nothing, which a check that can tell good from bad has to pass.
#
# By default a lone Identity whose input and output are named unlike the model's, as those of most cuts are, with a
# value of another shape. A check written by hand may feed the model's own inputs, or look for the model's own outputs
# with the shape and values that they should have; that is no mistake, but it cannot judge every cut. Which of these it
# needs is seen by controls that share them with the model: its inputs, its outputs, or both. A check that puts models
# through a tool may fail on an Identity, which tools take out, so an Abs of a value that is not negative is a control
# as well. An own output gets the value of an own input of its type, or (``good``) the value that the reference
# recorded: a check with expected values of its own passes on nothing else, while one that looks for a failure that the
# reference has too passes on the former alone.

_OPSET = 13  # of a model that imports none
_FORMS = {"sequence": "seq", "optional": "optional"}
_MOST_ELEMENTS = 1 << 16  # of a value that is made up


@dataclass(frozen=True)
class Form:
    """What a control shares with the model: its own inputs, its own outputs; ``good``: with their recorded values.

    ``operator``: of its node, where the element type allows it; it hands on what it gets.
    """

    inputs: bool = False
    outputs: bool = False
    good: bool = False
    operator: str = "Identity"

    def __str__(self) -> str:
        mine = " and ".join(name for name in ("inputs", "outputs") if getattr(self, name))
        if not mine:
            return f"a lone {self.operator}"
        return f"an Identity with the model's own {mine}" + (", which hold their recorded values" if self.good else "")


@dataclass(frozen=True)
class Control:
    """A control. ``given``: for each output, the input that it hands on, or the value that it holds."""

    cut: Cut
    given: Mapping[str, str | TensorProto]


def control(graph: Graph, types: Mapping[str, TypeProto], form: Form, good: Mapping[str, TensorProto]) -> Control:
    """Return a control of a model. ``types``: of its tensors. ``good``: recorded values of its outputs."""
    inputs = {name: types[name] for name in graph.inputs if name in types} if form.inputs else {}
    fed = {name: found for name, found in inputs.items() if _handed_on(graph, found)}
    outputs: dict[str, tuple[TypeProto, str | TensorProto]] = {}
    if form.outputs:
        for name in graph.outputs:
            wanted = types.get(name)
            if wanted is None or not _handed_on(graph, wanted) or name in inputs:
                continue
            like = next((one for one, found in fed.items() if _dtype(found) == _dtype(wanted)), None)
            if like is None or (form.good and name in good):
                if name not in good and math.prod(_sizes(wanted)) > _MOST_ELEMENTS:
                    continue
                held = good[name] if name in good else _made_up(wanted)
                outputs[name] = (helper.make_tensor_type_proto(held.data_type, list(held.dims)), held)
            else:
                outputs[name] = (fed[like], like)
    other, supply = _other(graph, types), NameSupply(names_of(graph.model))
    if not inputs:
        inputs = {supply.fresh("input_of_a_harmless_model"): other}
    if not outputs:
        held_on: str | TensorProto = _made_up(other) if form.inputs else next(iter(inputs))
        outputs = {supply.fresh("output_of_a_harmless_model"): (other, held_on)}
    model = shell(graph.model)
    model.opset_import.add(domain="", version=graph.opset() or _OPSET)
    model.graph.input.extend(helper.make_value_info(name, found) for name, found in inputs.items())
    for place, (name, (found, source)) in enumerate(outputs.items()):
        fresh = supply.fresh(f"control_value{place}")
        if isinstance(source, TensorProto):
            add_initializer(model, source, fresh)
        operator = form.operator if takes(graph, form.operator, found) else "Identity"
        # without a name: a check may look nodes up by name
        model.graph.node.add(op_type=operator, input=[source if isinstance(source, str) else fresh], output=[name])
        model.graph.output.append(helper.make_value_info(name, found))
    made = Cut(model, tuple(inputs), tuple(outputs), ())
    return Control(made, {name: source for name, (_, source) in outputs.items()})


def takes(graph: Graph, operator: str, found: TypeProto) -> bool:
    """Whether an operator of ONNX takes values of this type as its first input, in the model's opset."""
    structure = structure_of(found)
    known = defs.get_schema(operator, graph.opset() or _OPSET).inputs[0].types
    return structure is not None and _name_of(structure) in known


def _name_of(structure: Structure) -> str:
    form, inner = structure[0], structure[-1]
    if form == "tensor":
        return f"tensor({BY_NUMBER[inner].name})" if inner in BY_NUMBER else ""
    return f"{_FORMS.get(form)}({_name_of(inner)})"


def _other(graph: Graph, types: Mapping[str, TypeProto]) -> TypeProto:
    """A type as a cut could have it: the element type of the first output, in another shape.

    Its last dimension is no small one, so that it is rarely by chance that a check finds the label that it expects.
    """
    names = (*graph.outputs, *graph.inputs)
    found = next((types[name] for name in names if name in types and _handed_on(graph, types[name])), None)
    if found is None:
        return helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    sizes = _sizes(found) or [1]
    before = sizes[:-1] if math.prod(sizes[:-1]) <= _MOST_ELEMENTS else [1] * (len(sizes) - 1)
    return helper.make_tensor_type_proto(_dtype(found), [*before, 5 if sizes[-1] == 7 else 7])


def _made_up(found: TypeProto) -> TensorProto:
    """A tensor of this type, of real numbers from 1 to 2 (the largest is the last), of ones, or of empty texts."""
    sizes = _sizes(found)
    count = math.prod(sizes)
    if _dtype(found) == TensorProto.STRING:
        return helper.make_tensor("", TensorProto.STRING, sizes, [b""] * count)
    real = _dtype(found) in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    rising = [1 + (place + 1) / count if real else 1 for place in range(count)]
    return helper.make_tensor("", _dtype(found), sizes, rising)


def _sizes(found: TypeProto) -> list[int]:
    return [dim.dim_value or 1 for dim in found.tensor_type.shape.dim]


def _dtype(found: TypeProto) -> int:
    return int(found.tensor_type.elem_type)


def _handed_on(graph: Graph, found: TypeProto) -> bool:
    return _dtype(found) != 0 and takes(graph, "Identity", found)
