"""The control: a model that computes nothing, which a check that can tell good from bad has to pass.

By default a lone Identity whose input and output are named unlike the model's, as those of most cuts are, with a value
of another shape. A check written by hand may feed the model's own inputs, or look for the model's own outputs with the
shape and values that they should have; that is no mistake, but it cannot judge every cut. Which of these it needs is
seen by controls that share them with the model: its inputs, its outputs, or both. A check that puts models through a
tool may fail on an Identity, which tools take out, so an Abs of a value that is not negative is a control as well. An
own output gets the value of an
own input of its type, or (``good``) the value that the reference recorded: a check with expected values of its own
passes on nothing else, while one that looks for a failure that the reference has too passes on the former alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import TensorProto, TypeProto, helper

from runner.model.graph.cut import NO_IDENTITY, Cut, shell
from runner.model.graph.edits import add_initializer
from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import NameSupply, names_of
from runner.model.nested.bodies import opset_of

# the first opset and IR version in which Identity takes a dtype (all others: from the start)
_IDENTITY = {
    16: (13, 4), 17: (19, 9), 18: (19, 9), 19: (19, 9), 20: (19, 9), 21: (21, 10), 22: (21, 10), 23: (23, 11),
    24: (24, 12), 25: (25, 13), 26: (25, 13),
}  # fmt: skip
# dtypes that Abs takes, where Identity does, from this opset on
_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 16)
_ABS_OPSET = 6
_STRUCTURES = {"sequence_type": (14, 3), "optional_type": (16, 3)}
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
    """Return a control of a model. ``types``: of its tensors. ``good``: recorded values of its outputs.

    The opset and IR version are the model's, raised only where Identity could not take the dtype otherwise.
    """
    inputs = {name: types[name] for name in graph.inputs if name in types} if form.inputs else {}
    fed = {name: found for name, found in inputs.items() if _has_identity(found)}
    outputs: dict[str, tuple[TypeProto, str | TensorProto]] = {}
    if form.outputs:
        for name in graph.outputs:
            wanted = types.get(name)
            if wanted is None or not _has_identity(wanted) or name in inputs:
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
        inputs = {supply.fresh("control_input"): other}
    if not outputs:
        held_on: str | TensorProto = _made_up(other) if form.inputs else next(iter(inputs))
        outputs = {supply.fresh("control_output"): (other, held_on)}
    made = _model(graph, inputs, outputs, form.operator, supply)
    return Control(made, {name: source for name, (_, source) in outputs.items()})


def takes_identity(graph: Graph, found: TypeProto) -> bool:
    """Whether an Identity of the model's own opset and IR version hands on values of this type."""
    kind = found.WhichOneof("value") or ""
    if not _has_identity(found) and kind not in _STRUCTURES:
        return False
    opset, ir_version = _STRUCTURES[kind] if kind in _STRUCTURES else _IDENTITY.get(_dtype(found), (1, 3))
    return (opset_of(graph) or 0) >= opset and graph.model.ir_version >= ir_version


def _model(
    graph: Graph,
    inputs: Mapping[str, TypeProto],
    outputs: Mapping[str, tuple[TypeProto, str | TensorProto]],
    operator: str,
    supply: NameSupply,
) -> Cut:
    model = shell(graph.model)
    opset = opset_of(graph)
    needed = [_IDENTITY.get(_dtype(found), (1, 3)) for found, _ in outputs.values()]
    model.opset_import.add(domain="", version=max(opset or 13, *(least for least, _ in needed)))
    model.ir_version = max(model.ir_version, *(least for _, least in needed))
    model.graph.input.extend(helper.make_value_info(name, found) for name, found in inputs.items())
    for place, (name, (found, source)) in enumerate(outputs.items()):
        fresh = supply.fresh(f"control_value{place}")
        read = source if isinstance(source, str) else fresh
        if isinstance(source, TensorProto):
            add_initializer(model, source, fresh)
        takes = _dtype(found) in _NUMBERS and model.opset_import[0].version >= _ABS_OPSET
        fitting = operator if takes else "Identity"
        # without a name: a check may look nodes up by name
        model.graph.node.append(helper.make_node(fitting, [read], [name]))
        model.graph.output.append(helper.make_value_info(name, found))
    return Cut(model, tuple(inputs), tuple(outputs), ())


def _other(graph: Graph, types: Mapping[str, TypeProto]) -> TypeProto:
    """A type as a cut could have it: the element type of the first output, in another shape.

    Its last dimension is no small one, so that it is rarely by chance that a check finds the label that it expects.
    """
    names = (*graph.outputs, *graph.inputs)
    found = next((types[name] for name in names if name in types and _has_identity(types[name])), None)
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


def _has_identity(found: TypeProto) -> bool:
    known = found.WhichOneof("value") == "tensor_type" and _dtype(found) in TensorProto.DataType.values()
    return known and _dtype(found) not in (0, *NO_IDENTITY)
