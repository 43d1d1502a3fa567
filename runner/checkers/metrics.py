"""How far two tensors are apart: by the rule of the settings, and in the numbers that people ask for.

Real numbers are compared in float64 whatever their type, the others exactly. All is computed block by block in two
passes (what is finite, and how large; then the errors), and a few more for the order statistics.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from runner.checkers.failure_text import finite
from runner.model.values import recorded as values
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import BITS
from runner.model.values.value_types import leaf_dtype, structure_text
from runner.schema.checker import CompareChecker, Metric, NonFinite, Statistic, Tolerance

# Quantiles of more numbers than fit in memory, exactly: radix selection on their bits.
#
# The bits of non-negative float64 numbers, taken for integers, are in the order of the numbers (IEEE 754, 5.10; NaN
# come last, as numpy sorts them). A pass counts the numbers by 16 bits, which tells the bits of the one that is looked
# for; after four passes, or as soon as few have those bits, it is known.

Array = np.ndarray[Any, Any]
Blocks = Callable[[], Iterator[Array]]
"""Yields the numbers in blocks of float64, none of them negative; the same at each call."""

_DIGIT, _ALL = 16, 64


def median(numbers: Blocks, count: int, most: int) -> float:
    """Return what ``np.median`` does; ``most``: so many numbers may be held at once."""
    return float(np.median(at_ranks(numbers, count, ((count - 1) // 2, count // 2), most)))


def quantile(numbers: Blocks, count: int, share: float, most: int) -> float:
    """Return what ``np.quantile`` does: between two neighbors on a line, 0 of none; ``most``: as above."""
    if not count:
        return 0.0
    place = (count - 1) * share
    low = min(math.floor(place), count - 1)
    pair = at_ranks(numbers, count, (low, min(low + 1, count - 1)), most)
    return float(np.quantile(pair, place - low))


def at_ranks(numbers: Blocks, count: int, ranks: Sequence[int], most: int) -> list[float]:
    """Return the numbers that stand at these places when all ``count`` are sorted."""
    places, left, bits, prefix = list(ranks), count, 0, 0
    while left > most and bits < _ALL:
        bits += _DIGIT
        counts = np.zeros(1 << _DIGIT, np.int64)
        for keys in _keys(numbers, prefix, bits - _DIGIT):
            digits = (keys >> np.uint64(_ALL - bits)) & np.uint64((1 << _DIGIT) - 1)
            counts += np.bincount(digits.astype(np.intp), minlength=counts.size)
        ends = np.cumsum(counts)
        digit, *others = np.searchsorted(ends, places, side="right").tolist()
        if any(other != digit for other in others):
            return [at_ranks(numbers, count, (rank,), most)[0] for rank in ranks]
        before, left = int(ends[digit] - counts[digit]), int(counts[digit])
        places, prefix = [place - before for place in places], prefix << _DIGIT | digit
    if left > most:  # all that are left are equal
        return [float(np.array(prefix, np.uint64).view(np.float64))] * len(places)
    found = np.concatenate(list(_keys(numbers, prefix, bits)))
    found.partition(places)
    return [float(one) for one in found[places].view(np.float64)]


def _keys(numbers: Blocks, prefix: int, bits: int) -> Iterator[Array]:
    """Yield, as integers, the numbers whose first ``bits`` bits are ``prefix``."""
    for block in numbers():
        keys = block.view(np.uint64)
        yield keys[keys >> np.uint64(_ALL - bits) == np.uint64(prefix)] if bits else keys


# Two tensors side by side, a block of elements at a time: temporaries stay below 64 MB, whatever the tensors' size.

BLOCK = 1 << 18
"""Elements of a block. About 15 temporaries of 8 bytes (complex numbers: 16) an element live at once."""


def blocks(flat: Array, block: int = BLOCK) -> Iterator[Array]:
    """Yield the parts of a flat array, in order, without a copy."""
    for start in range(0, flat.size, block):
        yield flat[start : start + block]


def real(array: Array) -> Array:
    """Return a block as numbers that numpy computes with: float64, or complex128 for complex numbers."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _counted(mine: Array, theirs: Array, same: Array) -> Array:
    """Return how many elements either tensor has, and how many in one are not the same in the other: mine, theirs."""
    return np.array([np.count_nonzero(one) for one in (mine | theirs, mine & ~same, theirs & ~same)])


@dataclass(frozen=True)
class Survey:
    """What a first pass finds.

    ``nan``, ``inf``: how many elements are that in either tensor, in the target alone, in the reference alone.
    ``kept``: elements that are finite in both; ``largest``: of those, by absolute value.
    """

    nan: Array
    inf: Array
    kept: int
    largest: tuple[float, float]


@dataclass(frozen=True)
class Pair:
    """Two tensors of the same shape and type, flat. ``block``: elements of a block."""

    target: Array
    reference: Array
    block: int = BLOCK

    def stored(self) -> Iterator[tuple[Array, Array]]:
        """Yield the blocks as they are stored."""
        yield from zip(blocks(self.target, self.block), blocks(self.reference, self.block), strict=True)

    def kept(self) -> Iterator[tuple[Array, Array]]:
        """Yield, as real (complex) numbers, the elements that are finite in both."""
        for mine, theirs in self.stored():
            a, b = real(mine), real(theirs)
            finite = np.isfinite(a) & np.isfinite(b)
            if not finite.all():
                a, b = a[finite], b[finite]
            if a.size:
                yield a, b

    def survey(self) -> Survey:
        """Look at all elements once."""
        nan, inf, kept, largest = np.zeros(3, np.int64), np.zeros(3, np.int64), 0, (0.0, 0.0)
        for mine, theirs in self.stored():
            a, b = real(mine), real(theirs)
            finite = np.isfinite(a) & np.isfinite(b)
            if not finite.all():
                nan_a, nan_b, inf_a, inf_b = np.isnan(a), np.isnan(b), np.isinf(a), np.isinf(b)
                nan += _counted(nan_a, nan_b, nan_a & nan_b)
                inf += _counted(inf_a, inf_b, inf_a & inf_b & (a == b))
                a, b = a[finite], b[finite]
            if a.size:
                kept += a.size
                largest = max(largest[0], float(np.abs(a).max())), max(largest[1], float(np.abs(b).max()))
        return Survey(nan, inf, kept, largest)


class Angle:
    """The cosine of two vectors that come in blocks. ``largest``: of each, by absolute value."""

    def __init__(self, largest: tuple[float, float]) -> None:
        # of a complex number of two large parts it is infinite
        self._largest = tuple(min(one, sys.float_info.max) for one in largest)
        self._dot = self._target = self._reference = 0.0

    def more(self, a: Array, b: Array) -> None:
        """Take a block of both."""
        if all(self._largest):
            # scaled first, so that no product overflows
            a, b = a / self._largest[0], b / self._largest[1]
            self._dot += float(np.real(np.vdot(a, b)))
            self._target += _square(a)
            self._reference += _square(b)

    @property
    def cosine(self) -> float:
        """The cosine; of two vectors of zeros 1, of one of them 0."""
        if not all(self._largest):
            return 0.0 if any(self._largest) else 1.0
        return max(-1.0, min(1.0, self._dot / (math.sqrt(self._target) * math.sqrt(self._reference))))


def _square(a: Array) -> float:
    return float(a.real.dot(a.real) + a.imag.dot(a.imag)) if a.dtype.kind == "c" else float(a.dot(a))


# distance from 1 to the next number, of the types that are computed in; integers have none
EPSILON = {dtype: 2.0 ** (1 - kind.digits) for dtype, kind in FLOATS.items() if BITS[dtype] >= 8 and kind.digits > 1}
# units in the last place that rounding alone may cost
FLOOR_ULPS = 4.0
# from the worst on: what a failing output is called when several fail
KINDS = ("shape", "nan", "inf", "mismatch")
# smallest size in bytes of an integer type whose values are counts and indices rather than quantized reals
EXACT_BYTES = 4
MOST_FLIPS = 20
"""Integers that differ, of which it is kept what they are."""
# share of the elements of such a type that counts as one tolerance
EXACT_SHARE = 0.1


@dataclass(frozen=True)
class Difference:
    """The comparison of one output.

    ``kind``: shape, nan, inf, mismatch, or "" where nothing but values may differ. ``error``: in the metric's own unit
    (below); ``limit``: what a fixed tolerance allows, in the same unit; ``floor``: the error that a few units in the
    last place would make; ``exact``: integers of 32 bits and more, booleans and strings, which are equal or differ,
    whatever the metric: no tolerance applies but the share of elements that ``metric=fraction`` lets differ.
    ``nothing``: all elements were left out, as the settings want it for NaN and Inf: nothing was compared.
    ``measured``: values were held against values, of which the numbers tell; else there are none.
    ``flips``: the first integers that differ: their place in the flat tensor, the target's, the reference's.
    ``value``: of a metric of all samples, which is no error; ``error`` and ``limit`` are then how far from the best.

    Units: scale and fraction: part of max(|reference|) (fraction: of the largest error after leaving out the allowed
    share of elements); elementwise: part of ``atol + rtol * |reference|``; cosine: 1 - cos; exact: share of elements.
    """

    kind: str
    detail: str = ""
    error: float = 0.0
    limit: float = 0.0
    floor: float = 0.0
    exact: bool = False
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    fraction: float = 0.0
    nothing: bool = False
    measured: bool = False
    flips: tuple[tuple[int, int, int], ...] = ()
    value: float | None = None

    def fails(self, limit: float | None = None) -> bool:
        """Whether the output differs; ``limit`` replaces the fixed tolerance (not for exact types)."""
        return bool(self.kind) or self.error > (self.limit if limit is None or self.exact else limit)

    def rank(self, limit: float | None = None) -> tuple[int, float]:
        """Return what is largest for the worst of several outputs; ``limit``: as above.

        What has to be equal and is not lies one tolerance off, and one more for each `EXACT_SHARE` of its elements.
        """
        allowed = self.limit if limit is None else limit
        how_far = self.error / (allowed or (EXACT_SHARE if self.exact else 1e-300))
        how_far += bool(self.exact and not allowed and self.error)
        by_size = self.exact or not self.kind
        return (-len(KINDS) if by_size else -KINDS.index(self.kind)), how_far

    def numbers(self) -> dict[str, Any]:
        """The numbers, fit for JSON, None where nothing was measured.

        ``fraction``: the share of elements beyond ``atol + rtol * max(|reference|)``.
        """
        if self.value is not None:
            return {"value": self.value, "error": finite(self.error), "limit": finite(self.limit)}
        names = ("error", "limit", "max_abs", "max_rel", "cosine", "fraction")
        return {name: finite(getattr(self, name)) if self.measured else None for name in names}


def compare(
    target: Array, reference: Array, rule: CompareChecker, epsilon: float = 0.0, block: int = BLOCK
) -> Difference:
    """Compare ``target`` with ``reference`` (any shapes and types, ml_dtypes included) by the rule of the settings.

    ``rule`` is of one metric, and its tolerances are numbers (see `rules`).
    ``epsilon``: distance from 1 to the next number of the tensors' type, for the floor; 0: none is wanted.
    ``block``: so many elements are worked on at once.
    """
    if target.shape != reference.shape:
        return Difference("shape", f"shape {list(target.shape)} instead of {list(reference.shape)}")
    if target.dtype != reference.dtype and not (_is_text(target) and _is_text(reference)):
        return Difference("shape", f"type {target.dtype} instead of {reference.dtype}")
    if target.size == 0:
        return Difference("")
    pair = Pair(target.reshape(-1), reference.reshape(-1), block)
    whole_number = target.dtype.kind in "iu" and target.dtype.itemsize >= EXACT_BYTES
    if _is_text(target) or target.dtype.kind == "b" or whole_number:
        return _exactly(pair, rule)
    seen = pair.survey()
    kind, detail = _non_finite(seen, rule, target.size)
    if not seen.kept:
        policies = ((rule.nan, seen.nan), (rule.inf, seen.inf))
        left_out = any(policy is NonFinite.ignore and count[0] for policy, count in policies)
        return Difference(kind, detail, nothing=left_out and not kind)
    with np.errstate(over="ignore", invalid="ignore"):
        return replace(_inexactly(pair, seen, rule, FLOOR_ULPS * epsilon), kind=kind, detail=detail)


def _inexactly(pair: Pair, seen: Survey, rule: CompareChecker, ulps: float) -> Difference:
    """Compare real (complex) numbers, those that are finite in both; ``ulps``: of the floor."""
    scale, angle = seen.largest[1], Angle(seen.largest)
    tolerance = rule.atol + rule.rtol * scale
    distances, relative, errors, floors, beyond = _Running(), _Running(), _Running(), _Running(), 0
    for a, b in pair.kept():
        distance, size = np.abs(a - b), np.abs(b)
        distances.more(distance)
        relative.more(_relative(distance, size))
        beyond += int(np.count_nonzero(distance > tolerance))
        angle.more(a, b)
        errors.more(_measured(distance, size, rule))
        if ulps:
            floors.more(_measured(ulps * size, size, rule))
    # an error of r in every direction turns a vector by an angle of r: 1 - cos is half its square
    error, limit, floor = 1.0 - angle.cosine, rule.cosine, max(ulps * ulps / 2, 1e-12)
    if rule.metric is not Metric.cosine:
        error = _statistic(errors, lambda: _errors(pair, rule), rule, 4 * pair.block)
        floor = _statistic(floors, lambda: _errors(pair, rule, ulps), rule, 4 * pair.block) if ulps else 0.0
        limit = 1.0
        if rule.metric is not Metric.elementwise:
            # zeros everywhere (or less than a float32 can hold): only atol can say what is small
            unit, rtol = (scale, rule.rtol) if scale > 1e-45 else (1.0, 0.0)
            error, floor, limit = error / unit, floor / unit, rtol + rule.atol / unit
    return Difference(
        "",
        "",
        finite(error),
        finite(limit),
        finite(floor),
        max_abs=finite(distances.largest),
        max_rel=finite(relative.largest),
        cosine=angle.cosine,
        fraction=beyond / pair.target.size,
        measured=True,
    )


def _exactly(pair: Pair, rule: CompareChecker) -> Difference:
    """Compare what is equal or differs. Nothing is cast to a type that lacks digits: 2^53 + 1 is not 2^53."""
    is_text, size = _is_text(pair.target), pair.target.size
    count, distances, relative = 0, _Running(), _Running()
    seen, flips = 0, list[tuple[int, int, int]]()
    angle = None if is_text else Angle(pair.survey().largest)
    for a, b in pair.stored():
        if angle is None:
            unlike = np.array([_text(mine) != _text(theirs) for mine, theirs in zip(a, b, strict=True)], dtype=bool)
            distances.more(unlike.astype(np.float64))
        else:
            unlike = a != b
            # modulo 2^64 the difference of two integers is right whatever their signs
            wide = [
                one.astype(np.int64).view(np.uint64) if one.dtype.kind == "i" else one.astype(np.uint64)
                for one in (a, b)
            ]
            distance = np.where(a > b, wide[0] - wide[1], wide[1] - wide[0]).astype(np.float64)
            distances.more(distance)
            relative.more(_relative(distance, np.abs(real(b))))
            angle.more(real(a), real(b))
            places = np.flatnonzero(unlike)[: MOST_FLIPS - len(flips)]
            flips += [(seen + int(at), int(a[at]), int(b[at])) for at in places]
        count += int(np.count_nonzero(unlike))
        seen += a.size
    share = count / size
    limit = max(
        rule.unequal if pair.target.dtype.kind in "iu" else 0.0, rule.fraction * (rule.metric is Metric.fraction)
    )
    how_far = "" if is_text else f", by up to {distances.largest:g}"
    return Difference(
        "mismatch" if share > limit else "",
        f"{count} of {size} elements differ{how_far}" if count else "",
        share,
        limit,
        exact=True,
        max_abs=distances.largest,
        max_rel=relative.largest,
        cosine=1.0 if angle is None else angle.cosine,
        fraction=share,
        measured=True,
        flips=tuple(flips),
    )


class _Running:
    """The maximum and the sum of numbers that come in blocks; both are NaN if any is."""

    def __init__(self) -> None:
        self.count, self.total, self.largest = 0, 0.0, 0.0

    def more(self, numbers: Array) -> None:
        self.count += numbers.size
        self.total += float(numbers.sum())
        self.largest = float(np.maximum(self.largest, numbers.max()))


def _relative(distance: Array, size: Array) -> Array:
    found: Array = np.divide(distance, size, out=np.zeros_like(distance), where=size > 0)
    return found


def _measured(distance: Array, size: Array, rule: CompareChecker) -> Array:
    """Return the error of each element in the metric's unit, but for the scale, which all have in common."""
    if rule.metric is not Metric.elementwise:
        return distance
    allowed = rule.atol + rule.rtol * size
    found: Array = np.divide(distance, allowed, out=np.where(distance > 0, np.inf, 0.0), where=allowed > 0)
    return found


def _errors(pair: Pair, rule: CompareChecker, ulps: float = 0.0) -> Iterator[Array]:
    """Yield the errors of each block; with ``ulps`` those that so many units in the last place would make."""
    for a, b in pair.kept():
        size = np.abs(b)
        yield _measured(ulps * size if ulps else np.abs(a - b), size, rule)


def _statistic(seen: _Running, errors: Blocks, rule: CompareChecker, most: int) -> float:
    """Return what of all errors is held against the tolerance."""
    if rule.metric is Metric.fraction:
        # the largest error that is left when the share of the worst elements is not counted: it is at most t exactly if
        # the share of elements above t is at most `fraction`
        dropped = min(int(rule.fraction * seen.count), seen.count - 1)
        return at_ranks(errors, seen.count, (seen.count - 1 - dropped,), most)[0]
    if rule.statistic is Statistic.max or math.isnan(seen.largest):
        return seen.largest
    if rule.statistic is Statistic.mean:
        return seen.total / seen.count
    if rule.statistic is Statistic.median:
        return median(errors, seen.count, most)
    return quantile(errors, seen.count, rule.quantile, most)


def _non_finite(seen: Survey, rule: CompareChecker, size: int) -> tuple[str, str]:
    """What NaN and Inf say: a kind ("" for nothing), and a detail."""
    kinds = []
    for name, count, policy in (("nan", seen.nan, rule.nan), ("inf", seen.inf, rule.inf)):
        either, mine, theirs = count
        if policy is NonFinite.fail and either:
            kinds.append((name, f"{either} of {size} elements"))
        elif policy is NonFinite.compare and mine:
            kinds.append((name, f"{mine} of {size} elements are {name} in the target only"))
        elif policy is NonFinite.compare and theirs:
            kinds.append(("mismatch", f"{theirs} of {size} elements are {name} in the reference only"))
    return min(kinds, key=lambda found: KINDS.index(found[0])) if kinds else ("", "")


def _is_text(array: Array) -> bool:
    return array.dtype.kind in "OSU"


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


class _UnlikeError(Exception):
    """Two values cannot be laid side by side; the message says why."""


def compare_recorded(target: TensorFile, reference: TensorFile, rule: CompareChecker) -> Difference:
    """Compare two recorded values by the rule of the settings.

    The difference of two sequences (optionals, maps) is that of the tensors in them that differ most; it is one of
    shape where they do not hold as many, or are of another type.
    """
    # the floor costs passes of its own
    epsilon = EPSILON.get(_dtype(reference), 0.0) if rule.tolerance is Tolerance.auto else 0.0
    if target.structure is None and reference.structure is None:
        return compare(values.mapped(target), values.mapped(reference), rule, epsilon)
    if target.structure != reference.structure:
        return Difference("shape", f"{_word(target)} instead of {_word(reference)}")
    try:
        pairs = list(_pairs(values.contents(target), values.contents(reference), ""))
    except _UnlikeError as why:
        return Difference("shape", str(why))
    found = [(place, compare(mine, theirs, rule, epsilon)) for place, mine, theirs in pairs]
    if not found:
        return Difference("")
    place, worst = max([one for one in found if not one[1].nothing] or found, key=lambda one: one[1].rank())
    return replace(worst, detail=f"{place}: {worst.detail}") if worst.detail else worst


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
        p99 = quantile(lambda: (np.abs(a - b) for a, b in pair.kept()), seen.kept, QUANTILE, 4 * block)
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
