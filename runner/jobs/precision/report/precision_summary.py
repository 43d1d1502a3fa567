"""The summary of a precision search, and its files: layers.json, the plot of layers, the trade-off curve."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from runner.files import write_text
from runner.jobs.job import Job
from runner.jobs.precision.prepare_search import Material
from runner.jobs.precision.report import overflow_report
from runner.jobs.precision.report.layer_errors import Row, layer_errors
from runner.jobs.precision.report.precision_section import precision_section
from runner.jobs.precision.report.trade_off_curve import Curve, curve
from runner.jobs.precision.sample_rounds import Rounds
from runner.judgment import Status
from runner.report.plot import plot_curve, plot_layers
from runner.report.summary import Summary
from runner.run_folder import MIXED
from runner.schema.strategy import PrecisionSettings
from runner.session.result import Ending

LAYERS, PLOT, CURVE = "layers.json", "layers.svg", "curve.svg"


def answered(job: Job, material: Material, rounds: Rounds, ending: Ending, summary: Summary) -> Summary:
    """Return a summary with what was found, and what it is worth."""
    summary = replace(summary, nodes_before=len(material.casting.layers))
    if ending.trial is None:
        return summary
    strategy, subject = material.strategy, material.subject
    raised = subject.raised(ending.trial)
    told = {**precision_section(material, raised), **rounds.confidence.to_json(subject)}
    told, warnings = overflow_report.with_infinities(job, material, raised, told)
    summary = replace(summary, warnings=(*summary.warnings, *warnings))
    loads = rounds.mixing.loads if rounds.mixing else None
    if loads is not None:
        told = loads.with_loads(told, material.casting)
        summary = replace(summary, warnings=(*summary.warnings, *filter(None, [loads.warning])))
    rows: list[Row] = []
    if strategy.layer_errors and ending.status is not Status.interrupted:
        rows = layer_errors(material, raised, job.folder / "values" / "layer_errors")
    points = curve(rounds.entries, lambda trial: len(subject.raised(trial)))
    told |= _written(job, rows, points, strategy)
    culprits = subject.names(ending.trial)
    return replace(summary, nodes_after=len(raised), culprits=culprits, model=f"{MIXED}.onnx", precision=told)


def _written(job: Job, rows: list[Row], points: Curve, strategy: PrecisionSettings) -> dict[str, Any]:
    """Write the error of each layer, and draw the curve; return the curve, and the names of the files."""
    drawn = len(points) > 1 and plot_curve(points, job.folder / CURVE, strategy.high.value)
    found: dict[str, Any] = {"layers": None, "plot": None, "curve": points, "curve_plot": CURVE if drawn else None}
    if not rows:
        return found
    write_text(job.folder / LAYERS, json.dumps(rows, indent=1) + "\n")
    plotted = plot_layers(rows, job.folder / PLOT, strategy.low.value)
    return {**found, "layers": LAYERS, "plot": PLOT if plotted else None}
