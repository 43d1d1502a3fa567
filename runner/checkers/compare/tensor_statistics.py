"""How far two tensors are apart in the numbers that people ask for, computed block by block whatever their size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from runner.checkers.compare.element_blocks import BLOCK, Angle, Array, Pair, blocks, real
from runner.checkers.compare.order_statistics import quantile
from runner.checkers.failure_measure import finite

QUANTILE = 0.99
TOP = 5
"""So many of the largest values of each row are compared, besides the largest."""


def statistics(target: Array, reference: Array, block: int = BLOCK) -> dict[str, Any]:
    """Return the numbers, fit for JSON; none for tensors that are no numbers, or cannot be laid side by side.

    Errors are of the elements that are finite in both: ``max``, ``mean``, ``p99`` of the absolute error; ``relative``:
    the largest as a part of the largest absolute value of the reference; ``sqnr`` and ``psnr`` in dB (None where
    nothing differs, or the reference has no signal: zeros, or one value); ``cosine``. Of both tensors how many elements
    are ``nan`` and ``inf``, and the ``range`` of the others (None where there are none): target first.
    """
    if target.shape != reference.shape or {target.dtype.kind, reference.dtype.kind} & set("OSU") or not target.size:
        return {}
    pair = Pair(target.reshape(-1), reference.reshape(-1), block)
    seen = pair.survey()
    angle, largest, total, noise, signal = Angle(seen.largest), 0.0, 0.0, 0.0, 0.0
    unit = min(max(seen.largest), 1e300) or 1.0  # so that no square overflows
    with np.errstate(over="ignore", invalid="ignore"):
        for a, b in pair.kept():
            distance = np.abs(a - b)
            angle.more(a, b)
            largest, total = max(largest, float(distance.max())), total + float(distance.sum())
            noise += float(np.square(distance / unit).sum())
            signal += float(np.square(np.abs(b) / unit).sum())
        p99 = quantile(lambda: _distances(pair), seen.kept, QUANTILE, 4 * block) if seen.kept else 0.0
    sides = [_side(one, block) for one in (pair.target, pair.reference)]
    low, high = sides[1]["range"] or (0.0, 0.0)
    peak = (high - low) / unit
    return {
        "max": finite(largest),
        "mean": finite(total / max(seen.kept, 1)),
        "p99": finite(p99),
        "relative": finite(largest / seen.largest[1]) if seen.largest[1] else float(largest > 0),
        "sqnr": _decibels(signal, noise),
        "psnr": _decibels(peak * peak * seen.kept, noise),
        "cosine": angle.cosine,
        **{key: [side[key] for side in sides] for key in ("nan", "inf", "range")},
    }


def agreement(target: Array, reference: Array) -> dict[str, float]:
    """Return in which part of the rows (along the last axis) the largest value stands in the same place.

    ``top5``: which part of the five largest is the same; only where a row has more than five. A row that holds a NaN
    never agrees. Of what is no table of real numbers nothing is returned.
    """
    if target.shape != reference.shape or not target.ndim or target.shape[-1] < 2 or not target.size:
        return {}
    if {target.dtype.kind, reference.dtype.kind} & set("OSUbc"):
        return {}
    width = target.shape[-1]
    tables = [one.reshape(-1, width) for one in (target, reference)]
    rows, step = tables[0].shape[0], max(1, BLOCK // width)
    first = several = 0.0
    for start in range(0, rows, step):
        pair = [real(one[start : start + step]) for one in tables]
        told = ~(np.isnan(pair[0]) | np.isnan(pair[1])).any(1)
        a, b = (np.nan_to_num(one[told]) for one in pair)
        first += float((a.argmax(1) == b.argmax(1)).sum())
        if width > TOP:
            best = [np.argpartition(one, -TOP, axis=1)[:, -TOP:] for one in (a, b)]
            several += float((best[0][:, :, None] == best[1][:, None, :]).sum()) / TOP
    return {"top1": first / rows, **({"top5": several / rows} if width > TOP else {})}


def not_finite(flat: Array, block: int = BLOCK) -> dict[str, int]:
    """Return how many elements of a tensor are ``nan`` and ``inf``."""
    side = _side(flat, block)
    return {key: side[key] for key in ("nan", "inf")}


def _distances(pair: Pair) -> Iterator[Array]:
    for a, b in pair.kept():
        yield np.abs(a - b)


def _side(flat: Array, block: int) -> dict[str, Any]:
    nan = inf = 0
    low, high = math.inf, -math.inf
    for stored in blocks(flat, block):
        one = real(stored)
        one = np.abs(one) if one.dtype.kind == "c" else one
        bad = ~np.isfinite(one)
        if bad.any():
            missing = int(np.isnan(one).sum())
            nan, inf, one = nan + missing, inf + int(bad.sum()) - missing, one[~bad]
        if one.size:
            low, high = min(low, float(one.min())), max(high, float(one.max()))
    return {"nan": nan, "inf": inf, "range": [low, high] if low <= high else None}


def _decibels(signal: float, noise: float) -> float | None:
    return 10 * math.log10(signal / noise) if signal and noise else None
