"""Why nodes are raised, and what low precision does inside a mixed model: in words, and as a check."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from runner.checkers.checker import Checker, DelegatingChecker, Tools
from runner.jobs.job import Job
from runner.jobs.precision.layers import Layer
from runner.jobs.precision.prepare_search import PrecisionSetup
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.setup import PrecisionModel
from runner.jobs.precision.units import SENTINEL, Measurements
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import ends_of, is_quantization
from runner.model.graph.scopes import graphs_below, initializers
from runner.model.values import recorded as values
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile, paths
from runner.reference.load import Loaded
from runner.report.result_parts import Precision as PrecisionFound
from runner.run_folder import MIXED
from runner.schema.backend import OnnxRuntimeBackend, Rounding
from runner.schema.root import Settings
from runner.text import counted, listed
from runner.verdict import OVERFLOW, Candidate, Sample, Signature, Verdict
from runner.workers.pool import limited
from strategies.search import Outcome

_LONGEST_NAME = 60


def reason(material: PrecisionSetup, index: int) -> str:
    """Say what was measured of a layer: a range that the low type has not, and the error that it introduces alone."""
    alone, cause = _alone(material, index), next(_causes(material, material.casting.layers[index]), "")
    told = (cause, alone, next(_outliers(material, index), ""))
    return "; ".join(part for part in told if part) or unmeasured(material, index) or "nothing of it stands out"


def unmeasured(material: PrecisionSetup, index: int) -> str:
    """Say why the error that a layer introduces is no number; nothing where it is one."""
    casting, known = material.casting, material.known
    error, layer = known.errors.get(index), casting.layers[index]
    if error is not None:
        if math.isfinite(error):
            return ""
        return "not finite: what stands for infinity leaves the range" if _is_mask(known, layer) else "not finite"
    if known.why:
        return f"not measured: {known.why}"
    graphs = list(graphs_below(casting.mixer.model.graph))
    node = graphs[layer.key[0]].node[layer.key[1]]
    if scopes.subgraphs(node):
        return "not measured: it holds a graph of its own"
    if layer.nested:
        return "not measured: in a branch or loop that no sample took"
    return "not measured: nothing that it makes is fp32"


def _causes(material: PrecisionSetup, layer: Layer) -> Iterator[str]:
    """Yield what the values of a layer have that the low type has not, what explains most first."""
    casting, known, low = material.casting, material.known, material.strategy.low.value
    largest = FLOATS[casting.pair.low].largest
    weights = {name for graph in graphs_below(casting.mixer.model.graph) for name in initializers_of(graph)}
    sides = [(name, verb) for names, verb in ((layer.writes, "makes"), (layer.reads, "reads")) for name in names]
    for name, verb in sides:
        most = known.range_of(layer, name)
        if largest < most < SENTINEL:
            yield f"{verb} values up to {most:.3g}, beyond {largest:.3g}, in {_short(name)}"
    for name, verb in sides:
        most = known.range_of(layer, name)
        if most >= SENTINEL:
            sign = "-" if name not in weights and _is_negative(material.loaded, name) else ""
            where = f" in {_short(name)}" if name not in weights else f" in the weight {_short(name)}"
            size = f"of {sign}{most:.3g}" if math.isfinite(most) else f"of {sign}Inf"
            yield f"{verb} values {size}{where}, which stand for {'minus ' if sign else ''}infinity"
    for name in layer.reads:
        if name in casting.flushed:
            yield f"reads {_short(name)}, of which {_values(casting.flushed[name])} zero in {low}"
        elif name in casting.lifted:
            yield f"reads {_short(name)}, which is too small for {low} and becomes {FLOATS[casting.pair.low].least:.2g}"
        elif name in casting.clamped and largest < known.range_of(layer, name) < SENTINEL:
            yield f"reads {_short(name)}, which is cut off at {largest:.3g}"


def _alone(material: PrecisionSetup, index: int) -> str:
    casting, known = material.casting, material.known
    error = known.errors.get(index)
    if casting.quantized:
        # what quantizing it does to what it makes of good values
        return f"quantized, it introduces a relative error of {error:.2g}" if error is not None else ""
    # beside a Q/DQ pair, what rounding to the low type introduces says little
    if casting.mixer.restores:
        return ""
    if error is None:
        return unmeasured(material, index) if casting.layers[index].nested and not known.why else ""
    if _is_mask(known, casting.layers[index]):
        return ""  # an error relative to a value that stands for infinity means nothing
    if math.isinf(error):
        return f"not finite when it alone is in {material.strategy.low.value}"
    return f"introduces a relative error of {error:.2g}"


OUTLIER = 30.0
"""A value, or a channel, that is so many times the median makes steps too coarse for the rest."""
_STEPS = 127 * math.sqrt(12)
"""Part of the largest value that rounding to 8 bits loses on average."""
_NOTHING = 0.05
"""A clause that explains a smaller part of the error that a node introduces is not said."""
_MOVING = frozenset({"Concat", "Slice", "Split", "Gather", "GatherND", "GatherElements"})
"""What these read and make shares one scale."""


def _outliers(material: PrecisionSetup, index: int) -> Iterator[str]:
    """Say what of the original's weights and values a quantized node holds badly, what costs most first."""
    introduced = material.known.errors.get(index) or 0.0
    told = sorted(_badly_held(material, index), key=lambda one: -one[0])
    yield from (said for error, said in told if error > _NOTHING * min(introduced, 1.0))


def _badly_held(material: PrecisionSetup, index: int) -> Iterator[tuple[float, str]]:
    """Yield clauses, each after the error that it explains, relative to the usual value."""
    mixer, inherited = material.casting.mixer, material.loaded.inherited
    if not isinstance(mixer, RegionMixer) or inherited is None:
        return
    parent = inherited.parent
    node = parent.graph.nodes[mixer.found[index].main]
    for name in node.inputs:
        tensor = parent.graph.initializers.get(name)
        if isinstance(tensor, TensorProto) and tensor.data_type in FLOATS and len(tensor.dims) > 1:
            yield from _outlier(f"its weight {_short(name)}", parent.store.array(tensor))
    if mixer.found[index].only_weights:
        return
    sides = [(name, "reads") for name in dict.fromkeys(node.inputs)]
    sides += [(name, "makes") for name in node.outputs if name in parent.graph.outputs]  # its pair goes as well
    held = dict(_ranges(mixer, [name for name, _ in sides]))
    yield from _clipped(held, parent.values, sides)
    floats = _largest(parent.values, node.inputs)
    together = [*floats.values(), *_largest(parent.values, node.outputs).values()] if node.op_type in _MOVING else []
    if sizes := sorted((float(np.abs(one).max()), at) for at, one in enumerate(together)):
        said = "one scale holds values up to {most:.3g} and up to {least:.3g}"
        yield from _coarse(sizes[-1][0], together[sizes[0][1]], said)
    for name, array in floats.items():
        end = max(map(abs, held.get(name, (math.inf, math.inf))))
        yield from _outlier(f"its input {_short(name)}", array, end)
        if name in held and not together:
            said = f"the scale of what it reads, {_short(name)}, is for values up to {{most:.3g}}, not {{least:.3g}}"
            yield from _coarse(end, array, said)


def _coarse(most: float, array: Any, said: str) -> Iterator[tuple[float, str]]:
    """Say that the steps of integers up to ``most`` are too coarse for the values of an array."""
    least = float(np.abs(array).max())
    if most > OUTLIER * least > 0:
        yield most / _usual(array) / _STEPS, said.format(most=most, least=least)


def _largest(samples: Sequence[Mapping[str, TensorFile]], names: Iterable[str]) -> dict[str, Any]:
    """Return of each float tensor the sample with the largest value."""
    found = dict[str, Any]()
    for name in dict.fromkeys(names):
        arrays = (values.read(one[name]) for one in samples if name in one)
        floats = (array for array in arrays if array.dtype.kind == "f" and array.size)
        largest = max(floats, key=lambda array: float(np.abs(array).max()), default=None)
        found |= {} if largest is None else {name: largest}
    return found


def _ranges(mixer: RegionMixer, names: Iterable[str]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield of tensors of the original the range that their integers have, where a QuantizeLinear makes these."""
    graph, regions = mixer.model.graph, mixer.regions
    constants, low = initializers_of(graph), {node.input[0]: node for node in graph.node if is_quantization(node)}
    for name in names:
        # what integers hold badly may be shared by no region, and has a partner all the same
        known = [regions.back.get(name), *(mine for mine, theirs in regions.partners.items() if theirs == name)]
        makers = (low.get(regions.before_pairs(mine) or mine) for mine in known if mine)
        maker = next((one for one in makers if one is not None and one.op_type == "QuantizeLinear"), None)
        least, most = ends_of(maker, constants, whole=True) if maker is not None else (None, None)
        if least is not None and most is not None:
            yield name, (least, most)


def _clipped(
    held: Mapping[str, tuple[float, float]],
    samples: Sequence[Mapping[str, TensorFile]],
    sides: Iterable[tuple[str, str]],
) -> Iterator[tuple[float, str]]:
    """Say which share of what a node reads, or makes, is beyond the range of its integers, if rounding loses less."""
    for name, verb in sides:
        files = [one[name] for one in samples if name in one]
        if name not in held or not files:
            continue
        least, most = held[name]
        arrays = [values.read(one).astype(np.float64) for one in files]
        half = (most - least) / 510  # half of a step is rounding
        count = sum(int(((one < least - half) | (one > most + half)).sum()) for one in arrays)
        size = sum(one.size for one in arrays)
        lost = sum(float(np.square(one - np.clip(one, least, most)).sum()) for one in arrays)
        if lost > size * half * half / 3:
            error = math.sqrt(lost / sum(float(np.square(one).sum()) for one in arrays))
            said = f"{count / size:.2%} of what it {verb}, {_short(name)}, is clipped to {least:.3g} to {most:.3g}"
            yield error, said


def worst_of(layers: Collection[int], alone: Mapping[int, float], introduced: Mapping[int, float]) -> int:
    """Return the layer with the largest error; -1: there is none.

    ``alone``: at the model's outputs, which counts if it is known of each. ``introduced``: at its own outputs.
    """
    known = alone if alone.keys() >= {*layers} else introduced
    return max(layers, key=lambda index: known.get(index, 0.0), default=-1)


def worst_outlier(material: PrecisionSetup, raised: Collection[int], alone: Mapping[int, float]) -> str:
    """Return a clause on what makes the steps coarse of the raised node with the largest error; see `worst_of`."""
    worst = worst_of(raised, alone, material.known.errors)
    told = next(_outliers(material, worst), "") if raised else ""
    return f"; {_short(material.casting.layers[worst].path)}: {told}" if told else ""


def _usual(array: Any) -> float:
    """Return the median of the sizes; what a Relu or a mask made 0 is exact, and does not count."""
    # the median of a mask is between two numbers whose sum is beyond float32
    some = np.abs(array.reshape(-1)[:: max(1, array.size >> 20)]).astype(np.float64)
    return float(np.median(some[some > 0])) if some.any() else math.inf


def _outlier(what: str, array: Any, end: float = math.inf) -> Iterator[tuple[float, str]]:
    """Say in which channel of an array the largest value is, where that is far beyond the median; ``end``: is kept."""
    usual, axes = _usual(array), range(array.ndim)
    largest = max(float(array.max()), -float(array.min()))  # a copy of a large weight is not made
    if largest > OUTLIER * usual:
        others = [tuple({*axes} - {axis}) for axis in axes]
        peaks = [np.maximum(array.max(those), -array.min(those)).astype(np.float64) for those in others]
        # the axis of which one channel stands out most
        axis = max(axes, key=lambda at: peaks[at].max() / max(float(np.median(peaks[at])), 1e-30))
        but = " (zeros not counted)" if np.count_nonzero(array) < array.size else ""
        where = f"in channel {int(peaks[axis].argmax())} of axis {axis}"
        said = f"{what} reaches {largest:.3g} {where}, {largest / usual:.0f} times its median{but}"
        yield min(largest, end) / usual / _STEPS, said


def _is_mask(known: Measurements, layer: Layer) -> bool:
    """Whether a layer makes values that stand for infinity."""
    return any(known.range_of(layer, name) >= SENTINEL for name in layer.writes)


def _is_negative(loaded: Loaded, name: str) -> bool:
    """Whether what stands for infinity in a recorded tensor does so with a minus, as in a mask."""
    tensors = (sample[name] for sample in loaded.recorded.values if name in sample)
    arrays = [values.read(tensor) for tensor in tensors if tensor.structure is None]
    return any(array.dtype.kind == "f" and array.size and -array.min() >= SENTINEL for array in arrays)


def _values(count: int) -> str:
    return f"{count} value{'s' * (count != 1)} become{'s' * (count == 1)}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


# A check that also looks inside: what passes, with an infinity in it after which values are wrong, fails.
#
# The outputs of a model may tolerate that a whole branch of it computes zeros; on other inputs they need not. It is
# looked for in an emulation on ONNX Runtime's CPU provider, whatever the target is.

log = logging.getLogger(__name__)


PATIENCE = 600.0
"""Seconds for a look inside where checks may take as long as they want: a model for a GPU may be too slow here."""


@dataclass(eq=False)
class OverflowCheck(DelegatingChecker):
    """Judges as ``checker`` does, and fails what passes with an overflow that does harm or may do it.

    ``everything``: how many nodes can be raised: with all of them nothing is low; ``high``: that model. ``low``: what
    the low type is called.
    """

    checker: Checker
    settings: Settings
    tools: Tools
    everything: int
    high: Path
    low: str
    warnings: tuple[str, ...] = ()

    def check(self, candidate: Candidate) -> Verdict:
        """Judge one candidate, and look inside it if it passes."""
        verdict = self.checker.check(candidate)
        is_low = len(candidate.trial) < self.everything
        if verdict.outcome is not Outcome.PASS or not is_low or candidate.model is None or self.warnings:
            return verdict
        found, seconds, why = overflows(self.settings, self.tools, candidate.model, candidate.samples, self.high)
        if found is None:
            self.warnings = (f"what becomes Inf inside the models is not looked at: {why}",)
            log.warning("%s", *self.warnings)
            return verdict
        harmful = [one for one in found if one["harm"]] or [one for one in found if one["unknown"]]
        verdict = replace(verdict, seconds=verdict.seconds + seconds)
        if not harmful:
            return verdict
        do = "do harm" if harmful[0]["harm"] else "may do harm"
        more = f", and {len(harmful) - 1} more {do}" if len(harmful) > 1 else ""
        reason = f"{said(harmful[0], self.low)}{more}"
        return replace(verdict, outcome=Outcome.FAIL, signature=Signature(OVERFLOW, "inf"), reason=reason)

    def identity(self) -> dict[str, str]:
        """What the checker says, and which overflows fail."""
        looking = f"what does harm or may do it fails, rounding {rounding(self.settings)}"
        return {**self.checker.identity(), "overflow": looking}


def rounding(settings: Settings) -> str:
    """Return the emulation in which overflows are looked for."""
    target = settings.target
    strict = isinstance(target, OnnxRuntimeBackend) and target.rounding is Rounding.strict
    return str(Rounding.strict.value if strict else Rounding.on.value)


def overflows(
    settings: Settings, tools: Tools, model: Path, samples: Sequence[Sample], high: Path
) -> tuple[list[Mapping[str, Any]] | None, float, str]:
    """Return what becomes infinite in a mixed model, and the seconds this took; None: not known, and why.

    ``high``: the same model with nothing low.
    """
    if not samples:
        return None, 0.0, "there are no samples"
    args = {
        "model": str(model),
        "high": str(high),
        "rounding": rounding(settings),
        "samples": [paths(sample.feeds) for sample in samples],
    }
    reply = limited(tools.pool, settings, "overflow", args, timeout=settings.workers.timeout or PATIENCE)
    if reply.value is None:
        return None, reply.seconds, reply.why[:400]
    return reply.value["tensors"], reply.seconds, ""


def said(one: Mapping[str, Any], low: str) -> str:
    """Say of a tensor that it overflows, and where that does harm."""
    told = f"{one['tensor']} becomes Inf in {low} (largest {one['largest']:.2g})"
    if one["made"]:
        told = f"{one['tensor']} is not finite in {low} (it should be up to {one['largest']:.2g})"
    harm = one["harm"]
    if not harm:
        return f"{told}, which {one['unknown']} reads: whether that does harm is not known" if one["unknown"] else told
    if harm["by_chance"]:
        return f"{told}; what {harm['op']} {harm['node']} makes depends on the lost values, so it is right by chance"
    return f"{told}; after that {harm['op']} {harm['node']} makes {harm['made']:g} where {harm['right']:g} is right"


NEAR = 2.0
"""Values so near the largest number of the low type get a word: other samples may be that much larger."""
_MOST = 3


def with_overflow_check(job: Job, material: PrecisionSetup) -> Job:
    """Return the job with a checker that fails harmful overflows, unless these are allowed."""
    if material.strategy.allow_overflow or material.casting.quantized:
        return job
    # with all of them raised nothing is low, but for what stays low in any case
    everything = len(material.subject.space.order) + bool(material.kept.low)
    high, low = _high(job, material), material.strategy.low.value
    return replace(job, checker=OverflowCheck(job.checker, job.settings, job.tools, everything, high, low))


def _high(job: Job, material: PrecisionSetup) -> Path:
    """Write the model with nothing low, which tells what tensors should be."""
    casting, place = material.casting, job.folder / "values" / "high"
    return material.loaded.store.write(casting.mixer.mixed(casting.mixer.everything), place, "high")


def with_infinities(
    job: Job, material: PrecisionSetup, raised: frozenset[int], told: PrecisionFound
) -> tuple[PrecisionFound, tuple[str, ...]]:
    """Return ``told`` (``precision`` in result.json) with what happens inside the model handed over, and warnings.

    ``raised``: all layers that are high in it. ``overflows``: null where they could not be looked for.
    """
    casting, low = material.casting, told.low
    warnings = list(job.checker.warnings) if isinstance(job.checker, OverflowCheck) else []
    found: list[Mapping[str, Any]] | None = None if warnings else []
    path = job.folder / f"{MIXED}.onnx"
    if not casting.quantized and path.is_file() and not warnings:
        found, _, why = overflows(job.settings, job.tools, path, material.subject.samples, _high(job, material))
        warnings += [f"what becomes Inf inside {path.name} is not known: {why}"] if found is None else []
    epsilons = list(_epsilons(casting, raised))
    zeroed = list(_zeroed(casting, raised))
    near = _near(casting, material.known, raised, low)
    warnings += [*_overflowing(found or (), low), *_vanishing(epsilons, zeroed, low), *near]
    overflown = None if found is None else tuple(found)
    told = replace(told, overflows=overflown, flushed_epsilons=tuple(epsilons), zeroed=tuple(zeroed))
    return told, tuple(warnings)


def _overflowing(found: Sequence[Mapping[str, Any]], low: str) -> Iterator[str]:
    harmful = [one for one in found if one["harm"]]
    for one in harmful[:_MOST]:
        yield said(one, low)
    if len(harmful) > _MOST:
        yield f"{len(harmful) - _MOST} more tensors become Inf in {low} and do harm: see precision.overflows"
    rest = [one for one in found if not one["harm"]]
    absorbed = [
        f"{one['tensor']} (by {one['absorbed_by'][0]})" for one in rest if one["absorbed_by"] and not one["unknown"]
    ]
    if absorbed:
        many = f"{counted(len(absorbed), 'tensor')} become{'s' * (len(absorbed) == 1)}"
        yield f"{many} Inf in {low}, and the next nodes absorb that: {listed(absorbed, _MOST)}"
    open_ones = [f"{one['tensor']} (read by {one['unknown']})" for one in rest if one["unknown"]]
    if open_ones:
        yield f"Inf in {low}; it is not known whether it does harm: {listed(open_ones, _MOST)}"


def _vanishing(epsilons: Sequence[Mapping[str, Any]], zeroed: Sequence[str], low: str) -> Iterator[str]:
    if epsilons:
        shown_ones = [f"{one['value']:g} in {one['op']} {one['node']}" for one in epsilons]
        become = f"are too small for {low} and become {epsilons[0]['becomes']:.2g}"
        yield f"constants {become}: {listed(shown_ones, _MOST)}"
    if zeroed:
        yield f"weights of which all values become zero in {low}: {listed(zeroed, _MOST)}"


def _near(casting: PrecisionModel, known: Measurements, raised: frozenset[int], low: str) -> Iterator[str]:
    """Say which low tensors come near the end of the range on the samples: others of their kind may leave it."""
    largest = FLOATS[casting.pair.low].largest
    names = {
        name: known.range_of(layer, name)
        for index, layer in enumerate(casting.layers)
        if index not in raised
        for name in layer.writes
        if largest / NEAR < known.range_of(layer, name) <= largest
    }
    if names and not casting.quantized:
        shown_ones = [f"{name} reaches {most:.3g}" for name, most in sorted(names.items(), key=lambda one: -one[1])]
        yield (
            f"{listed(shown_ones, _MOST)}, near {low}'s limit {largest:.5g}. To "
            f"keep nodes with such outputs high: strategy.at_least=['range > {largest / NEAR:.0f}']"
        )


def _epsilons(casting: PrecisionModel, raised: frozenset[int]) -> Iterator[dict[str, Any]]:
    """Yield the single numbers that are too small for the low type, with each low layer that reads one."""
    held = (one for one in initializers(casting.mixer.model) if one.name in casting.lifted)
    numbers = {one.name: float(numpy_helper.to_array(one).reshape(-1)[0]) for one in held}
    becomes = FLOATS[casting.pair.low].least
    for index, layer in enumerate(casting.layers):
        for name in layer.reads if index not in raised else ():
            if name in numbers:
                told = {"constant": name, "value": numbers[name], "becomes": becomes}
                yield {**told, "node": layer.path, "op": layer.op_type}


def _zeroed(casting: PrecisionModel, raised: frozenset[int]) -> Iterator[str]:
    """Yield the weights all of whose values become zero where low precision reads them."""
    reads = {name for index, layer in enumerate(casting.layers) if index not in raised for name in layer.reads}
    for tensor in initializers(casting.mixer.model):
        lost, inside = casting.flushed.get(tensor.name, 0), not tensor_bytes.is_external(tensor)
        if lost and tensor.name in reads:
            many = np.count_nonzero(numpy_helper.to_array(tensor)) if inside else tensor_bytes.elements(tensor.dims)
            if lost >= many:
                yield tensor.name
