"""The comparison of whole arrays at once, as it was before it went block by block: what the blocks have to give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runner.checkers.failure_text import finite
from runner.checkers.metrics import EXACT_BYTES, FLOOR_ULPS, KINDS, MOST_FLIPS, Array, Difference
from runner.schema.checker import CompareChecker, Metric, NonFinite, Statistic


def compare_whole(target: Array, reference: Array, rule: CompareChecker, epsilon: float = 0.0) -> Difference:
    """Compare ``target`` with ``reference`` (any shapes and types, ml_dtypes included) by the rule of the settings.

    ``rule`` is of one metric, and its tolerances are numbers (see `rules`).
    ``epsilon``: distance from 1 to the next number of the tensors' type, for the floor.
    """
    if target.shape != reference.shape:
        return Difference("shape", f"shape {list(target.shape)} instead of {list(reference.shape)}")
    if target.dtype != reference.dtype and not (_is_text(target) and _is_text(reference)):
        return Difference("shape", f"type {target.dtype} instead of {reference.dtype}")
    if target.size == 0:
        return Difference("")
    whole_number = target.dtype.kind in "iu" and target.dtype.itemsize >= EXACT_BYTES
    if _is_text(target) or target.dtype.kind == "b" or whole_number:
        return _exactly(target, reference, rule)
    a, b = _numbers(target), _numbers(reference)
    kind, detail, kept = _non_finite(a, b, rule)
    if kept is not None:
        left_out = any(
            policy is NonFinite.ignore and bool((test(a) | test(b)).any())
            for policy, test in ((rule.nan, np.isnan), (rule.inf, np.isinf))
        )
        a, b = a[kept], b[kept]
        if a.size == 0:
            return Difference(kind, detail, nothing=left_out and not kind)
    with np.errstate(over="ignore", invalid="ignore"):
        distance, size = np.abs(a - b), np.abs(b)
        scale = float(size.max())
        cosine = _cosine(a, b)
        tolerance = rule.atol + rule.rtol * scale
        measure = _measure(rule, size, scale)
        error, limit = (1.0 - cosine, rule.cosine) if rule.metric is Metric.cosine else measure(distance)
        # an error of r in every direction turns a vector by an angle of r: 1 - cos is half its square
        ulps = FLOOR_ULPS * epsilon
        floor = max(ulps * ulps / 2, 1e-12) if rule.metric is Metric.cosine else measure(ulps * size)[0]
        relative = _largest_relative(distance, size)
    return Difference(
        kind,
        detail,
        finite(error),
        finite(limit),
        finite(floor),
        max_abs=finite(float(distance.max())),
        max_rel=finite(relative),
        cosine=cosine,
        fraction=float(np.count_nonzero(distance > tolerance)) / target.size,
        measured=True,
    )


def _exactly(target: Array, reference: Array, rule: CompareChecker) -> Difference:
    """Compare what is equal or differs. Nothing is cast to a type that lacks digits: 2^53 + 1 is not 2^53."""
    a, b = target.reshape(-1), reference.reshape(-1)
    if _is_text(target):
        unlike = np.array([_text(mine) != _text(theirs) for mine, theirs in zip(a, b, strict=True)], dtype=bool)
        distance, size = unlike.astype(np.float64), np.zeros(a.size)
    else:
        unlike = a != b
        # modulo 2^64 the difference of two integers is right whatever their signs
        wide = [
            one.astype(np.int64).view(np.uint64) if one.dtype.kind == "i" else one.astype(np.uint64) for one in (a, b)
        ]
        distance = np.where(a > b, wide[0] - wide[1], wide[1] - wide[0]).astype(np.float64)
        size = np.abs(b.astype(np.float64))
    count, largest = int(np.count_nonzero(unlike)), float(distance.max())
    share = count / a.size
    limit = rule.fraction if rule.metric is Metric.fraction else 0.0
    how_far = "" if _is_text(target) else f", by up to {largest:g}"
    return Difference(
        "mismatch" if share > limit else "",
        f"{count} of {a.size} elements differ{how_far}" if count else "",
        share,
        limit,
        exact=True,
        max_abs=largest,
        max_rel=_largest_relative(distance, size),
        cosine=1.0 if _is_text(target) else _cosine(_numbers(target), _numbers(reference)),
        fraction=share,
        measured=True,
        flips=()
        if _is_text(target)
        else tuple((int(at), int(a[at]), int(b[at])) for at in np.flatnonzero(unlike)[:MOST_FLIPS]),
    )


def _largest_relative(distance: Array, size: Array) -> float:
    return float(np.divide(distance, size, out=np.zeros_like(distance), where=size > 0).max())


def _measure(rule: CompareChecker, size: Array, scale: float) -> Callable[[Array], tuple[float, float]]:
    """The function from absolute errors to (error, limit) in the metric's unit."""

    def elementwise(distance: Array) -> tuple[float, float]:
        allowed = rule.atol + rule.rtol * size
        ratio = np.divide(distance, allowed, out=np.where(distance > 0, np.inf, 0.0), where=allowed > 0)
        return _statistic(ratio, rule), 1.0

    def by_scale(distance: Array) -> tuple[float, float]:
        error = _beyond(distance, rule.fraction) if rule.metric is Metric.fraction else _statistic(distance, rule)
        # zeros everywhere (or less than a float32 can hold): only atol can say what is small
        return (error / scale, rule.rtol + rule.atol / scale) if scale > 1e-45 else (error, rule.atol)

    return elementwise if rule.metric is Metric.elementwise else by_scale


def _statistic(values: Array, rule: CompareChecker) -> float:
    if rule.statistic is Statistic.quantile:
        return float(np.quantile(values, rule.quantile))
    return float(getattr(np, rule.statistic.value)(values))


def _beyond(distance: Array, fraction: float) -> float:
    """The largest error that is left when the ``fraction`` worst elements are not counted.

    It is at most t exactly if the share of elements above t is at most ``fraction``.
    """
    dropped = min(int(fraction * distance.size), distance.size - 1)
    index = distance.size - 1 - dropped
    return float(np.partition(distance.reshape(-1), index)[index])


def _cosine(a: Array, b: Array) -> float:
    largest = float(np.abs(a).max()), float(np.abs(b).max())
    if not all(largest):
        return 0.0 if any(largest) else 1.0
    # scaled first, so that no product overflows
    a, b = a / largest[0], b / largest[1]
    return max(-1.0, min(1.0, float(np.real(np.vdot(a, b))) / float(np.linalg.norm(a) * np.linalg.norm(b))))


def _non_finite(a: Array, b: Array, rule: CompareChecker) -> tuple[str, str, Array | None]:
    """What NaN and Inf say: a kind ("" for nothing), a detail, and which elements are left to compare (None: all)."""
    if a.dtype.kind not in "fc" or (np.isfinite(a).all() and np.isfinite(b).all()):
        return "", "", None
    nan_a, nan_b, inf_a, inf_b = np.isnan(a), np.isnan(b), np.isinf(a), np.isinf(b)
    kinds = []
    for name, mine, theirs, same, policy in (
        ("nan", nan_a, nan_b, nan_a & nan_b, rule.nan),
        ("inf", inf_a, inf_b, inf_a & inf_b & (a == b), rule.inf),
    ):
        if policy is NonFinite.fail and (mine.any() or theirs.any()):
            kinds.append((name, f"{int((mine | theirs).sum())} of {a.size} elements"))
        elif policy is NonFinite.compare:
            if (only := int((mine & ~same).sum())) > 0:
                kinds.append((name, f"{only} of {a.size} elements, not in the reference"))
            elif (lost := int((theirs & ~same).sum())) > 0:
                kinds.append(("mismatch", f"{lost} of {a.size} elements are {name} in the reference only"))
    kept = np.isfinite(a) & np.isfinite(b)
    kind, detail = min(kinds, key=lambda found: KINDS.index(found[0])) if kinds else ("", "")
    return kind, detail, kept


def _numbers(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).reshape(-1)


def _is_text(array: Array) -> bool:
    return array.dtype.kind in "OSU"


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
