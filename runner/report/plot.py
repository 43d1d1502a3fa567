"""Plots of a precision search: the error of each layer, and what is left of it, with matplotlib where it is there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.text import install

log = logging.getLogger(__name__)

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
