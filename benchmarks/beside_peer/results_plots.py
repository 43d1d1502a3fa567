"""What was measured, as plots: seconds and memory as a model grows. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.beside_peer.results_table import Row

ALONG = {"growth with nodes": "nodes", "growth with weights": "MB of weights"}
"""Groups that are drawn, and what grows in them."""


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw a figure for each group of at least two models; nothing where matplotlib is not there."""
    groups = {group: sorted((row for row in rows if row.group == group), key=lambda row: row.at) for group in ALONG}
    return [path for group, some in groups.items() if len(some) > 1 and (path := _figure(group, some, folder))]


def _figure(group: str, rows: Sequence[Row], folder: Path) -> Path | None:
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        return None
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, up in zip(figure.subplots(1, 2), ("seconds", "peak of all processes, MB"), strict=True):
        for tool in dict.fromkeys(tool for row in rows for tool in row.runs):
            points = [(row.at, value) for row in rows if (value := _value(row, tool, up)) is not None]
            across, heights = zip(*points, strict=True) if points else ((), ())
            axes.plot(across, heights, marker="o", label=tool)
        axes.set(xscale="log", yscale="log", xlabel=ALONG[group], ylabel=up)
        axes.legend()
    path = folder / f"{group.replace(' ', '_')}.svg"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": group}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _value(row: Row, tool: str, figure: str) -> float | None:
    seconds = row.seconds(tool) if tool in row.runs else None
    if seconds is None:
        return None
    return seconds[0] if figure == "seconds" else row.middle(tool, lambda run: run.cost.tree_mb)
