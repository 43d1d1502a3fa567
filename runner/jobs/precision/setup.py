"""From a loaded model to everything that a precision search needs: types, weights in both precisions, samples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from runner.exit_codes import NotApplicable, UsageError
from runner.jobs.precision.layers import Layer, Pair, contrib_of, layers, quantized_layers
from runner.jobs.precision.mixer import Mixer
from runner.jobs.precision.prepare_model import convert as convert_values
from runner.jobs.precision.regions import GIVEN, RegionMixer, Regions
from runner.model.files.candidate_store import Store
from runner.model.files.parse_without_weights import WeightsWriter
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.low_precision import QdqPair, kinds, others_than_pairs, pairs_of
from runner.model.graph.scopes import NameSupply, graphs_below, initializers
from runner.model.values import tensor_bytes
from runner.model.values.recorded import TensorFile
from runner.reference.align import QUANTIZED
from runner.reference.good_values import UnfitError
from runner.reference.good_values import cast as convert
from runner.reference.load import Loaded
from runner.reference.models import recording_backend
from runner.reference.parent import Inherited
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.root import Settings
from runner.schema.strategy import FloatType, PrecisionSettings
from runner.text import listed
from runner.verdict import Sample
from runner.workers.pool import Pool, limited, operate

# Weights that raised layers get back: from the parent where one is given, else from what is stored.

Worked = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Calls an operation in a worker."""

log = logging.getLogger(__name__)


def _weights(
    worked: Worked, typed: Path, loaded: Loaded, pair: Pair, pairs: Sequence[Mapping[str, QdqPair]]
) -> tuple[dict[str, TensorProto], dict[str, Any]]:
    """Return the weights in the other type of the pair, by NUMBER/NAME, and what `convert_weights` tells of them."""
    inherited, out = loaded.inherited, typed.with_name("weights.onnx")
    partners = inherited.partners if inherited else {}
    args: dict[str, Any] = {
        "model": str(typed),
        "parent": str(inherited.parent.store.structure) if inherited else None,
        "low": pair.low,
        "high": pair.high,
        "quantized": {
            f"{number}/{name}": [partners.get(name, ""), found.constant.name.removesuffix(QUANTIZED), name]
            for number, some in enumerate(pairs)
            for name, found in some.items()
            if found.constant is not None
        },
        "out": str(out),
    }
    told = worked("convert_weights", args)
    return {one.name: one for one in ModelProto.FromString(out.read_bytes()).graph.initializer}, told


def _said(told: Mapping[str, list[str]], has_parent: bool) -> Iterator[str]:
    if taken := told["taken"]:
        log.info("raised nodes take %d weights from reference.model (%s)", len(taken), listed(taken))
    if strangers := told["strangers"]:
        yield (
            f"{len(strangers)} weights of reference.model are not what is stored here ({listed(strangers)}), so they "
            "are not taken: is it the original of this model?"
        )
    if rounded := told["rounded"]:
        advice = "" if has_parent else "; give the original as reference.model="
        yield (
            f"{len(rounded)} quantized weights ({listed(rounded)}) are dequantized for raised nodes, so they keep "
            f"their rounding{advice}"
        )


DTYPES = {
    FloatType.float32: TensorProto.FLOAT,
    FloatType.float16: TensorProto.FLOAT16,
    FloatType.bfloat16: TensorProto.BFLOAT16,
}


@dataclass(frozen=True)
class Ends:
    """Both ends of a search among quantized nodes, each as the user gave it; None: it is what the mixer makes.

    ``given``: the quantized model. ``parent``: the one that was quantized, with the names of the other's inputs and
    outputs. ``brought``: its initializers.
    """

    given: ModelProto | None = None
    parent: ModelProto | None = None
    brought: Mapping[str, TensorProto] = field(default_factory=dict)


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
    ends: Ends = field(default_factory=Ends)

    @property
    def is_lossy(self) -> bool:
        """Whether the model itself, as it is, has less than the high precision."""
        model = self.mixer.model
        low = any(tensor.data_type == self.pair.low != self.pair.high for tensor in initializers(model))
        return low or self.quantized or self.mixer.restores

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The elements."""
        return self.mixer.layers


def pair_of(strategy: PrecisionSettings) -> Pair:
    """Return the two types, which are one where only Q/DQ pairs make the difference.

    Raises UsageError if they are one otherwise, or the low one is the wider.
    """
    low, high = strategy.low, strategy.high
    known = high in DTYPES or (high is FloatType.int8 and low is FloatType.quantized)
    if low is high or low is FloatType.float32 or not known:
        raise UsageError(
            f"strategy.low={low.value} strategy.high={high.value}: the low precision must be narrower than the high "
            "one: low is float16, bfloat16, quantized (Q/DQ pairs as they are) or what a float model is quantized to "
            "(int8, int4, fp8), high float32 (or another float type), or int8 for a model with int4 weights"
        )
    wide = DTYPES.get(high, TensorProto.FLOAT)
    return Pair(wide if low is FloatType.quantized else DTYPES[low], wide)


def cast(settings: Settings, strategy: PrecisionSettings, loaded: Loaded, pool: Pool) -> PrecisionModel:
    """Find the layers, and make the weights in the other type. Raises NotApplicable for a model without any."""
    pair, store = pair_of(strategy), loaded.store
    typed = store.folder / "typed.onnx"
    schemas = _contrib(settings, pool, store.structure)
    worked = partial(_worked, pool, settings)
    reply = worked("prepare_cast", {"model": str(store.structure), "out": str(typed), "contrib": schemas})
    model = onnx.ModelProto.FromString(typed.read_bytes())
    model.ir_version = max(model.ir_version, 4)  # initializers need not be inputs from there on
    types = {**loaded.types, **loaded.recorded.types}
    base = Mixer(model, types, (), pair, {}, strategy.keep_io, contrib=contrib_of(schemas))
    quantized = strategy.low is FloatType.quantized
    made = PrecisionModel(base, pair, {}, {}, (*filter(None, [reply["warning"]]),), quantized, reply["inlined"])
    made = replace(made, ends=_ends(loaded, base)) if quantized else made
    is_int8, pairs = strategy.high is FloatType.int8, pairs_of(model.graph)
    # nested pairs are raised one by one: nobody knows what the parent has in their place
    if quantized and loaded.inherited and (others_than_pairs(model) or not any(pairs[1:])):
        made = _by_regions(settings, made, loaded.inherited)
        return _eight_bits(settings, made, loaded.inherited, worked, typed) if is_int8 else made
    if is_int8:
        raise UsageError(
            f"model={settings.model} strategy.high=int8: weights of 8 bits are made of the original's: give it as "
            "reference.model=PATH"
        )
    found = layers(model, types, pair, base.contrib)
    if quantized:
        found = quantized_layers(model, found)
    if not found:
        raise NotApplicable(_nothing(settings, strategy, base))
    weights, told = _weights(worked, typed, loaded, pair, pairs)
    mixer = replace(base, layers=found, weights=weights, restores=any(pairs))
    doubts = (*_overridden(model, pair), *_said(told, loaded.inherited is not None))
    lost: dict[str, Any] = {key: told[key] for key in ("clamped", "flushed", "lifted")}
    lost["clamped"] |= _filled(model, pair)
    return replace(made, mixer=mixer, warnings=(*made.warnings, *doubts), **lost)


WEIGHTS = "weights.parent.bin"
"""The parent's weights, in the store of the model."""


def _ends(loaded: Loaded, base: Mixer) -> Ends:
    """Return both ends of a search among quantized nodes."""
    store, inherited = loaded.store, loaded.inherited
    aside = store.folder / GIVEN
    given = ModelProto.FromString((aside if aside.is_file() else store.structure).read_bytes())
    if inherited is None:
        return Ends(given)
    weights = _brought(inherited, store)
    return Ends(given, _as_child(inherited, weights, base.model, base.levels[0].types), weights)


def _brought(inherited: Inherited, store: Store) -> dict[str, TensorProto]:
    """Return the parent's initializers, and copy their large weights into the store of the model."""
    parent, found = inherited.parent, dict[str, TensorProto]()
    with WeightsWriter(store.folder / WEIGHTS) as writer:
        for name, tensor in parent.graph.initializers.items():
            if not isinstance(tensor, TensorProto):
                continue
            found[name] = copy_of(tensor)
            if tensor_bytes.is_external(tensor):
                length, pieces = parent.store.region(tensor)
                tensor_bytes.set_reference(found[name], WEIGHTS, writer.add(pieces, length), length)
    return found


def _as_child(
    inherited: Inherited, brought: Mapping[str, TensorProto], model: ModelProto, types: Mapping[str, int]
) -> ModelProto | None:
    """Return the parent with the names of the model's inputs and outputs; None where it has not all of them."""
    parent = inherited.parent.graph
    names, kinds_of = dict[str, str](), inherited.parent_types
    fed = {value.name for value in model.graph.input} - {tensor.name for tensor in model.graph.initializer}
    for mine in (*fed, *(value.name for value in model.graph.output)):
        theirs = inherited.partners.get(mine)
        if theirs is None:
            if mine in fed:
                continue
            return None
        known = parent.outputs if mine not in fed else parent.inputs
        if theirs not in known or names.setdefault(theirs, mine) != mine or types.get(mine) != kinds_of.get(theirs):
            return None
    made = copy_of(parent.model)
    del made.graph.initializer[:]
    made.graph.initializer.extend(brought.values())
    supply = NameSupply({*scopes.names_of(made), *names.values()})
    moved = {name: supply.fresh(name) for name in names.values() if name not in names}
    scopes.rename_graph(made.graph, {**moved, **{old: new for old, new in names.items() if old != new}}, supply)
    return made


def _by_regions(settings: Settings, casting: PrecisionModel, inherited: Inherited) -> PrecisionModel:
    """Return the model with the regions that are low as layers. Raises UsageError where the parent has none of them."""
    base, ends, warnings = casting.mixer, casting.ends, [*casting.warnings]
    known = base.levels[0].types
    regions = Regions(base.model, known, inherited.parent.graph, inherited.partners, inherited.parent_types)
    if not regions.found:
        raise UsageError(
            f"model={settings.model} strategy.low=quantized: reference.model={settings.reference.model} has no nodes "
            f"that do what {kinds(regions.lost)} do here, as far as names and values tell. Is it the original of "
            "this model? If tensors have other names, name the partners with reference.map"
        )
    if regions.lost:
        ends = replace(ends, parent=None)
        warnings.append(
            f"{kinds(regions.lost)} stay quantized in every trial: no nodes of reference.model are known to do the same"
        )
    found = tuple(one.layer for one in regions.found)
    given = base.model, base.types, found, base.pair, base.weights, base.keep_io
    mixer = RegionMixer(*given, contrib=base.contrib, regions=regions, brought=ends.brought)
    return replace(casting, mixer=mixer, warnings=tuple(warnings), ends=ends)


_CONTRIB = "com.microsoft"


def _eight_bits(
    settings: Settings, casting: PrecisionModel, inherited: Inherited, worked: Worked, typed: Path
) -> PrecisionModel:
    """Return the same with the parent's MatMuls in 8 bits. Raises UsageError where no weight of the model has fewer."""
    mixer, out = casting.mixer, typed.with_name("eight_bits.onnx")
    assert isinstance(mixer, RegionMixer)
    args = {"model": str(typed), "parent": str(inherited.parent.store.structure), "out": str(out)}
    if not worked("eight_bits", args)["made"]:
        raise UsageError(
            f"model={settings.model} strategy.high=int8: none of its weights has fewer than 8 bits; other quantized "
            "nodes are raised to float: strategy.high=float32"
        )
    made = ModelProto.FromString(out.read_bytes()).graph
    instead, nodes = {node.output[0]: node for node in made.node}, inherited.parent.graph.nodes
    whole = [one.layer.path for one in mixer.found if not any({*nodes[at].outputs} & {*instead} for at in one.parent)]
    warned = [f"no operator with 8 bits takes the place of {listed(whole)}: raised, it is float"] if whole else []
    if all(one.domain != _CONTRIB for one in mixer.model.opset_import):
        mixer.model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    brought = {**mixer.brought, **{tensor.name: tensor for tensor in made.initializer}}
    ends, warnings = replace(casting.ends, parent=None), (*casting.warnings, *warned)
    return replace(casting, mixer=replace(mixer, brought=brought, instead=instead), ends=ends, warnings=warnings)


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


def _nothing(settings: Settings, strategy: PrecisionSettings, base: Mixer) -> str:
    asked = f"model={settings.model} strategy.low=quantized strategy.high={strategy.high.value}"
    if strategy.low is FloatType.quantized:
        return (
            f"{asked}: no node in that type reads a QuantizeLinear - DequantizeLinear pair, so there is nothing to "
            "raise. Name the type that the model's floats have (strategy.high=float16), or convert a model without "
            "pairs: strategy.low=float16"
        )
    names = {number: name.value for name, number in DTYPES.items()}
    there = sorted({names[dtype] for level in base.levels for dtype in level.types.values() if dtype in names})
    return (
        f"model={settings.model}: no node of it can run in both {strategy.low.value} and {strategy.high.value}. Its "
        f"float tensors are {' and '.join(there) or 'none of these'}; nodes of other operators, or of an opset in "
        "which they do not know both types, stay as they are"
    )


def samples_of(
    casting: PrecisionModel, loaded: Loaded, values: Sequence[Mapping[str, TensorFile]], folder: Path
) -> tuple[Sample, ...]:
    """Return what the mixed models are fed, and what their outputs should be, in the types that they have then.

    ``values``: those of the model's inputs and outputs. Files of values that have another type are written into
    ``folder``. Raises UsageError for a value of an input or output that the low type cannot hold.
    """
    graph, pair, found = casting.mixer.model.graph, casting.pair, []
    outputs = {value.name: value.type.tensor_type.elem_type for value in graph.output}

    def outward(dtype: int) -> int:
        return pair.low if dtype in pair and not casting.mixer.keep_io else dtype

    for number, sample in enumerate(values):
        inputs = {name: outward(sample[name].dtype) for name in loaded.graph.inputs if name in sample}
        wanted = {name: outward(dtype) for name, dtype in outputs.items() if name in sample}
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
