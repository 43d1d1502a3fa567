"""The report of a precision search: result.json, layers.json, why each node is raised, plots."""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from runner.checkers.failure_text import VALUE
from runner.disk_space import bytes_of
from runner.engine.session_question import SessionResult
from runner.exit_codes import Status, WinnowError
from runner.files import write_text
from runner.jobs.job import Job
from runner.jobs.precision.explanations import reason, unmeasured, with_infinities, worst_outlier
from runner.jobs.precision.mixed_model import Margin
from runner.jobs.precision.prepare_search import PrecisionSetup
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.sample_rounds import Rounds
from runner.jobs.precision.setup import PrecisionModel
from runner.jobs.precision.units import SENTINEL, Measurements, blocks, low_share, nodes_of, quantized_nodes
from runner.journal.journal import Entry
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import refused_by_tensorrt
from runner.model.graph.scopes import initializers
from runner.model.values import recorded as values
from runner.model.values import tensor_bytes
from runner.model.values.recorded import TensorFile
from runner.reference.models import recorder, recording_backend
from runner.report.precision_section import cured, per_byte
from runner.report.result_parts import Precision as PrecisionFound
from runner.report.result_parts import RaisedBlock, RaisedNode, StaysHigh
from runner.report.short_answer import OTHER_LEVEL, nothing_low, stays_high
from runner.report.summary import Summary
from runner.run_folder import MIXED
from runner.schema.backend import BackendSettings
from runner.schema.strategy import FloatType
from runner.text import counted, install
from runner.verdict import REFUSED, Verdict
from strategies.search import Claim, Outcome, Trial

# The section ``precision`` of result.json: which layers are high and why, what is low, and what that costs.


def high_called(material: PrecisionSetup) -> str:
    """Return what raised layers are in: the high type, unless their weights stay as they are."""
    mixer = material.casting.mixer
    is_level = isinstance(mixer, RegionMixer) and mixer.regions.changes_levels
    return OTHER_LEVEL if is_level else material.strategy.high.value


def precision_section(material: PrecisionSetup, raised: frozenset[int]) -> PrecisionFound:
    """Return what is raised, and what stays low. ``raised``: all layers that are high, kept so or found."""
    strategy, casting, kept = material.strategy, material.casting, material.kept
    layers, every = casting.layers, nodes_of(casting)
    names = [one.path for one in every if one.is_high(raised)]
    short = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8"}[strategy.high.value]
    return PrecisionFound(
        high=high_called(material),
        low=strategy.low.value,
        selected=tuple(
            RaisedNode(one.path, one.op_type, one.nested, kept.high.get(index) or _why(material, index))
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


def _why(material: PrecisionSetup, index: int) -> str:
    """Say why a node is raised, and with which one, where it is no question of its own."""
    leader = material.subject.following.get(index)
    beside = "" if leader is None else f"raised with {material.casting.layers[leader].path}; "
    return beside + reason(material, index)


def _groups(casting: PrecisionModel, known: Measurements, raised: frozenset[int]) -> Iterator[RaisedBlock]:
    """Yield the blocks of several nodes of which something is raised.

    ``worst``: the raised node that introduces most error.
    """
    for scope, members in blocks(casting).items():
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
            inputs = [{name: one[name] for name in loaded.graph.inputs if name in one} for one in good]
            good = values_of(casting.mixer.everything, "good", recording_backend(settings), inputs)
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
            "range": _plain(material.known.ranges.get(f"{casting.layers[index].key[0]}/{name}")),
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
            if (error := distance(mine[name], best[name])) is not None:
                errors[name] = max(errors.get(name, 0.0), error)
    return errors


def distance(mine: TensorFile, good: TensorFile) -> float | None:
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
    for trial, error in _errors_of(entries):
        count = raised(trial)
        least[count] = min(least.get(count, error), error)
    return [[count, least[count]] for count in sorted(least)]


def _errors_of(entries: Iterable[Entry]) -> Iterator[tuple[Trial, float]]:
    """Yield the trials of which an error was measured, each with that as a part of what is allowed."""
    for entry in entries:
        error, limit = entry.verdict.metrics.get("error"), entry.verdict.metrics.get("limit")
        failed = entry.verdict.signature
        if entry.attempt or not isinstance(error, int | float) or not isinstance(limit, int | float) or limit <= 0:
            continue
        if failed is not None and failed.kind != "mismatch":
            continue
        yield entry.trial, error / limit


@dataclass(frozen=True)
class Quantized:
    """A model that was quantized. ``low``: to what. ``model``: the float one.

    ``args``: what the tool was asked. ``excluded``: what it left out at last; ``holds``: the outcome of the check then;
    empty: not known.
    """

    low: str
    model: Path
    args: Mapping[str, Any]
    excluded: tuple[str, ...] = ()
    holds: str = ""


@dataclass
class Besides:
    """What was found besides the answer. ``made``: how the model was quantized, if it was.

    ``alone``: what came of each unit that alone was low, see `alone_low`. ``cures``: what came of other ways to
    quantize the whole model. ``within``: what `within` chose. ``pairs_fail``: why nothing but Q/DQ pairs fails.
    """

    made: Quantized | None
    alone: list[tuple[int, Row]] = field(default_factory=list)
    cures: list[dict[str, Any]] = field(default_factory=list)
    pairs_fail: str = ""
    within: dict[str, Any] = field(default_factory=dict)


SCRIPT = "quantize.py"
"""What quantizes the float model again, but for what has to stay."""
LAYERS, PLOT, CURVE = "layers.json", "layers.svg", "curve.svg"


def answered(
    job: Job, material: PrecisionSetup, rounds: Rounds, ending: SessionResult, summary: Summary, found: Besides
) -> Summary:
    """Return a summary with what was found, and what it is worth."""
    strategy, subject = material.strategy, material.subject
    summary = replace(summary, nodes_before=len(material.casting.layers) - len(subject.following))
    if ending.trial is None:
        return summary
    raised = subject.raised(ending.trial)
    told = rounds.confidence.told(subject, precision_section(material, raised))
    told, inside = with_infinities(job, material, raised, told)
    warnings = [*summary.warnings, *inside]
    loads = rounds.mixing.loads if rounds.mixing else None
    if loads is not None:
        told = loads.with_loads(told, material.casting)
        warnings += filter(None, [loads.warning])
    warnings += _refused(rounds)
    rows: list[Row] = []
    if strategy.layer_errors and ending.status is not Status.interrupted:
        rows = layer_errors(material, raised, job.folder / "values" / "layer_errors")
    points = curve(rounds.entries, lambda trial: len(subject.raised(trial) - subject.following.keys()))
    culprits, asked = subject.names(ending.trial), raised - subject.following.keys()
    every = len(asked) == summary.nodes_before and not rounds.confidence.kept
    told, runs_there = _for_tools(material, told, raised, found.made), job.settings.target.builds_engines
    told = replace(
        _written(job, rows, points, told),
        numbers=_numbers(rounds.entries, material, ending.trial, (told.high, told.low)),
        alone=tuple(row for _, row in found.alone),
        each_fails=every and each_fails(rounds.entries, subject.raised, asked),
        pairs_fail=found.pairs_fail,
        within_budget=found.within,
        cures=tuple(found.cures),
        tensorrt_refuses=() if runs_there else tuple(refused_by_tensorrt(subject.model(raised))),
    )
    layers = material.casting.mixer.everything - subject.following.keys()
    low = ((layers - subject.raised(trial), error) for trial, error in _errors_of(rounds.entries))
    alone = {index: error for one, error in low if len(one) == 1 for index in one}
    nowhere = f"{stays_high(told, sentence=True)}; " if culprits and nothing_low(told) else ""
    return replace(
        summary,
        message=f"{nowhere}{summary.message}{worst_outlier(material, asked, alone)}{cured(told)}",
        warnings=tuple(warnings),
        nodes_after=len(asked),
        culprits=culprits,
        minimality=Claim.ONE_MINIMAL.value if told.each_fails else summary.minimality,
        model=f"{MIXED}.onnx",
        precision=told,
    )


def each_fails(entries: Iterable[Entry], raised: Callable[[Trial], frozenset[int]], layers: frozenset[int]) -> bool:
    """Whether each of all ``layers`` was tried as the only low one, and failed, where a runtime took it."""
    failed = (one for one in entries if one.verdict.outcome in (Outcome.FAIL, Outcome.DIFFERENT) and not one.attempt)
    judged = (one for one in failed if not (one.verdict.signature and one.verdict.signature.refuses))
    low = [layers - raised(one.trial) for one in judged]
    return bool(layers) and layers == {index for one in low if len(one) == 1 for index in one}


def _refused(rounds: Rounds) -> Iterator[str]:
    """Say how many mixed models no runtime took, where both ends load: these were neither good nor bad."""
    assert rounds.mixing
    failed = [one for one in rounds.entries if one.verdict.outcome is Outcome.FAIL and one.verdict.signature]
    refused = [one.verdict.reason for one in failed if one.verdict.signature and one.verdict.signature.refuses]
    if refused and rounds.mixing.session.judge.studied.loads:
        yield f"{counted(len(refused), 'mixed model')} not judged: {REFUSED}: {refused[0]}"


def alone_low(
    material: PrecisionSetup,
    margin: Margin,
    alone: Mapping[int, Verdict],
    trial: Trial,
    times: Mapping[int, float | None],
) -> list[tuple[int, Row]]:
    """Return the units by the error that each makes when it alone is low, what makes most first.

    ``error``: in units of the tolerance; None: not finite, or the check does not tell. ``bytes``: of weights, that it
    costs to keep it high; ``milliseconds``: of a run, see `run.milliseconds`, where ``times`` has it.
    """
    subject, mixer = material.subject, material.casting.mixer
    least = _bytes(mixer.mixed(subject.raised(Trial.of([])))) if alone else 0

    def row(unit: int, verdict: Verdict) -> Row:
        one, share = Trial.of([unit]), _plain(margin.share(verdict))
        cost = max(0, _bytes(mixer.mixed(subject.raised(one))) - least)  # names are bytes, too
        names, raised = list(subject.names(one)), unit in trial.elements
        told: Row = {"nodes": names, "error": share, "outcome": verdict.outcome.value, "bytes": cost, "raised": raised}
        return {**told, "milliseconds": times[unit]} if unit in times else told

    def size(one: tuple[int, Row]) -> float:
        error = one[1]["error"]
        unknown = math.inf if one[1]["outcome"] in (Outcome.FAIL.value, Outcome.DIFFERENT.value) else -1.0
        return unknown if error is None else float(error)

    return sorted(((unit, row(unit, verdict)) for unit, verdict in alone.items()), key=size, reverse=True)


def within(rows: Sequence[tuple[int, Row]], budget: str) -> tuple[Trial, ...]:
    """Return the units that buy most within ``strategy.budget``: nodes, or bytes. Raises UsageError for neither.

    Of bytes these are two sets where they differ: what makes most error first, and what makes most for each byte.
    Neither is better in all networks, so both are to be checked (benchmarks/results/budgets.md).
    """
    count = int(budget) if budget.isdigit() else None
    most = bytes_of("strategy.budget", budget) if count is None else count
    assert most is not None

    def filled(order: Iterable[tuple[int, Row]]) -> Trial:
        left, chosen = most, []
        for unit, row in order:
            cost = row["bytes"] if count is None else len(row["nodes"])
            if cost <= left:
                chosen.append(unit)
                left -= cost
        return Trial.of(chosen)

    orders = [rows, sorted(rows, key=lambda one: -per_byte(one[1]))] if count is None else [rows]
    return tuple(dict.fromkeys(filled(order) for order in orders))


def _bytes(model: ModelProto) -> int:
    """Return what the initializers of a model take."""
    return sum(tensor_bytes.byte_size(one.data_type, one.dims) or 0 for one in initializers(model))


def excluded(material: PrecisionSetup, raised: frozenset[int]) -> tuple[str, ...]:
    """Return the names that raised nodes have in the float model, as quantizers want to be told them.

    Where that was prepared before it was quantized (nodes were fused), the names are those of what was quantized.
    """
    inherited, casting = material.loaded.inherited, material.casting
    assert inherited
    asked, parent = raised - material.subject.following.keys(), inherited.parent.graph.nodes
    parents = {node.name for node in parent}
    if isinstance(casting.mixer, RegionMixer):
        regions = casting.mixer.found
        found = [
            [_before_quantizing(name, parents) for name in one.nodes] or [parent[one.main].name] for one in regions
        ]
        if parents.isdisjoint(name for names in found for name in names):  # the quantized file has names of its own
            found = [[parent[at].name for at in sorted(one.parent)] for one in regions]
        names = [name for index in sorted(asked) for name in found[index] if name]
    else:
        names = [_before_quantizing(one.path, parents) for one in nodes_of(casting) if one.is_high(asked)]
    known = quantized_nodes(material.strategy, material.loaded)
    # quantize_dynamic looks at names after it has made a MatMul and an Add of a Gemm
    made = {node.name for node in casting.mixer.model.graph.node}
    kept = [name for name in dict.fromkeys(names) if not known or name in known or name not in parents]
    return (*kept, *(f"{name}_MatMul" for name in kept if f"{name}_MatMul_quant" in made))


def beside(material: PrecisionSetup, raised: frozenset[int]) -> frozenset[int]:
    """Return these layers with those that make what they read, or read it as well.

    A tool quantizes a tensor for all who read it, as long as one of these is quantized.
    """
    layers = material.casting.layers
    read = {name for index in raised for name in layers[index].reads}
    near = (index for index, one in enumerate(layers) if not read.isdisjoint((*one.reads, *one.writes)))
    return raised.union(near)


def _for_tools(
    material: PrecisionSetup, told: PrecisionFound, raised: frozenset[int], made: Quantized | None
) -> PrecisionFound:
    """Return what was found with lists for quantizers."""
    if not material.casting.quantized or material.loaded.inherited is None:
        return told
    names = (made.excluded if made else ()) or excluded(material, raised)
    words: dict[str, Any] = {}
    if made is None and (more := [one for one in excluded(material, beside(material, raised)) if one not in names]):
        words["beside"] = more
    if told.high not in (FloatType.int8, OTHER_LEVEL):
        words["patterns"] = [f"^{re.escape(name)}$" for name in names]
        if made.low == "int4" if made else _has_nibbles(material.casting.mixer.model):
            words["int4_nodes_to_exclude"] = ",".join(names)
    if told.high == OTHER_LEVEL:
        told = replace(told, low=made.low if made else told.low, layer_precisions={})
    if made is not None:
        words |= {"low": made.low, "model": str(made.model), "script": SCRIPT, "holds": made.holds}
    return replace(told, nodes_to_exclude=names, quantizers=words)


def _has_nibbles(model: ModelProto) -> bool:
    """Whether weights of a model are in four bits."""
    is_int4 = any(one.data_type in (TensorProto.INT4, TensorProto.UINT4) for one in initializers(model))
    return is_int4 or any(one.name == "bits" and one.i == 4 for node in model.graph.node for one in node.attribute)


_SUFFIX, _PART = re.compile(r"_(quant|Q\d)$"), re.compile(r"_(MatMul|matmul)$")
"""What ONNX Runtime's tools put behind the name of a node that they replace, and before that behind a part of it."""


def _before_quantizing(name: str, parents: Collection[str]) -> str:
    """Return the name that a node had before a tool quantized it: that of one of the float model, if there is one."""
    whole = _SUFFIX.sub("", name)
    return next((one for one in (name, whole, _PART.sub("", whole)) if one in parents), whole)


def _numbers(
    entries: Iterable[Entry], material: PrecisionSetup, found: Trial, ends: tuple[str, str]
) -> dict[str, float]:
    """Return what a check of the user's measured of the model in high and in low precision, and as handed over."""
    made, (high, low) = dict[str, float](), ends
    for entry in entries:
        value = entry.verdict.metrics.get(VALUE) if not entry.attempt else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            kept = len(material.subject.raised(entry.trial))
            every = kept == len(material.casting.layers)
            names = ((every, high), (not kept, low), (entry.trial == found, "as handed over"))
            made |= {name: float(value) for holds, name in names if holds}
    return {name: made[name] for name in (high, low, "as handed over") if name in made}


def _written(job: Job, rows: list[Row], points: Curve, told: PrecisionFound) -> PrecisionFound:
    """Write the error of each layer, and draw the curve; return what is told with the curve and the files' names."""
    drawn = len(points) > 1 and plot_curve(points, job.folder / CURVE, told.high)
    told = replace(told, curve=tuple(map(tuple, points)), curve_plot=CURVE if drawn else None)
    if not rows:
        return told
    write_text(job.folder / LAYERS, json.dumps(rows, indent=1) + "\n")
    plotted = plot_layers(rows, job.folder / PLOT, told.low)
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
        for key, label, color in (("low", f"everything in {low}", "tab:red"), ("mixed", "mixed model", "tab:blue")):
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
