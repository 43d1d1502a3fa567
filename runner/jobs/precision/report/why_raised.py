"""Why a node is raised, in words: what was measured of it, and what is known of what it reads and makes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from runner.jobs.precision.cast.layers import Layer
from runner.jobs.precision.prepare_search import Material
from runner.jobs.precision.ranking import SENTINEL, Measurements
from runner.loading.load import Loaded
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.scopes import graphs_below
from runner.model.values import recorded as values
from runner.model.values.dtypes import FLOATS

_LONGEST_NAME = 60


def reason(material: Material, index: int) -> str:
    """Say what was measured of a layer: a range that the low type has not, and the error that it introduces alone."""
    alone, cause = _alone(material, index), next(_causes(material, material.casting.layers[index]), "")
    return "; ".join(part for part in (cause, alone) if part) or "the check fails without it"


def unmeasured(material: Material, index: int) -> str:
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


def _causes(material: Material, layer: Layer) -> Iterator[str]:
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


def _alone(material: Material, index: int) -> str:
    casting, known = material.casting, material.known
    error = known.errors.get(index)
    if casting.quantized:
        # what the pairs of the layer do to what it makes
        return f"its Q/DQ pairs introduce a relative error of {error:.2g}" if error is not None else ""
    # beside a Q/DQ pair, what rounding to the low type introduces says little
    if casting.mixer.restored:
        return ""
    if error is None:
        return unmeasured(material, index) if casting.layers[index].nested and not known.why else ""
    if _is_mask(known, casting.layers[index]):
        return ""  # an error relative to a value that stands for infinity means nothing
    if math.isinf(error):
        return f"not finite when it alone is in {material.strategy.low.value}"
    return f"introduces a relative error of {error:.2g}"


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
