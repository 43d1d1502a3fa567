"""A plot of the error of each layer, before and after, with matplotlib where it is installed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

LEAST = 1e-9
"""Errors below are drawn here: a logarithm has no zero."""


def plot_layers(rows: Sequence[Mapping[str, Any]], path: Path, low: str) -> bool:
    """Draw ``error_low`` and ``error_mixed`` of all rows into an SVG file; False where matplotlib cannot be used.

    What is not finite is drawn at the upper edge. No text of the model's gets into the file.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except Exception as error:  # noqa: BLE001 - an installation may be broken in any way
        log.info("%s is not drawn (%s): pip install 'winnow-onnx[plot]'", path.name, error)
        return False
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.add_subplot()
    known = [row[key] for row in rows for key in ("error_low", "error_mixed") if row[key]]
    top = max([*known, 1.0]) * 10
    for key, label, colour in (
        ("error_low", f"everything in {low}", "tab:red"),
        ("error_mixed", "as handed over", "tab:blue"),
    ):
        heights = [top if row[key] is None else max(row[key], LEAST) for row in rows]
        axes.plot(range(len(rows)), heights, label=label, color=colour, linewidth=1)
    for place, row in enumerate(rows):
        if row["raised"]:
            axes.axvline(place, color="tab:green", linewidth=0.8, alpha=0.6)
    axes.set_yscale("log")
    axes.set_xlabel("layer, in the model's order (green: raised; see layers.json)")
    axes.set_ylabel("largest error / largest value")
    axes.legend()
    temporary = path.with_name(f".{path.name}.part")
    figure.savefig(temporary, format="svg", metadata={"Date": None})
    temporary.replace(path)
    return True
