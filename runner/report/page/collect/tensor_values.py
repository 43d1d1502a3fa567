"""Samples of tensors: range, histogram, first elements, and where good and wrong values differ.

A tensor is read from where it lies, a block of elements at a time, whatever its size.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from runner.checkers.compare.element_blocks import BLOCK, Array, blocks, real
from runner.model.values.recorded import TensorFile, mapped
from runner.report.page.collect.tensor_types import dtype_text
from runner.report.page.data import Number, PageDifference, PageTensor, PageValues

log = logging.getLogger(__name__)
MOST_TENSORS, MOST_BINS, MOST_FIRST, MOST_DIFFERENCES = 64, 64, 64, 32
MOST_ELEMENTS = 1 << 26
"""Elements of all tensors of a page together; further ones are not read."""
_LONGEST = 64
DIGITS = 7
"""Of an edge or a mean, beyond those in which the lowest and the highest value are the same."""


def number(value: Any) -> Number:
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
) -> tuple[list[PageTensor], int]:
    """Return a sample of each tensor that has values, and of how many there is none: too many, or not to be read."""
    found: list[PageTensor] = []
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


def differing(one: TensorFile, other: TensorFile) -> int | None:
    """Return in how many elements two tensors differ; None where they cannot be laid side by side."""
    if one.structure is not None or other.structure is not None or one.dtype != other.dtype:
        return None
    return _differences(mapped(one), mapped(other))[0]


def _tensor(name: str, where: str, good: TensorFile | None, wrong: TensorFile | None) -> PageTensor:
    arrays = [(mapped(one), one.dtype) if one else None for one in (good, wrong)]
    sides = [sample(*one) if one else None for one in arrays]
    alike = good and wrong and good.dtype == wrong.dtype
    count, differences = _differences(arrays[0][0], arrays[1][0]) if alike and arrays[0] and arrays[1] else (None, [])
    return {
        "name": name,
        "where": where,
        "good": sides[0],
        "wrong": sides[1],
        "differences": differences,
        "differing": count,
    }


def sample(array: Array, dtype: int) -> PageValues:
    """Return what is shown of a tensor's values."""
    flat = array.reshape(-1)
    first = [number(one) for one in flat[:MOST_FIRST]]
    held: PageValues = {
        "dtype": dtype_text(dtype),
        "shape": list(array.shape),
        "low": None,
        "high": None,
        "mean": None,
        "nan": 0,
        "inf": 0,
        "edges": [],
        "counts": [],
        "first": first,
    }
    if array.dtype.kind in "OSU":
        return held
    low, high, count = math.inf, -math.inf, 0
    for block in blocks(flat):
        kept = _real(block)
        bad = ~np.isfinite(kept)
        if bad.any():
            missing = int(np.isnan(kept).sum())
            held["nan"] += missing
            held["inf"] += int(bad.sum()) - missing
            kept = kept[~bad]
        if kept.size:
            low, high, count = min(low, float(kept.min())), max(high, float(kept.max())), count + kept.size
    if not count:
        return held
    edges, counts, mean = _histogram(flat, low, high, count)
    return {**held, "low": low, "high": high, "mean": mean, "edges": edges, "counts": counts}


def _histogram(flat: Array, low: float, high: float, count: int) -> tuple[list[float], list[int], float]:
    """Return edges and counts of bins from the lowest to the highest finite value, and the mean of all of these."""
    unit = max(abs(low), abs(high)) or 1.0  # so that neither a sum nor a width overflows
    whole = flat.dtype.kind in "iub"
    bins = int(min(MOST_BINS, high - low + 1)) if whole else MOST_BINS if high > low else 1
    counts, total = np.zeros(bins, dtype=np.int64), 0.0
    ends = (low / unit, high / unit) if high > low else (low / unit - 0.5, low / unit + 0.5)
    if not np.all(np.diff(np.linspace(*ends, bins + 1)) > 0):  # so near each other that no number lies between
        bins, counts = 1, counts[:1]
    for block in blocks(flat):
        kept = _real(block)
        kept = kept[np.isfinite(kept)] / unit
        counts += np.histogram(kept, bins, ends)[0]
        total += float(kept.sum())
    edges = np.linspace(low / unit, high / unit, bins + 1) * unit
    edges[-1] = high
    mean = min(max(total / count * unit, low), high)
    apart = (high - low if math.isfinite(high - low) else unit) / unit
    digits = DIGITS - min(math.floor(math.log10(apart)), 0) if apart else DIGITS
    return [_short(edge, digits) for edge in edges], [int(one) for one in counts], _short(mean, digits)


def _short(value: float, digits: int) -> float:
    """Return a number with as many digits as a picture needs."""
    return float(f"{value:.{min(digits, 17)}g}")


def _real(block: Array) -> Array:
    numbers = real(block)
    return np.abs(numbers) if numbers.dtype.kind == "c" else numbers


def _differences(good: Array, wrong: Array) -> tuple[int | None, list[PageDifference]]:
    """Return how many elements differ (a NaN and a NaN do not), and the worst of them; None: not alike.

    The worst are those that are NaN or Inf on one side only, then those that are farthest apart; of equals the first.
    """
    if good.shape != wrong.shape or good.dtype != wrong.dtype:
        return None, []
    count = 0
    worst: list[tuple[float, int]] = []
    flat, other = good.reshape(-1), wrong.reshape(-1)
    for start, mine, theirs in _pairs(flat, other):
        places = np.flatnonzero(_apart(mine, theirs))
        count += len(places)
        far = _distance(mine[places], theirs[places])
        order = np.argsort(-far, kind="stable")[:MOST_DIFFERENCES]
        worst += [(-float(far[at]), start + int(places[at])) for at in order]
        worst = sorted(worst)[:MOST_DIFFERENCES]
    found: list[PageDifference] = []
    for _, place in worst:
        index = [int(one) for one in np.unravel_index(place, good.shape)] if good.shape else []
        found.append(PageDifference(index=index, good=number(flat[place]), wrong=number(other[place])))
    return count, found


def _distance(good: Array, wrong: Array) -> Array:
    """Return how far elements that differ are apart; what is no distance is larger than any."""
    if good.dtype.kind in "OSU":
        return np.ones(good.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = np.abs(real(good) - real(wrong))
    return np.where(np.isfinite(found), found, np.inf)


def _pairs(good: Array, wrong: Array) -> Iterator[tuple[int, Array, Array]]:
    for start in range(0, good.size, BLOCK):
        yield start, good[start : start + BLOCK], wrong[start : start + BLOCK]


def _apart(good: Array, wrong: Array) -> Array:
    apart = np.asarray(good != wrong, dtype=bool)
    if good.dtype.kind in "OSUiub" or not apart.any():
        return apart
    return apart & ~(np.isnan(real(good)) & np.isnan(real(wrong)))
