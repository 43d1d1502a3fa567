"""The rows of all tensors beside the report: `layerwise.csv` for spreadsheets, `layerwise.json` for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from runner.files import write_text
from runner.jobs.layerwise.findings import own_error
from runner.model.graph.graph_index import Graph

CSV, JSON = "layerwise.csv", "layerwise.json"
FILES = (CSV, JSON)
_FORMULA = ("=", "+", "-", "@")
_COLUMNS = (
    *(
        "tensor",
        "node",
        "operator",
        "output",
        "type",
        "shape",
        "sample",
        "bad",
        "kind",
        "compared",
        "error",
        "limit",
        "of_limit",
    ),
    *("max", "mean", "p99", "relative", "sqnr", "psnr", "cosine", "top1", "top5", "nan", "reference_nan", "inf"),
    *("reference_inf", "low", "high", "reference_low", "reference_high", "own", "own_of_limit", "own_bad"),
)


def full_rows(
    graph: Graph, rows: Mapping[str, Mapping[str, Any]], own: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a row for each known tensor, in topological order: what it is, and its own error beside what it holds."""
    found = []
    for name, index in graph.producers.items():
        if name not in rows and name not in own:
            continue
        node, alone = graph.nodes[index], own.get(name)
        row = dict(rows.get(name) or {"tensor": name})
        if not row.get("compared", True):
            row["error"] = row["of_limit"] = None
        row |= {"node": node.name, "operator": node.op_type}
        if "type" in row:
            row["type"] = onnx.TensorProto.DataType.Name(row["type"]).lower()
        if alone:
            row |= {f"own_{key}": alone[key] for key in ("of_limit", "bad")}
            row["own"] = own_error(alone)
        found.append(row)
    return found


def write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write both files. Raises OSError where that is impossible."""
    write_text(folder / JSON, json.dumps({"tensors": rows}, indent=1, allow_nan=False) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_flat, rows))
    write_text(folder / CSV, text.getvalue())


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in row.items() if key in _COLUMNS}
    for key in ("nan", "inf"):
        if key in row:
            flat[key], flat[f"reference_{key}"] = row[key]
    for side, key in zip(row.get("range") or (), ("", "reference_"), strict=False):
        flat |= dict(zip((f"{key}low", f"{key}high"), side or (), strict=False))
    if "shape" in row:
        flat["shape"] = "x".join(map(str, row["shape"]))
    return {key: _text(value) if isinstance(value, str) else value for key, value in flat.items()}


def _text(value: str) -> str:
    """Return a name from a file as text that no spreadsheet takes for a formula, without control characters."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line
