"""Rows that are kept in a folder: a later run adds models to it, or measures some of them anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.beside_peer.measured_process import Cost
from benchmarks.beside_peer.results_plots import draw
from benchmarks.beside_peer.results_table import Row, page
from benchmarks.beside_peer.tools import Measured

_NAME = "beside_peer"


def load(folder: Path) -> list[Row]:
    """Return the rows that lie in a folder; none where it is new."""
    path = folder / f"{_NAME}.json"
    found = json.loads(path.read_text())["rows"] if path.is_file() else []
    return [
        Row(**{**row, "runs": {tool: list(map(_measured, runs)) for tool, runs in row["runs"].items()}})
        for row in found
    ]


def add(rows: list[Row], row: Row) -> None:
    """Put a row where the one of the same model stands; else behind the others of its group."""
    for at, other in enumerate(rows):
        if (other.group, other.name) == (row.group, row.name):
            rows[at] = row
            return
    rows.append(row)


def save(folder: Path, note: str, facts: Mapping[str, Mapping[str, str]], rows: Sequence[Row]) -> None:
    """Write the rows as JSON, as a page, and as plots of what grows. ``facts``: what the last run was measured with."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = [note, *(f"{name}: {', '.join(map(' '.join, found.items()))}." for name, found in facts.items())]
    (folder / f"{_NAME}.md").write_text(page("Winnow beside its peer", notes, rows))
    (folder / f"{_NAME}.json").write_text(json.dumps({**facts, "rows": list(map(asdict, rows))}, indent=1) + "\n")
    draw(rows, folder)


def _measured(run: Mapping[str, object]) -> Measured:
    return Measured(**{**run, "cost": Cost(**run["cost"])})  # type: ignore[arg-type, dict-item]
