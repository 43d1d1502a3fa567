"""What was measured, as plots: seconds and memory as a model grows, and seconds by workers. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.beside_peer.results_table import Row

ALONG = {"growth with nodes": "nodes", "growth with weights": "MB of weights"}
"""Groups that are drawn, and what grows in them."""


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw a figure for each group of at least two models; nothing where matplotlib is not there."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        print("no plots: pip install 'winnow-onnx[plot]'")
        return []
    drawn = []
    for group, along in ALONG.items():
        members = sorted((row for row in rows if row.group == group), key=lambda row: row.at)
        if len(members) < 2:
            continue
        figure = Figure(figsize=(10, 4), layout="constrained")
        for axes, up in zip(figure.subplots(1, 2), ("seconds", "peak of all processes, MB"), strict=True):
            for tool in dict.fromkeys(tool for row in members for tool in row.runs):
                points = [(row.at, value) for row in members if (value := _value(row, tool, up)) is not None]
                axes.plot(*zip(*points, strict=True), marker="o", label=tool)
            axes.set(xscale="log", yscale="log", xlabel=along, ylabel=up)
            axes.legend()
        path = folder / f"{group.replace(' ', '_')}.svg"
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": group}):
            figure.savefig(path, format="svg", metadata={"Date": None})
        drawn.append(path)
    return drawn


def _value(row: Row, tool: str, figure: str) -> float | None:
    seconds = row.seconds(tool) if tool in row.runs else None
    if seconds is None:
        return None
    return seconds[0] if figure == "seconds" else row.middle(tool, lambda run: run.cost.tree_mb)
