"""From a loaded model to everything that a precision search needs: types, weights in both precisions, samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from runner.candidate import Sample
from runner.errors import NotApplicable, UsageError
from runner.jobs.precision.layers import (
    Ends,
    Layer,
    Pair,
    contrib_of,
    layers,
    levels,
    pairs_of,
    quantized_layers,
    readers,
)
from runner.jobs.precision.mixer import Mixer, Weights
from runner.jobs.precision.weights import convert as convert_values
from runner.model.graph import scopes
from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import graphs_below, initializers
from runner.model.values import tensor_bytes
from runner.model.values.recorded import TensorFile
from runner.reference.good_values import UnfitError
from runner.reference.good_values import cast as convert
from runner.reference.load import Loaded
from runner.reference.models import recording_backend
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.root import Settings
from runner.schema.strategy import FloatType, PrecisionSettings
from runner.text import listed
from runner.workers.pool import Pool, limited, operate

# Weights and limits that raised layers get back: from the parent where one is given, else from what is stored.

Worked = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Calls an operation in a worker."""

_ACTIVATIONS = ("Relu", "Clip")
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


@dataclass(frozen=True)
class Lost:
    """A weight that is stored with fewer digits than a raised layer wants.

    ``number``: of its graph. ``name``: of the initializer, or of what a DequantizeLinear makes of it. ``parents``: the
    parent's initializers that may be what it was.
    """

    number: int
    name: str
    quantized: bool
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Restored:
    """``table``: (number of the graph, name) -> the weight in the high type. ``warnings``: where it comes from.

    ``ends``: what the parent says that a tensor is limited to where a pair goes, see `Mixer`.
    """

    table: dict[tuple[int, str], TensorProto]
    warnings: tuple[str, ...]
    has_pairs: bool
    ends: dict[tuple[int, str], Ends] = field(default_factory=dict)

    def weight(self, number: int, name: str, dtype: int) -> TensorProto:
        """Return what a DequantizeLinear of a constant makes."""
        return self.table[number, name]


class Parent:
    """A parent's nodes and weights, nested ones included, as far as a child's nodes are known to make the same."""

    def __init__(self, loaded: Loaded) -> None:
        inherited = loaded.inherited
        self.store = inherited.parent.store.structure if inherited else None
        self._origins: Mapping[str, str] = inherited.origins if inherited else {}
        self._nodes: dict[str, NodeProto] = {}
        self._makers: dict[str, NodeProto] = {}
        self._constants: dict[str, TensorProto] = {}
        if self.store is None:
            return
        graph = Graph.load(self.store)
        # as reports name them: a nameless node is called what it makes
        named = {name: node.name for node in graph.nodes for name in node.outputs}
        for nested in scopes.graphs_below(graph.model.graph):
            self._constants.update({tensor.name: tensor for tensor in nested.initializer})
            for node in nested.node:
                for name in node.output:
                    self._makers[name] = node
                    self._nodes.setdefault(named.get(name) or node.name or name, node)

    def read(self, reading: tuple[NodeProto, int] | None) -> Iterator[str]:
        """Yield what the parent's node reads at the place where a node of the child does."""
        if reading is None:
            return
        node, place = reading
        own = node.name or next(iter(node.output), "")
        for name in (self._origins.get(own), own):
            found = self._nodes.get(name or "")
            if found is not None and found.op_type in _ACTIVATIONS and found.op_type != node.op_type:
                # the quantizer merged the activation into the node before it: compare with that node
                found = self._makers.get(found.input[0])
            if found is not None and found.op_type == node.op_type and place < len(found.input):
                yield found.input[place]

    def weights(self, names: Iterator[str], stored: TensorProto) -> tuple[str, ...]:
        """Return those of the names that are float initializers of a fitting shape."""
        dims = list(stored.dims)
        return tuple(
            name
            for name in dict.fromkeys(names)
            if name in self._constants
            and self._constants[name].data_type in _FLOATS
            and list(self._constants[name].dims) in (dims, dims[::-1])
        )

    def ends(self, read: Iterator[str], maker: NodeProto | None) -> Ends | None:
        """Return what the parent limits a tensor to where the child's pair does; None: it does not tell."""
        name = next(read, None)
        if name is None:
            return None
        node = self._makers.get(name)
        if node is None or node.op_type not in _ACTIVATIONS or (maker is not None and maker.op_type == node.op_type):
            return None, None
        if node.op_type == "Relu":
            return 0.0, None
        given = {attribute.name: attribute.f for attribute in node.attribute}
        least, largest = (self._limit(node, place, given.get(key)) for place, key in ((1, "min"), (2, "max")))
        return least, largest

    def _limit(self, node: NodeProto, place: int, attribute: float | None) -> float | None:
        name = node.input[place] if place < len(node.input) else ""
        tensor = self._constants.get(name)
        if tensor is None or tensor_bytes.is_external(tensor):
            return attribute
        return float(numpy_helper.to_array(tensor).reshape(-1)[0])


def restore(worked: Worked, model: ModelProto, typed: Path, loaded: Loaded, pair: Pair) -> Restored:
    """Make the weights that raised layers get."""
    parent = Parent(loaded)
    pairs = pairs_of(model.graph)
    graphs = list(scopes.graphs_below(model.graph))
    lost, ends = [], {}
    for number, graph in enumerate(graphs):
        lost += [
            Lost(number, tensor.name, False, parent.weights(iter([tensor.name]), tensor))
            for tensor in graph.initializer
            if tensor.data_type == pair.low != pair.high
        ]
        reading = readers(graph, pairs[number])
        makers = {name: node for node in graph.node for name in node.output}
        for name, found in pairs[number].items():
            if found.constant is not None:
                own = found.constant.name.removesuffix("_quantized")
                names = iter([*parent.read(reading.get(name)), own])
                lost.append(Lost(number, name, True, parent.weights(names, found.constant)))
            elif (told := parent.ends(parent.read(reading.get(name)), makers.get(found.source or ""))) is not None:
                ends[number, name] = told
    wanted = [one for one in lost if one.quantized or one.parents]
    if not wanted:
        return Restored({}, (), any(pairs), ends)
    out = typed.parent / "restored.onnx"
    args = {
        "model": str(typed),
        "parent": str(parent.store) if parent.store else None,
        "weights": [[one.number, one.name, list(one.parents)] for one in wanted],
        "target": pair.high,
        "out": str(out),
    }
    told_of = worked("restore_weights", args)
    made = ModelProto.FromString(out.read_bytes())
    tensors = {tensor.name: tensor for tensor in made.graph.initializer}
    taken, strangers = ({(number, name) for number, name in told_of[key]} for key in ("taken", "strangers"))
    table = {
        (one.number, one.name): tensors[f"{one.number}/{one.name}"]
        for one in wanted
        if one.quantized or (one.number, one.name) in taken
    }
    return Restored(table, tuple(_said(wanted, taken, strangers, parent.store is not None)), any(pairs), ends)


def _said(
    lost: list[Lost], taken: set[tuple[int, str]], strangers: set[tuple[int, str]], has_parent: bool
) -> Iterator[str]:
    if taken:
        yield f"raised layers get {len(taken)} weights from reference.model ({_named(taken)})"
    if strangers:
        yield (
            f"{len(strangers)} weights of reference.model are not what is stored here ({_named(strangers)}), so they "
            "are not taken: is it the model that this one was made of?"
        )
    rounded = {(one.number, one.name) for one in lost if one.quantized} - taken
    if rounded:
        advice = "" if has_parent else "; give the original as reference.model="
        yield (
            f"{len(rounded)} quantized weights ({_named(rounded)}) are dequantized for raised layers, which so keep "
            f"their rounding{advice}"
        )


def _named(found: set[tuple[int, str]]) -> str:
    return listed([name for _, name in sorted(found)])


DTYPES = {
    FloatType.float32: TensorProto.FLOAT,
    FloatType.float16: TensorProto.FLOAT16,
    FloatType.bfloat16: TensorProto.BFLOAT16,
}


@dataclass(frozen=True)
class PrecisionModel:
    """``clamped`` / ``flushed``: initializers with values that the low type does not reach, and how many.

    ``lifted``: single numbers that were too small, which become the least that the type has.
    ``quantized``: Q/DQ pairs are all that makes the difference. ``inlined``: where nodes come from that were in a
    function, by their first output.
    """

    mixer: Mixer
    pair: Pair
    clamped: Mapping[str, int]
    flushed: Mapping[str, int]
    warnings: tuple[str, ...]
    quantized: bool = False
    inlined: Mapping[str, str] = field(default_factory=dict)
    lifted: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_lossy(self) -> bool:
        """Whether the model itself, as it is, has less than the high precision."""
        model = self.mixer.model
        low = any(tensor.data_type == self.pair.low != self.pair.high for tensor in initializers(model))
        return low or self.mixer.restored is not None

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The elements."""
        return self.mixer.layers


def pair_of(strategy: PrecisionSettings) -> Pair:
    """Return the two types, which are one where only Q/DQ pairs make the difference.

    Raises UsageError if they are one otherwise, or the low one is the wider.
    """
    low, high = strategy.low, strategy.high
    if low is high or low is FloatType.float32 or high is FloatType.quantized or high.is_made:
        raise UsageError(
            f"strategy.low={low.value} strategy.high={high.value}: the low precision must be narrower than the high "
            "one: low is float16, bfloat16, quantized (Q/DQ pairs as they are) or what a float model is quantized to "
            "(int8, int4, fp8), high float32 (or another float type)"
        )
    return Pair(DTYPES[high if low is FloatType.quantized else low], DTYPES[high])


def cast(settings: Settings, strategy: PrecisionSettings, loaded: Loaded, pool: Pool) -> PrecisionModel:
    """Find the layers, and make the weights in the other type. Raises NotApplicable for a model without any."""
    pair, store = pair_of(strategy), loaded.store
    typed = store.folder / "typed.onnx"
    told = _contrib(settings, pool, store.structure)
    worked = partial(_worked, pool, settings)
    reply = worked("prepare_cast", {"model": str(store.structure), "out": str(typed), "contrib": told})
    model = onnx.ModelProto.FromString(typed.read_bytes())
    model.ir_version = max(model.ir_version, 4)  # initializers need not be inputs from there on
    types = {**loaded.types, **loaded.recorded.types}
    contrib = contrib_of(told)
    found = layers(model, types, pair, contrib)
    restored = restore(worked, model, typed, loaded, pair)
    quantized = strategy.low is FloatType.quantized
    if quantized:
        found = quantized_layers(model, found)
    if not found:
        raise NotApplicable(_nothing(settings, strategy, quantized, model, types))
    warnings = [reply["warning"]] if reply["warning"] else []
    weights, lost = _weights(worked, typed, pair, restored)
    pairs = restored.weight if restored.has_pairs else None
    mixer = Mixer(model, types, found, pair, weights, strategy.keep_io, pairs, restored.ends, contrib)
    warnings += [*_overridden(model, pair)]
    clamped = {**lost["clamped"], **_filled(model, pair)}
    warned = (*warnings, *restored.warnings)
    return PrecisionModel(mixer, pair, clamped, lost["flushed"], warned, quantized, reply["inlined"], lost["lifted"])


def _contrib(settings: Settings, pool: Pool, structure: Path) -> list[dict[str, Any]]:
    """Return what ONNX Runtime tells of operators that ONNX does not define; nothing where it does not."""
    backend = recording_backend(settings)
    python = backend.python if isinstance(backend, OnnxRuntimeBackend) else None
    reply = limited(pool, settings, "contrib_schemas", {"model": str(structure)}, python=python)
    return list(reply.value["schemas"]) if reply.value is not None else []


def _overridden(model: onnx.ModelProto, pair: Pair) -> Iterator[str]:
    """Say which inputs with a default are inputs no more."""
    defaults = {tensor.name for tensor in model.graph.initializer if tensor.data_type in pair}
    if names := [value.name for value in model.graph.input if value.name in defaults]:
        yield f"inputs with a default become weights, which nobody can override any more: {listed(names)}"


def _filled(model: onnx.ModelProto, pair: Pair) -> dict[str, int]:
    """Return the nodes that fill tensors with a value beyond the range of the low type, which is clamped."""
    found = {}
    for graph in graphs_below(model.graph):
        for node in graph.node:
            for attribute in node.attribute:
                tensor = attribute.t
                if attribute.name == "value" and tensor.data_type == pair.high != pair.low:
                    _, (beyond, _) = convert_values(numpy_helper.to_array(tensor), pair.low)
                    if beyond:
                        found[node.output[0]] = beyond
    return found


def _nothing(
    settings: Settings, strategy: PrecisionSettings, quantized: bool, model: onnx.ModelProto, types: Any
) -> str:
    if quantized and any(pairs_of(model.graph)):
        return (
            f"model={settings.model} strategy.low=quantized strategy.high={strategy.high.value}: no node in that type "
            "reads a Q/DQ pair; name the type that the model's floats have: strategy.high=float16"
        )
    if quantized:
        return (
            f"model={settings.model} strategy.low=quantized: no float node of it reads a QuantizeLinear - "
            "DequantizeLinear pair, so there is nothing to raise; strategy.low=float16 converts a model without pairs"
        )
    names = {number: name.value for name, number in DTYPES.items()}
    there = sorted({names[dtype] for level in levels(model, types) for dtype in level.types.values() if dtype in names})
    return (
        f"model={settings.model}: no node of it can run in both {strategy.low.value} and {strategy.high.value}. Its "
        f"float tensors are {' and '.join(there) or 'none of these'}; nodes of other operators, or of an opset in "
        "which they do not know both types, stay as they are"
    )


def _weights(worked: Worked, typed: Path, pair: Pair, restored: Restored) -> tuple[Weights, dict[str, dict[str, int]]]:
    """Convert the initializers of each type of the pair to the other one; return what gives them, and the counts."""
    tables: dict[tuple[str, int], TensorProto] = {}
    lost: dict[str, dict[str, int]] = {"clamped": {}, "flushed": {}, "lifted": {}}
    for source, target in ((pair.high, pair.low), (pair.low, pair.high)) if pair.low != pair.high else ():
        out = typed.with_name(f"weights-{target}.onnx")
        args = {"model": str(typed), "source": source, "target": target, "out": str(out)}
        counted = worked("convert_weights", args)
        made = onnx.ModelProto.FromString(out.read_bytes())
        tables |= {(tensor.name, target): tensor for tensor in made.graph.initializer}
        if target == pair.low:
            lost = counted
    # the parent's weights are better than those converted back
    tables |= {(f"{number}/{name}", pair.high): tensor for (number, name), tensor in restored.table.items()}
    return (lambda number, name, dtype: tables[f"{number}/{name}", dtype]), lost


def samples_of(
    casting: PrecisionModel, loaded: Loaded, values: Sequence[Mapping[str, TensorFile]], folder: Path
) -> tuple[Sample, ...]:
    """Return what the mixed models are fed, and what their outputs should be, in the types that they have then.

    ``values``: those of the model's inputs and outputs. Files of values that have another type are written into
    ``folder``. Raises UsageError for a value of an input or output that the low type cannot hold.
    """
    graph, found = casting.mixer.model.graph, []
    outputs = {value.name: value.type.tensor_type.elem_type for value in graph.output}
    for number, sample in enumerate(values):
        inputs = {name: sample[name].dtype for name in loaded.graph.inputs if name in sample}
        wanted = {name: dtype for name, dtype in outputs.items() if name in sample}
        if not casting.mixer.keep_io:
            inputs = {name: casting.pair.low if dtype in casting.pair else dtype for name, dtype in inputs.items()}
            wanted = {name: casting.pair.low if dtype in casting.pair else dtype for name, dtype in wanted.items()}
        place = folder / f"sample_{number}"
        try:
            found.append(Sample(convert(sample, inputs, place / "inputs"), convert(sample, wanted, place / "outputs")))
        except UnfitError as error:
            raise UsageError(
                f"strategy.keep_io=false: {error}, whatever is raised. Set strategy.keep_io=true, or give other inputs"
            ) from None
    return tuple(found)


def _worked(pool: Pool, settings: Settings, op: str, args: Mapping[str, Any]) -> dict[str, Any]:
    what = f"model={settings.model}: making it ready for another precision"
    reply = operate(pool, settings, op, args, what)
    if reply.value is None:
        raise UsageError(f"model={settings.model}: it cannot be made ready for another precision: {reply.why}")
    return reply.value
