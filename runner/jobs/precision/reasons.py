"""Why a node is raised, in words: what was measured of it, and what is known of what it reads and makes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.jobs.precision.layers import Layer
from runner.jobs.precision.prepare_search import PrecisionSetup
from runner.jobs.precision.ranking import SENTINEL, Measurements
from runner.jobs.precision.regions import RegionMixer
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import ends_of, is_quantization
from runner.model.graph.scopes import graphs_below
from runner.model.values import recorded as values
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.reference.load import Loaded

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
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
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
_MOVING = frozenset({"Slice", "Split", "Gather", "GatherND", "GatherElements"})


def _outliers(material: PrecisionSetup, index: int) -> Iterator[str]:
    """Say what of the original's weights and values makes the steps of a quantized node coarse, weights first."""
    mixer, inherited = material.casting.mixer, material.loaded.inherited
    if not isinstance(mixer, RegionMixer) or inherited is None:
        return
    parent = inherited.parent
    node = parent.graph.nodes[mixer.found[index].main]
    for name in node.inputs:
        tensor = parent.graph.initializers.get(name)
        if isinstance(tensor, TensorProto) and tensor.data_type in FLOATS and len(tensor.dims) > 1:
            yield from _outlier(f"its weight {_short(name)}", parent.store.blocks(tensor))
    if mixer.found[index].only_weights:
        return
    sides = [(name, "reads") for name in dict.fromkeys(node.inputs)]
    sides += [(name, "makes") for name in node.outputs if name in parent.graph.outputs]  # its pair goes as well
    clipped = list(_clipped(mixer, parent.values, sides))
    yield from (said for said, is_worse in clipped if is_worse)
    floats, made = (_largest(parent.values, names) for names in (node.inputs, node.outputs))
    limits = sorted(float(np.abs(array).max()) for array in floats.values())
    if node.op_type == "Concat" and len(limits) > 1 and limits[-1] > OUTLIER * limits[0]:
        yield f"one scale holds what it joins: values up to {limits[-1]:.3g} and up to {limits[0]:.3g}"
    for array in made.values() if node.op_type in _MOVING and limits else ():
        least = float(np.abs(array).max())
        if limits[-1] > OUTLIER * least:
            yield f"it takes values up to {least:.3g} out of a tensor whose scale holds up to {limits[-1]:.3g}"
    for name, array in floats.items():
        yield from _outlier(f"what it reads, {_short(name)},", [array])
    yield from (said for said, _ in clipped)


def _largest(samples: Sequence[Mapping[str, TensorFile]], names: Iterable[str]) -> dict[str, Any]:
    """Return of each float tensor the sample with the largest value."""
    found = dict[str, Any]()
    for name in dict.fromkeys(names):
        arrays = (values.read(one[name]) for one in samples if name in one)
        floats = (array for array in arrays if array.dtype.kind == "f" and array.size)
        largest = max(floats, key=lambda array: float(np.abs(array).max()), default=None)
        found |= {} if largest is None else {name: largest}
    return found


def _clipped(
    mixer: RegionMixer, samples: Sequence[Mapping[str, TensorFile]], sides: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, bool]]:
    """Say which share of what a node reads, or makes, lies beyond the range of the integers that hold it.

    And whether it loses more than what is rounded.
    """
    assert mixer.regions
    graph, regions = mixer.model.graph, mixer.regions
    constants, low = initializers_of(graph), {node.input[0]: node for node in graph.node if is_quantization(node)}
    for name, verb in sides:
        mine = regions.back.get(name, "")
        maker, files = low.get(regions.before_pairs(mine) or mine), [one[name] for one in samples if name in one]
        least, most = ends_of(maker, constants, whole=True) if maker is not None else (None, None)
        if least is None or most is None or maker is None or maker.op_type != "QuantizeLinear" or not files:
            continue
        arrays = [values.read(one).astype(np.float64) for one in files]
        half = (most - least) / 510  # half of a step is rounding
        count = sum(int(((one < least - half) | (one > most + half)).sum()) for one in arrays)
        if count:
            size = sum(one.size for one in arrays)
            lost = sum(float(np.square(one - np.clip(one, least, most)).sum()) for one in arrays)
            said = f"{count / size:.2%} of what it {verb}, {_short(name)}, is clipped to {least:.3g} to {most:.3g}"
            yield said, lost > size * half * half / 3


def worst_outlier(material: PrecisionSetup, raised: Collection[int]) -> str:
    """Return a clause on what makes the steps coarse of the raised node that introduces the largest error."""
    worst = max(raised, key=lambda index: material.known.errors.get(index, 0.0), default=-1)
    told = next(_outliers(material, worst), "") if raised else ""
    return f"; {_short(material.casting.layers[worst].path)}: {told}" if told else ""


def _outlier(what: str, blocks: Iterable[Any]) -> Iterator[str]:
    """Say in which channel of an array the largest value is, where that is far beyond the median.

    ``blocks``: of the array along its first axis.
    """
    some, parts = [], list[list[Any]]()
    for block in blocks:
        found = np.asarray(block, np.float32)
        # the median of a mask is between two numbers whose sum is beyond float32
        some.append(np.abs(found.reshape(-1)[:: max(1, found.size >> 16)]).astype(np.float64))
        parts.append([np.maximum(found.max(axis), -found.min(axis), dtype=np.float64) for axis in _others(found.ndim)])
    every = np.concatenate(some)
    beyond_zero = every[every > 0]  # what a Relu or a mask made 0 is exact
    usual, but = float(np.median(beyond_zero)) if beyond_zero.size else 0.0, " without zeros" * bool((every == 0).any())
    peaks = [
        np.concatenate([first for first, *_ in parts]),
        *map(np.maximum.reduce, list(zip(*parts, strict=True))[1:]),
    ]
    largest = float(max(peak.max() for peak in peaks))
    if usual and largest > OUTLIER * usual:
        # the axis of which one channel stands out most
        axis = max(range(len(peaks)), key=lambda at: peaks[at].max() / max(float(np.median(peaks[at])), 1e-30))
        channel, times = int(peaks[axis].argmax()), largest / usual
        yield f"{what} reaches {largest:.3g}, {times:.0f} times its median{but}, in channel {channel} of axis {axis}"


def _others(rank: int) -> list[tuple[int, ...]]:
    return [tuple(other for other in range(rank) if other != axis) for axis in range(rank)]


def _is_mask(known: Measurements, layer: Layer) -> bool:
    """Whether a layer makes values that stand for infinity."""
    return any(known.range_of(layer, name) >= SENTINEL for name in layer.writes)


def _is_negative(loaded: Loaded, name: str) -> bool:
    """Whether what stands for infinity in a recorded tensor does so with a minus, as in a mask."""
    for sample in loaded.recorded.values:
        tensor = sample.get(name)
        if tensor is None or tensor.structure is not None:
            continue
        array = values.read(tensor)
        if array.dtype.kind == "f" and array.size:
            return bool(-array.min() >= SENTINEL)
    return False


def _values(count: int) -> str:
    return f"{count} value{'s' * (count != 1)} become{'s' * (count == 1)}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
