"""Recorded values compared: tensor by tensor, with statistics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from runner.checkers import auto_tolerance, metrics
from runner.checkers.failure_text import finite
from runner.checkers.metrics import BLOCK, Angle, Array, Difference, Pair, blocks, quantile, real
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import leaf_dtype, structure_text
from runner.schema.checker import CompareChecker, Tolerance


class _UnlikeError(Exception):
    """Two values cannot be laid side by side; the message says why."""


def compare(target: TensorFile, reference: TensorFile, rule: CompareChecker) -> Difference:
    """Compare two recorded values by the rule of the settings.

    The difference of two sequences (optionals, maps) is that of the tensors in them that differ most; it is one of
    shape where they do not hold as many, or are of another type.
    """
    # the floor costs passes of its own
    epsilon = auto_tolerance.EPSILON.get(_dtype(reference), 0.0) if rule.tolerance is Tolerance.auto else 0.0
    if target.structure is None and reference.structure is None:
        return metrics.compare(values.mapped(target), values.mapped(reference), rule, epsilon)
    if target.structure != reference.structure:
        return Difference("shape", f"{_word(target)} instead of {_word(reference)}")
    try:
        pairs = list(_pairs(values.contents(target), values.contents(reference), ""))
    except _UnlikeError as why:
        return Difference("shape", str(why))
    found = [(place, metrics.compare(mine, theirs, rule, epsilon)) for place, mine, theirs in pairs]
    if not found:
        return Difference("")
    place, worst = max([one for one in found if not one[1].nothing] or found, key=lambda one: one[1].rank())
    return dataclasses.replace(worst, detail=f"{place}: {worst.detail}") if worst.detail else worst


def has_inf(file: TensorFile) -> bool:
    """Whether any element is an infinity."""
    found = values.mapped(file) if file.structure is None else values.contents(file)
    arrays = [array for _, array, _ in _pairs(found, found, "")]
    return any(np.isinf(real(block)).any() for array in arrays for block in blocks(array.reshape(-1)))


def _dtype(file: TensorFile) -> int:
    return file.dtype if file.structure is None else leaf_dtype(file.structure)


def _word(file: TensorFile) -> str:
    return "a tensor" if file.structure is None else f"a {structure_text(file.structure)}"


def _pairs(target: Any, reference: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (where it is, tensor, tensor) for all tensors of two values of the same type. Raises _UnlikeError."""
    if target is None or reference is None:
        if target is not reference:
            raise _UnlikeError(
                f"{place}no value instead of one" if target is None else f"{place}a value instead of none"
            )
    elif isinstance(target, dict):
        if target.keys() != reference.keys():
            raise _UnlikeError(f"{place}other keys than the reference's")
        for key, item in target.items():
            yield from _pairs(item, reference[key], f"{place}[{key!r}]")
    elif isinstance(target, list):
        if len(target) != len(reference):
            raise _UnlikeError(f"{place}{len(target)} elements instead of {len(reference)}")
        for number, (mine, theirs) in enumerate(zip(target, reference, strict=True)):
            yield from _pairs(mine, theirs, f"{place}[{number}]")
    else:
        yield place, target, reference


# How far two tensors are apart in the numbers that people ask for, computed block by block whatever their size.

QUANTILE = 0.99


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
    sides = [side_of(one, block) for one in (pair.target, pair.reference)]
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


def not_finite(flat: Array, block: int = BLOCK) -> dict[str, int]:
    """Return how many elements of a tensor are ``nan`` and ``inf``."""
    side = side_of(flat, block)
    return {key: side[key] for key in ("nan", "inf")}


def _distances(pair: Pair) -> Iterator[Array]:
    for a, b in pair.kept():
        yield np.abs(a - b)


def side_of(flat: Array, block: int = BLOCK) -> dict[str, Any]:
    """Return how many elements of a tensor are ``nan`` and ``inf``, and the ``range`` of the others (None: none)."""
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
