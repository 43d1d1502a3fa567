"""The report of a precision search: result.json, layers.json, why each node is raised."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.checkers.failure_text import VALUE
from runner.engine.session_question import SessionResult
from runner.errors import WinnowError
from runner.files import write_text
from runner.jobs.job import Job
from runner.jobs.precision import overflow_report
from runner.jobs.precision.layers import Layer
from runner.jobs.precision.low_share import low_share, nodes_of
from runner.jobs.precision.prepare_search import PrecisionSetup, blocks
from runner.jobs.precision.ranking import SENTINEL, Measurements
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.sample_rounds import Rounds
from runner.jobs.precision.setup import PrecisionModel
from runner.journal.journal import Entry
from runner.judgment import Status
from runner.model.graph.graph_index import Graph, initializers_of
from runner.model.graph.scopes import graphs_below
from runner.model.values import recorded as values
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.reference.load import Loaded
from runner.reference.models import recorder, recording_backend
from runner.report.result_parts import Precision as PrecisionFound
from runner.report.result_parts import RaisedBlock, RaisedNode, StaysHigh
from runner.report.summary import Summary
from runner.run_folder import MIXED
from runner.schema.backend import BackendSettings
from runner.schema.strategy import PrecisionSettings
from runner.text import install
from strategies.trial import Trial

# Why a node is raised, in words: what was measured of it, and what is known of what it reads and makes.

_LONGEST_NAME = 60


def reason(material: PrecisionSetup, index: int) -> str:
    """Say what was measured of a layer: a range that the low type has not, and the error that it introduces alone."""
    alone, cause = _alone(material, index), next(_causes(material, material.casting.layers[index]), "")
    told = (cause, alone, next(_outliers(material, index), ""))
    return "; ".join(part for part in told if part) or "the check fails without it"


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
    if casting.mixer.restored:
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
            yield from _outlier(f"its weight {_short(name)}", parent.store.array(tensor))
    held = {name: values.read(one) for name, one in parent.values[0].items() if name in (*node.inputs, *node.outputs)}
    read, made = ({name: held[name] for name in names if name in held} for names in (node.inputs, node.outputs))
    floats = {name: array for name, array in read.items() if array.dtype.kind == "f" and array.size}
    limits = sorted(float(np.abs(array).max()) for array in floats.values())
    if node.op_type == "Concat" and len(limits) > 1 and limits[-1] > OUTLIER * limits[0]:
        yield f"one scale holds what it joins: values up to {limits[-1]:.3g} and up to {limits[0]:.3g}"
    for array in made.values() if node.op_type in _MOVING and limits else ():
        least = float(np.abs(array).max(initial=0)) if array.dtype.kind == "f" else math.inf
        if limits[-1] > OUTLIER * least:
            yield f"it takes values up to {least:.3g} out of a tensor whose scale holds up to {limits[-1]:.3g}"
    for name, array in floats.items():
        yield from _outlier(f"what it reads, {_short(name)},", array)


def _outlier(what: str, array: Any) -> Iterator[str]:
    """Say in which channel of an array the largest value is, where that is far beyond the median."""
    found = np.asarray(array, np.float32)
    usual = float(np.median(np.abs(found.reshape(-1)[:: max(1, found.size >> 20)])))
    peaks = [np.maximum(found.max(axis), -found.min(axis)) for axis in _others(found.ndim)]
    largest = float(max(peak.max() for peak in peaks))
    if usual and largest > OUTLIER * usual:
        # the axis of which one channel stands out most
        axis = max(range(found.ndim), key=lambda at: peaks[at].max() / max(float(np.median(peaks[at])), 1e-30))
        channel, times = int(peaks[axis].argmax()), largest / usual
        yield f"{what} reaches {largest:.3g}, {times:.0f} times its median, in channel {channel} of axis {axis}"


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


# The section ``precision`` of result.json: which layers are high and why, what is low, and what that costs.


def precision_section(material: PrecisionSetup, raised: frozenset[int]) -> PrecisionFound:
    """Return what is raised, and what stays low. ``raised``: all layers that are high, kept so or found."""
    strategy, casting, kept = material.strategy, material.casting, material.kept
    layers, every = casting.layers, nodes_of(casting)
    names = [one.path for one in every if one.is_high(raised)]
    short = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[strategy.high.value]
    return PrecisionFound(
        high=strategy.high.value,
        low=strategy.low.value,
        selected=tuple(
            RaisedNode(one.path, one.op_type, one.nested, kept.high.get(index) or reason(material, index))
            for index, one in ((index, layers[index]) for index in sorted(raised))
        ),
        groups=tuple(_groups(casting, material.known, raised)),
        low_share=low_share(casting, material.loaded, raised),
        stays_high=tuple(StaysHigh(one.path, one.op, one.why) for one in every if one.index is None and one.high),
        nodes_to_exclude=tuple(names),
        inlined={
            layers[index].path: casting.inlined[name]
            for index in sorted(raised)
            for name in layers[index].writes[:1]
            if name in casting.inlined
        },
        layer_precisions=dict.fromkeys(names, short),
        clamped=dict(casting.clamped),
        flushed=dict(casting.flushed),
    )


def _groups(casting: PrecisionModel, known: Measurements, raised: frozenset[int]) -> Iterator[RaisedBlock]:
    """Yield the blocks of several nodes of which something is raised.

    ``worst``: the raised node that introduces most error.
    """
    for scope, members in blocks(casting.mixer.model, casting.mixer.types, casting.layers).items():
        high = [index for index in members if index in raised]
        if high and len(members) > 1:
            worst = max(high, key=lambda index: known.errors.get(index, 0.0))
            every, some = (tuple(casting.layers[index].path for index in of) for of in (members, high))
            yield RaisedBlock(scope, every, some, len(high) == len(members), casting.layers[worst].path)


# The error of each layer's output against the reference: with everything low, and in the model handed over.

log = logging.getLogger(__name__)

Row = Mapping[str, Any]
Feeds = Sequence[Mapping[str, TensorFile]]


def layer_errors(material: PrecisionSetup, raised: frozenset[int], folder: Path) -> list[Row]:
    """Return a row for each layer, in the model's order, from one run of the target on each model.

    ``error_low`` and ``error_mixed``: the largest difference to the recorded tensor, relative to its largest value,
    over all samples; null: not finite, as ``not_finite`` lists it, or not known. Where the file itself is not as good
    as that, the model with everything raised tells what a tensor should be. ``introduced``: see `Measurements`;
    ``why``: why that is no number. ``range``: the largest magnitude of the tensor with everything in high precision;
    null: not measured, or not finite. The values of a ``nested`` layer, in a branch or a loop, are not recorded: both
    errors are null. Nothing is returned where the target is an engine: it has no inner tensors.
    """
    settings, casting, loaded = material.settings, material.casting, material.loaded
    samples = [one.feeds for one in material.subject.samples]
    if not settings.target.holds_inner_values or not samples:
        return []
    names = {index: layer.writes[0] for index, layer in enumerate(casting.layers) if layer.writes}
    recorded = {index: name for index, name in names.items() if not casting.layers[index].nested}
    wanted = set(recorded.values())

    def values_of(elements: frozenset[int], name: str, backend: BackendSettings, feeds: Feeds) -> Feeds:
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        mixer = replace(casting.mixer, keep_io=True) if name == "good" else casting.mixer
        path = place / "structure.onnx"
        path.write_bytes(mixer.mixed(elements).SerializeToString())
        graph, out = Graph.load(path), place / "values"
        return recorder(settings, backend, graph, loaded.store, material.pool, out).record(feeds).values

    try:
        good: Feeds = material.division.searched
        if casting.is_lossy and wanted:
            everything = frozenset(range(len(casting.layers)))
            inputs = [{name: one[name] for name in loaded.graph.inputs if name in one} for one in good]
            good = values_of(everything, "good", recording_backend(settings), inputs)
        low, mixed = (
            _errors(values_of(elements, name, settings.target, samples), good, wanted) if wanted else {}
            for elements, name in ((frozenset[int](), "low"), (raised, "mixed"))
        )
    except (WinnowError, OSError) as error:
        log.warning("the error of each layer is not known: %s", error)
        return []
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [
        {
            "node": casting.layers[index].path,
            "op": casting.layers[index].op_type,
            "raised": index in raised,
            "nested": index not in recorded,
            "introduced": _plain(material.known.errors.get(index)),
            "why": unmeasured(material, index) or None,
            "range": _plain(material.known.measured_range(casting.layers[index], name)),
            "error_low": _plain(low.get(known)),
            "error_mixed": _plain(mixed.get(known)),
            "not_finite": [key for key, table in (("low", low), ("mixed", mixed)) if math.isinf(table.get(known, 0.0))],
        }
        for index, name in names.items()
        for known in (recorded.get(index, ""),)
    ]


def _errors(found: Feeds, good: Feeds, wanted: set[str]) -> dict[str, float]:
    errors: dict[str, float] = {}
    for mine, best in zip(found, good, strict=False):
        for name in wanted & mine.keys() & best.keys():
            if (distance := _distance(mine[name], best[name])) is not None:
                errors[name] = max(errors.get(name, 0.0), distance)
    return errors


def _distance(mine: TensorFile, good: TensorFile) -> float | None:
    """Return the largest difference relative to the largest good value; infinity where something is not finite.

    None: there is nothing to be compared (no elements, other shapes, or no tensors).
    """
    if mine.structure is not None or good.structure is not None or mine.shape != good.shape:
        return None
    first, second = (values.read(one).astype(np.float32) for one in (mine, good))
    if not first.size:
        return None
    with np.errstate(all="ignore"):
        # equal values, and masks that stand for minus infinity, have no error
        same = (first == second) | (np.abs(second) >= np.float32(SENTINEL))
        error = np.max(np.where(same, 0, np.abs(first - second)))
        scale = np.max(np.where(np.isfinite(second) & (np.abs(second) < np.float32(SENTINEL)), np.abs(second), 0))
    return float(error / scale) if scale and math.isfinite(error) else (0.0 if error == 0 else math.inf)


def _plain(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


# The trade-off curve: the least error over the number of raised nodes, of all checks of a precision search.

Curve = list[list[float]]


def curve(entries: Iterable[Entry], raised: Callable[[Trial], int] = len) -> Curve:
    """Return [nodes raised, error / tolerance] by the number of nodes; of each number the set with the least error.

    ``raised`` counts the nodes of a trial. Checks that measured no error (another checker's, or one that met a NaN) are
    none of its points.
    """
    least: dict[int, float] = {}
    for entry in entries:
        error, limit = entry.verdict.metrics.get("error"), entry.verdict.metrics.get("limit")
        failed = entry.verdict.signature
        if entry.attempt or not isinstance(error, int | float) or not isinstance(limit, int | float) or limit <= 0:
            continue
        if failed is not None and failed.kind != "mismatch":
            continue
        count = raised(entry.trial)
        least[count] = min(least.get(count, error / limit), error / limit)
    return [[count, least[count]] for count in sorted(least)]


LAYERS, PLOT, CURVE = "layers.json", "layers.svg", "curve.svg"


def answered(job: Job, material: PrecisionSetup, rounds: Rounds, ending: SessionResult, summary: Summary) -> Summary:
    """Return a summary with what was found, and what it is worth."""
    summary = replace(summary, nodes_before=len(material.casting.layers))
    if ending.trial is None:
        return summary
    strategy, subject = material.strategy, material.subject
    raised = subject.raised(ending.trial)
    told = rounds.confidence.told(subject, precision_section(material, raised))
    told, warnings = overflow_report.with_infinities(job, material, raised, told)
    summary = replace(summary, warnings=(*summary.warnings, *warnings))
    loads = rounds.mixing.loads if rounds.mixing else None
    if loads is not None:
        told = loads.with_loads(told, material.casting)
        summary = replace(summary, warnings=(*summary.warnings, *filter(None, [loads.warning])))
    rows: list[Row] = []
    if strategy.layer_errors and ending.status is not Status.interrupted:
        rows = layer_errors(material, raised, job.folder / "values" / "layer_errors")
    told = replace(told, numbers=_numbers(rounds.entries, material, ending.trial))
    points = curve(rounds.entries, lambda trial: len(subject.raised(trial)))
    told = _written(job, rows, points, strategy, told)
    culprits = subject.names(ending.trial)
    return replace(summary, nodes_after=len(raised), culprits=culprits, model=f"{MIXED}.onnx", precision=told)


def _numbers(entries: Iterable[Entry], material: PrecisionSetup, found: Trial) -> dict[str, float]:
    """Return what a check of the user's measured of the model in high and in low precision, and as handed over."""
    strategy, made = material.strategy, dict[str, float]()
    low = "int8" if material.casting.quantized else strategy.low.value
    for entry in entries:
        value = entry.verdict.metrics.get(VALUE)
        if isinstance(value, int | float) and not isinstance(value, bool):
            kept = len(material.subject.raised(entry.trial))
            every = kept == len(material.casting.layers)
            names = ((every, strategy.high.value), (not kept, low), (entry.trial == found, "as handed over"))
            made |= {name: float(value) for holds, name in names if holds}
    return {name: made[name] for name in (strategy.high.value, low, "as handed over") if name in made}


def _written(
    job: Job, rows: list[Row], points: Curve, strategy: PrecisionSettings, told: PrecisionFound
) -> PrecisionFound:
    """Write the error of each layer, and draw the curve; return what is told with the curve and the files' names."""
    drawn = len(points) > 1 and plot_curve(points, job.folder / CURVE, strategy.high.value)
    told = replace(told, curve=tuple(map(tuple, points)), curve_plot=CURVE if drawn else None)
    if not rows:
        return told
    write_text(job.folder / LAYERS, json.dumps(rows, indent=1) + "\n")
    plotted = plot_layers(rows, job.folder / PLOT, strategy.low.value)
    return replace(told, layers=LAYERS, plot=PLOT if plotted else None)


# Plots: the error of each layer, and what is left of it, with matplotlib where it is there.

LEAST = 1e-9
"""Errors below are drawn here: a logarithm has no zero."""


def plot_layers(rows: Sequence[Mapping[str, Any]], path: Path, low: str) -> bool:
    """Draw ``error_low`` and ``error_mixed`` of all rows into an SVG file; False where matplotlib cannot be used.

    What is not finite is marked at the upper edge, what is not known is left out. No text of the model's gets into the
    file.
    """

    def draw(axes: Any) -> None:
        known = [row[key] for row in rows for key in ("error_low", "error_mixed") if row[key]]
        top = max([*known, 1.0]) * 10
        for key, label, color in (("low", f"everything in {low}", "tab:red"), ("mixed", "as handed over", "tab:blue")):
            errors = [row[f"error_{key}"] for row in rows]
            heights = [float("nan") if error is None else max(error, LEAST) for error in errors]
            axes.plot(range(len(rows)), heights, label=label, color=color, linewidth=1, marker=".", markersize=2)
            places = [place for place, row in enumerate(rows) if key in row.get("not_finite", ())]
            if places:
                style = {"linestyle": "none", "marker": "^" if key == "low" else "v", "color": color, "markersize": 6}
                axes.plot(places, [top] * len(places), label=f"Inf or NaN, {label}", clip_on=False, **style)
        raised = [place for place, row in enumerate(rows) if row["raised"]]
        for number, place in enumerate(raised):
            axes.axvline(place, color="tab:green", linewidth=0.8, alpha=0.6, label="" if number else "raised")
        axes.set_ylim(min([*known, 1.0]) / 3, top)

    return _plot(path, draw, "layer, in the model's order (see layers.json)", "largest error / largest value")


def plot_curve(points: Sequence[Sequence[float]], path: Path, high: str) -> bool:
    """Draw the error that is left by the number of raised nodes; False where matplotlib cannot be used.

    An error of zero is drawn below all others.
    """

    def draw(axes: Any) -> None:
        least = min([error for _, error in points if error > 0] or [1.0])
        counts, errors = zip(*((count, error or least / 10) for count, error in points), strict=True)
        label = "least error of the sets that were tried"
        axes.plot(counts, errors, label=label, marker="o", markersize=3, linewidth=1)
        axes.axhline(1.0, color="tab:red", linewidth=0.8, linestyle="--", label="tolerance")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter("{x:g}")

    return _plot(path, draw, f"nodes in {high}", "error / tolerance")


def _plot(path: Path, draw: Callable[[Any], None], across: str, up: str) -> bool:
    """Write what is drawn on a logarithmic axis upwards."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except Exception as error:  # noqa: BLE001 - an installation may be broken in any way
        log.info("%s is not drawn (%s): %s", path.name, error, install("plot"))
        return False
    figure = Figure(figsize=(11, 4.5))
    axes = figure.add_subplot()
    axes.set_yscale("log")  # first: limits of a linear axis are none of its
    draw(axes)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.minorticks_off()
    axes.legend()
    temporary = path.with_name(f".{path.name}.part")
    figure.savefig(temporary, format="svg", metadata={"Date": None})
    temporary.replace(path)
    return True
