"""The error of each layer, and the curve of a precision search, from the files and the summary of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.files import inside, json_of
from runner.model.graph.graph_index import Graph
from runner.model.values.dtypes import BY_NUMBER, FLOATS
from runner.report.page.collect.tensor_values import number
from runner.report.page.data import LayerError, Number, PagePrecision, Point
from runner.report.sections.layers_section import NON_FINITE, NOT_FINITE
from runner.report.summary import Summary
from runner.text import counted

MOST_LAYERS = 10_000
_NUMPY = {"float": "float32", "double": "float64"}


def layers_of(folder: Path, summary: Summary, graph: Graph | None = None) -> tuple[list[LayerError], list[str]]:
    """Return what is known of each layer in the model's order, and what is left out: all but the worst of too many.

    ``graph``: of the original, which tells the tensors of nodes.
    """
    given = {node.name: node.outputs[0] for node in graph.nodes if node.outputs} if graph and summary.precision else {}
    rows = [*_compared(folder, summary), *_lowered(folder, summary, given)]
    if len(rows) <= MOST_LAYERS:
        return rows, []
    worst = sorted(range(len(rows)), key=lambda at: _badness(rows[at]), reverse=True)[:MOST_LAYERS]
    return [rows[at] for at in sorted(worst)], [f"of {counted(len(rows), 'layer')} the {MOST_LAYERS} worst are shown"]


def _badness(row: LayerError) -> tuple[bool, float]:
    error = row["error"] if row["error"] is not None else -1.0
    return isinstance(error, str) or row["nan"] + row["inf"] > 0, 0.0 if isinstance(error, str) else float(error)


def _compared(folder: Path, summary: Summary) -> Iterator[LayerError]:
    """Yield what `layerwise` measured: every tensor on the target against what it should hold."""
    for row in _rows(folder, (summary.layers or {}).get("files", ()), "tensors"):
        yield from _layer(row, row.get("error"), row.get("own"), _word(row))


def _word(row: Mapping[str, Any]) -> str:
    """Return "nan" or "inf" of a wrong tensor in which these are what is wrong, on the reference as well or not."""
    kind = row.get("kind") or NOT_FINITE
    if kind in NON_FINITE:
        return str(kind)
    return ("nan" if _first(row.get("nan")) else "inf") if row.get("bad") and kind == NOT_FINITE else ""


def _lowered(folder: Path, summary: Summary, given: Mapping[str, str]) -> Iterator[LayerError]:
    """Yield what a precision search measured: with everything low, and what each layer adds of its own."""
    told = summary.precision or {}
    name, low, high = told.get("layers"), str(told.get("low", "")), str(told.get("high", ""))
    limit = next(
        (FLOATS[dtype].largest for dtype, kind in BY_NUMBER.items() if kind.numpy_name == low and dtype in FLOATS), None
    )
    for row in _rows(folder, [name] if name else (), ""):
        unbounded = row.get("not_finite")
        words = {key: "inf" if isinstance(unbounded, list) and key in unbounded else "" for key in ("low", "mixed")}
        known: PagePrecision = {
            "held": high if row.get("raised") else low,
            "error": words["mixed"] or _number(row.get("error_mixed")),
            "most": _number(row.get("range")),
            "limit": limit,
            "why": _text(row, "why"),
        }
        made = {**row, "tensor": given.get(_text(row, "node"), "")}
        yield from _layer(made, row.get("error_low"), row.get("introduced"), words["low"], known)


def _layer(
    row: Mapping[str, Any], error: Any, own: Any, word: str, precision: PagePrecision | None = None
) -> Iterator[LayerError]:
    """Yield a layer of which something is known. ``word``: what its error is in place of a number."""
    if word or isinstance(error, (int, float)) or precision:
        yield {
            "tensor": _text(row, "tensor"),
            "node": _text(row, "node"),
            "error": word or _number(error),
            "own": _number(own),
            "nan": _first(row.get("nan")),
            "inf": _first(row.get("inf")),
            "precision": precision,
        }


def _number(value: Any) -> Number | None:
    return number(value) if isinstance(value, (int, float)) else None


def types_of_rows(folder: Path, summary: Summary) -> dict[str, str]:
    """Return the types of the tensors that `layerwise` compared."""
    return {
        _text(row, "tensor"): f"{_NUMPY.get(row['type'], row['type'])}{row['shape']}"
        for row in _rows(folder, (summary.layers or {}).get("files", ()), "tensors")
        if isinstance(row.get("type"), str) and isinstance(row.get("shape"), list)
    }


def curve_of(summary: Summary) -> list[Point]:
    """Return the least error, in units of what is allowed, by the number of raised nodes."""
    points = (summary.precision or {}).get("curve") or ()
    return [
        {
            "raised": int(count),
            "error": number(error),
            "outcome": "pass" if error <= 1 else "fail",
            "chosen": count == summary.nodes_after,
        }
        for count, error in points
    ]


def _rows(folder: Path, names: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of the first JSON file of a run among these."""
    for name in names:
        if isinstance(name, str) and name.endswith(".json") and inside(folder / name, folder):
            held = json_of(folder / name)
            held = held.get(key) if isinstance(held, dict) else held
            yield from (row for row in held if isinstance(row, dict)) if isinstance(held, list) else ()
            return


def _first(pair: Any) -> int:
    return int(pair[0]) if isinstance(pair, list) and pair and isinstance(pair[0], int) else 0


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""
