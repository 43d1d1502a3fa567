"""Values of tensors on a page: samples, the reduced model's, and errors of layers.

Samples of tensors: range, histogram, first elements, and where good and wrong values differ.

A tensor is read from where it lies, a block of elements at a time, whatever its size.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto

from runner.checkers.metrics import BLOCK, Array, Pair, blocks, real, side_of
from runner.files import inside, json_of
from runner.judgment import NON_FINITE
from runner.model.graph.graph_index import Graph as Index
from runner.model.graph.scopes import initializers
from runner.model.values import recorded
from runner.model.values.dtypes import BY_NUMBER, FLOATS
from runner.model.values.recorded import TensorFile, mapped
from runner.model.values.tensor_bytes import is_external
from runner.report.diagnosis_sections import NOT_FINITE
from runner.report.page import data as pages
from runner.report.page.graph_columns import columns, dtype_text, types_of, value_text
from runner.report.result_parts import Precision, Row
from runner.report.summary import Summary
from runner.text import counted
from runner.verdict import Sample

log = logging.getLogger(__name__)
MOST_TENSORS, MOST_BINS, MOST_FIRST, MOST_DIFFERENCES = 64, 64, 64, 32
MOST_ELEMENTS = 1 << 26
"""Elements of all tensors of a page together; further ones are not read."""
_LONGEST = 64
_MOST_NAMED = 200


def number(value: Any) -> pages.Number:
    """Return an element, or a measure, as JSON has it."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, (str, bytes)):
        return (value if isinstance(value, str) else value.decode("utf-8", "replace"))[:_LONGEST]
    if isinstance(value, complex):
        return str(value)
    value = float(value)
    return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def tensors(
    where: str, names: Sequence[str], good: Mapping[str, TensorFile], wrong: Mapping[str, TensorFile]
) -> tuple[list[pages.PageTensor], int]:
    """Return a sample of each tensor that has values, and of how many there is none: too many, or not to be read."""
    found: list[pages.PageTensor] = []
    left, elements = 0, 0
    for name in names:
        pair = [side[name] if name in side and side[name].structure is None else None for side in (good, wrong)]
        elements += sum(math.prod(one.shape) for one in pair if one)
        if len(found) >= MOST_TENSORS or elements > MOST_ELEMENTS:
            left += 1
        elif any(pair):
            try:
                found.append(_tensor(name, where, *pair))
            except Exception as error:
                log.debug("values of %s for the page: %s", name, error, exc_info=True)
                left += 1
    return found, left


def _tensor(name: str, where: str, good: TensorFile | None, wrong: TensorFile | None) -> pages.PageTensor:
    count, differences = compared(good, wrong)
    return {
        "name": name,
        "where": where,
        "good": sample(mapped(good), good.dtype) if good else None,
        "wrong": sample(mapped(wrong), wrong.dtype) if wrong else None,
        "differences": differences,
        "differing": count,
    }


def sample(array: Array, dtype: int) -> pages.PageValues:
    """Return what is shown of a tensor's values."""
    flat, text = array.reshape(-1), array.dtype.kind in "OSU"
    side: dict[str, Any] = {"nan": 0, "inf": 0, "range": None} if text else side_of(flat)
    low, high = side["range"] or (None, None)
    finite = flat.size - side["nan"] - side["inf"]
    edges, counts, mean = _histogram(flat, side["range"], finite) if side["range"] else ([], [], None)
    return {
        "dtype": dtype_text(dtype),
        "shape": list(array.shape),
        "low": low,
        "high": high,
        "mean": mean,
        "nan": side["nan"],
        "inf": side["inf"],
        "edges": edges,
        "counts": counts,
        "first": [number(one) for one in flat[:MOST_FIRST]],
    }


def _histogram(flat: Array, span: Sequence[float], count: int) -> tuple[list[float], list[int], float]:
    """Return edges and counts of bins from the lowest to the highest finite value, and the mean of all of these."""
    low, high = span
    unit = max(abs(low), abs(high)) or 1.0  # so that neither a sum nor a width overflows
    bins = int(min(MOST_BINS, high - low + 1)) if flat.dtype.kind in "iub" else MOST_BINS
    edges = np.linspace(low / unit, high / unit, bins + 1)
    if not np.all(np.diff(edges) > 0):  # so near each other that no number lies between
        edges = np.array([low / unit, high / unit])
    counts, total = np.zeros(len(edges) - 1, dtype=np.int64), 0.0
    for block in blocks(flat):
        kept = np.abs(real(block)) if block.dtype.kind == "c" else real(block)
        kept = kept[np.isfinite(kept)] / unit
        counts += np.histogram(kept, edges)[0]
        total += float(kept.sum())
    return (edges * unit).clip(low, high).tolist(), counts.tolist(), min(max(total / count * unit, low), high)


def compared(one: TensorFile | None, other: TensorFile | None) -> tuple[int | None, list[pages.PageDifference]]:
    """Return how many elements differ (a NaN and a NaN do not), and the worst of them; None: not alike.

    The worst are those that are NaN or Inf on one side only, then those that are farthest apart; of equals the first.
    """
    if not one or not other or (one.structure, one.dtype, one.shape) != (None, other.dtype, other.shape):
        return None, []
    good, wrong, count = mapped(one), mapped(other), 0
    worst: list[tuple[float, int]] = []
    flat, other_flat = good.reshape(-1), wrong.reshape(-1)
    for at, (mine, theirs) in enumerate(Pair(flat, other_flat).stored()):
        places = np.flatnonzero(_apart(mine, theirs))
        count += len(places)
        far = _distance(mine[places], theirs[places])
        order = np.argsort(-far, kind="stable")[:MOST_DIFFERENCES]
        worst += [(-float(far[one]), at * BLOCK + int(places[one])) for one in order]
        worst = sorted(worst)[:MOST_DIFFERENCES]
    found: list[pages.PageDifference] = []
    for _, place in worst:
        index = [int(one) for one in np.unravel_index(place, good.shape)] if good.shape else []
        found.append(pages.PageDifference(index=index, good=number(flat[place]), wrong=number(other_flat[place])))
    return count, found


def _distance(good: Array, wrong: Array) -> Array:
    """Return how far elements that differ are apart; what is no distance is larger than any."""
    if good.dtype.kind in "OSU":
        return np.ones(good.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = np.abs(real(good) - real(wrong))
    return np.where(np.isfinite(found), found, np.inf)


def _apart(good: Array, wrong: Array) -> Array:
    apart = np.asarray(good != wrong, dtype=bool)
    if good.dtype.kind in "OSUiub" or not apart.any():
        return apart
    return apart & ~(np.isnan(real(good)) & np.isnan(real(wrong)))


# The reduced model of a page: its graph, and good and wrong values of what it is fed and gives.

WHERE = "the reduced model, on the inputs kept with it"
MOST_INNER, LARGEST_MARKED = 48, 32 << 20
"""Tensors inside a reduced model, and bytes of its file, up to which these are looked at."""


@dataclass(frozen=True)
class Reduced:
    """``types``: of its tensors. ``seconds``: that further runs took for the values; ``left``: what is left out."""

    graph: pages.PageGraph
    types: Mapping[str, str]
    tensors: list[pages.PageTensor]
    seconds: float
    left: tuple[str, ...]


def reduced_of(folder: Path, summary: Summary, model: ModelProto, sample: Sample, material: pages.PageData) -> Reduced:
    """Return the graph of the model that was handed over with its values. ``sample``: what it is fed.

    Types are those that were recorded of the whole model where that was fed the same; it may be fed smaller values.
    """
    index, started, run, known = Index.of(model), time.monotonic(), material.run, material.recorded
    good: Mapping[str, TensorFile] = {**sample.feeds, **sample.expected}
    wrong: Mapping[str, TensorFile] = {}
    with TemporaryDirectory() as scratch:
        if run is not None and summary.model:
            try:
                wrong, inner = _run(run, index, folder / summary.model, sample, Path(scratch))
                good = {**inner, **good}
            except Exception as error:
                log.debug("values for the page: %s", error, exc_info=True)
        seconds = time.monotonic() - started if run is not None else 0.0
        names = dict.fromkeys((*index.outputs, *index.inputs, *index.producers))
        found, left = tensors(WHERE, [name for name in names if name in good or name in wrong], good, wrong)
    same = all(name in known and known[name].shape == one.shape for name, one in sample.feeds.items())
    types = types_of(index, material if same else pages.PageData())
    types |= {name: value_text(value) for name, value in {**wrong, **good}.items() if not types.get(name)}
    said = (f"values of {counted(left, 'tensor')} are not shown",) if left else ()
    return Reduced(columns(index, types, (*summary.culprits, *summary.nested)), types, found, seconds, said)


def _run(
    run: pages.Run, index: Index, path: Path, sample: Sample, scratch: Path
) -> tuple[Mapping[str, TensorFile], Mapping[str, TensorFile]]:
    """Return what the target makes of the reduced model, and the good values of the tensors inside.

    Those inside are told only where the model's own outputs are the same with them as outputs, too.
    """
    wrong = run("target", path, sample, scratch / "outputs")
    inner = [name for name in index.producers if name not in index.output_set]
    elsewhere = any(map(is_external, initializers(index.model)))  # weights beside the file would have to be copied
    if not wrong or elsewhere or not 0 < len(inner) <= MOST_INNER or path.stat().st_size > LARGEST_MARKED:
        return wrong, {}
    marked = ModelProto()
    marked.CopyFrom(index.model)
    marked.graph.output.extend(index.value_info.get(name) or ValueInfoProto(name=name) for name in inner)
    place = scratch / "marked.onnx"
    place.write_bytes(marked.SerializeToString())
    shown = run("target", place, sample, scratch / "inside")
    if not wrong.keys() <= shown.keys() or any(compared(wrong[name], shown[name])[0] != 0 for name in wrong):
        return wrong, {}
    good = run("reference", place, sample, scratch / "good")
    return shown, {name: good[name] for name in inner if name in good}


def kept_sample(folder: Path) -> Sample:
    """Return the tensors in the data set that lies beside a model which was handed over."""
    sides: tuple[dict[str, TensorFile], dict[str, TensorFile]] = ({}, {})
    for kind, held in zip(("input", "output"), sides, strict=True):
        for path in sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb")):
            with suppress(OSError, ValueError):
                tensor = recorded.load(path)
                held[tensor.name] = TensorFile(tensor.name, path, tensor.data_type, tuple(tensor.dims))
    return Sample(*sides)


# The error of each layer, and the curve of a precision search, from the files and the summary of a run.

_NUMPY = {"float": "float32", "double": "float64"}


def layers_of(folder: Path, summary: Summary, graph: Index | None = None) -> list[pages.LayerError]:
    """Return what is known of each layer in the model's order. ``graph``: of the original, names nodes' tensors."""
    given = {node.name: node.outputs[0] for node in graph.nodes if node.outputs} if graph and summary.precision else {}
    return [*_compared(folder, summary), *_lowered(folder, summary, given)]


def _compared(folder: Path, summary: Summary) -> Iterator[pages.LayerError]:
    """Yield what `layerwise` measured: every tensor on the target against what it should hold.

    Of a tensor that was only made of good values nothing but its own error is known.
    """
    for row in _rows(folder, _files(summary), "tensors"):
        error = _word(row) or row.get("error")
        if error is not None or row.get("own") is not None:
            yield _layer(row, row["tensor"], error, row.get("own"))


def _word(row: Row) -> str | None:
    """Return "nan" or "inf" of a wrong tensor in which these are what is wrong, on the reference as well or not."""
    if row.get("kind") in NON_FINITE:
        return str(row["kind"])
    of_both = row.get("bad") and row["kind"] in ("", NOT_FINITE)
    return ("nan" if row.get("nan", (0,))[0] else "inf") if of_both else None


def _lowered(folder: Path, summary: Summary, given: Mapping[str, str]) -> Iterator[pages.LayerError]:
    """Yield what a precision search measured: with everything low, and what each layer adds of its own."""
    told = summary.precision or Precision()
    limit = next(
        (FLOATS[one].largest for one, kind in BY_NUMBER.items() if kind.numpy_name == told.low and one in FLOATS), None
    )
    for row in _rows(folder, [told.layers] if told.layers else (), ""):
        low, mixed = ("inf" if one in row["not_finite"] else row[f"error_{one}"] for one in ("low", "mixed"))
        known: pages.PagePrecision = {
            "held": told.high if row["raised"] else told.low,
            "error": mixed,
            "most": row.get("range"),
            "limit": limit,
            "why": row.get("why") or "",
        }
        yield _layer(row, given.get(row["node"], ""), low, row["introduced"], known)


def _layer(
    row: Row,
    tensor: str,
    error: pages.Number | None,
    own: pages.Number | None,
    precision: pages.PagePrecision | None = None,
) -> pages.LayerError:
    node, (nan, inf) = row["node"], (row.get(key, (0,))[0] for key in NON_FINITE)
    return pages.LayerError(tensor=tensor, node=node, error=error, own=own, nan=nan, inf=inf, precision=precision)


def types_of_rows(folder: Path, summary: Summary) -> dict[str, str]:
    """Return the types of the tensors that `layerwise` compared."""
    return {
        row["tensor"]: f"{_NUMPY.get(row['type'], row['type'])}{list(row['shape'])}"
        for row in _rows(folder, _files(summary), "tensors")
        if row.get("type") and row.get("shape") is not None
    }


def curve_of(summary: Summary) -> list[pages.Point]:
    """Return the least error, in units of what is allowed, by the number of raised nodes."""
    points = summary.precision.curve if summary.precision else ()
    return [
        {
            "raised": int(count),
            "error": number(error),
            "outcome": "pass" if error <= 1 else "fail",
            "chosen": count == summary.nodes_after,
        }
        for count, error in points
    ]


def alone_of(summary: Summary) -> list[pages.Bought]:
    """Return what each layer buys, what buys most first; none of those of which no number is known."""
    return [
        {
            "node": ", ".join(one["nodes"])[:_MOST_NAMED],
            "error": number(one["error"]),
            "outcome": one["outcome"],
            "cost": one["bytes"],
            "raised": one["raised"],
        }
        for one in (summary.precision.alone if summary.precision else ())
        if one["error"] is not None
    ]


def _rows(folder: Path, names: Sequence[str], key: str) -> Iterator[Row]:
    """Yield the rows of the first JSON file of a run among these."""
    for name in names:
        if name.endswith(".json") and inside(folder / name, folder):
            held = json_of(folder / name)
            yield from held[key] if isinstance(held, dict) else held or ()
            return


def _files(summary: Summary) -> tuple[str, ...]:
    return summary.layers.files if summary.layers else ()
