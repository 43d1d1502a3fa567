from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from runner.checkers.metrics import compare
from runner.schema.checker import CompareChecker, Metric, NonFinite, Statistic

B = np.array([1.0, -2.0, 4.0, 0.0], np.float32)
INF, NAN = np.inf, np.nan


def rule(**settings: object) -> CompareChecker:
    return CompareChecker(**settings)  # type: ignore[arg-type]


def differs(a: object, b: object, **settings: object) -> str:
    """ "" if they are the same, else the kind."""
    difference = compare(np.asarray(a), np.asarray(b), rule(**settings))
    json.dumps(difference.numbers(), allow_nan=False)
    return (difference.kind or "mismatch") if difference.fails() else ""


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_nothing_that_was_not_measured_has_a_number() -> None:
    none = {"error", "limit", "max_abs", "max_rel", "cosine", "fraction"}
    for a, b in ((f32(NAN, NAN), f32(1, 2)), (f32(1), f32(1, 2)), (f32(1), np.array([1])), (f32(), f32())):
        assert compare(a, b, rule()).numbers() == dict.fromkeys(none)
    assert compare(f32(1, NAN), f32(1, 2), rule()).numbers()["max_abs"] == 0


def test_scale_is_robust_near_zero_and_elementwise_is_not() -> None:
    near = B + f32(0, 0, 0, 0.01)
    assert differs(near, B, metric=Metric.scale) == ""
    assert differs(near, B, metric=Metric.elementwise) == "mismatch"
    assert differs(B + f32(0, 0, 0, 0.05), B, metric=Metric.scale) == "mismatch"


@pytest.mark.parametrize(
    ("statistic", "settings", "kind"),
    [
        (Statistic.max, {}, "mismatch"),
        (Statistic.mean, {}, ""),
        (Statistic.median, {}, ""),
        (Statistic.quantile, {"quantile": 0.5}, ""),
        (Statistic.quantile, {"quantile": 1.0}, "mismatch"),
    ],
)
@pytest.mark.parametrize("metric", [Metric.scale, Metric.elementwise])
def test_statistics(statistic: Statistic, settings: dict, kind: str, metric: Metric) -> None:
    b = np.ones(1000, np.float32)
    a = b.copy()
    a[7] = 2.0
    assert differs(a, b, metric=metric, statistic=statistic, **settings) == kind


@pytest.mark.parametrize(("bad", "kind"), [(0, ""), (9, ""), (10, ""), (11, "mismatch"), (1000, "mismatch")])
def test_fraction_counts_elements(bad: int, kind: str) -> None:
    b = np.ones(1000, np.float32)
    a = b.copy()
    a[:bad] += 0.5
    assert differs(a, b, metric=Metric.fraction, fraction=0.01) == kind
    difference = compare(a, b, rule(metric=Metric.fraction))
    assert difference.fraction == bad / 1000


def test_cosine() -> None:
    assert differs(B, B, metric=Metric.cosine) == ""
    assert differs(2 * B, B, metric=Metric.cosine) == ""
    assert differs(-B, B, metric=Metric.cosine) == "mismatch"
    assert compare(-B, B, rule()).cosine == pytest.approx(-1)
    zero = np.zeros(4, np.float32)
    assert differs(zero, zero, metric=Metric.cosine) == ""
    assert differs(zero, B, metric=Metric.cosine) == "mismatch"
    assert differs(B.astype(np.float64) * 1e300, B.astype(np.float64) * 1e300, metric=Metric.cosine) == ""


@pytest.mark.parametrize(
    ("a", "b", "settings", "kind"),
    [
        ([1e-6] * 4, [0] * 4, {}, ""),
        ([1e-3] * 4, [0] * 4, {}, "mismatch"),
        ([0] * 4, [0] * 4, {"rtol": 0, "atol": 0, "metric": Metric.elementwise}, ""),
        ([1] * 4, [0] * 4, {"rtol": 0, "atol": 0, "metric": Metric.elementwise}, "mismatch"),
        ([1e-300] * 4, [2e-300] * 4, {}, ""),
        ([-1.7e308, -1], [1.7e308, 1], {}, "mismatch"),
    ],
)
def test_zeros_and_what_is_tiny_or_huge(a: list, b: list, settings: dict, kind: str) -> None:
    assert differs(np.array(a, float), np.array(b, float), **settings) == kind


@pytest.mark.parametrize(
    ("a", "b", "policy", "kind"),
    [
        ([NAN, 1], [NAN, 1], NonFinite.compare, ""),
        ([NAN, 1], [2, 1], NonFinite.compare, "nan"),
        ([2, 1], [NAN, 1], NonFinite.compare, "mismatch"),
        ([NAN, 1], [NAN, 1], NonFinite.fail, "nan"),
        ([NAN, 1], [2, 1], NonFinite.ignore, ""),
        ([NAN, 1], [NAN, 5], NonFinite.ignore, "mismatch"),
        ([INF, 1], [INF, 1], NonFinite.compare, ""),
        ([-INF, 1], [INF, 1], NonFinite.compare, "inf"),
        ([INF, 1], [2, 1], NonFinite.compare, "inf"),
        ([2, 1], [INF, 1], NonFinite.compare, "mismatch"),
        ([INF, 1], [INF, 1], NonFinite.fail, "inf"),
        ([INF, 1], [2, 1], NonFinite.ignore, ""),
        ([INF, NAN], [1, 1], NonFinite.compare, "nan"),
        ([NAN, NAN], [NAN, NAN], NonFinite.compare, ""),
        ([INF, 1], [NAN, 1], NonFinite.compare, "inf"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_nan_and_inf(a: list, b: list, policy: NonFinite, kind: str, dtype: type) -> None:
    if dtype is np.complex64 and -INF in a:
        pytest.skip("an infinity of complex numbers has no sign alone")
    assert differs(np.array(a, dtype), np.array(b, dtype), nan=policy, inf=policy) == kind


def test_shapes_and_types() -> None:
    assert differs(f32(1, 2), f32(1, 2).reshape(2, 1)) == "shape"
    assert differs(f32(1, 2), np.array([1, 2], np.float64)) == "shape"
    assert differs(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)) == ""
    assert differs(np.float32(1), np.float32(1)) == ""


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("statistic", list(Statistic))
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.array([2**53 + 1]), np.array([2**53])),
        (np.array([2**63 - 1, 5]), np.array([2**63 - 2, 5])),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64)),
        (np.array([-(2**63), 2**63 - 1]), np.array([2**63 - 1, -(2**63)])),
        (np.array([50256, 11, 318, 257], np.int32), np.array([50256, 11, 318, 258], np.int32)),
        (np.array([True, True, True, False]), np.array([True, True, True, True])),
        (np.array([1000, 1001]), np.array([1002, 1001])),
    ],
)
def test_whole_numbers_and_booleans_are_equal_or_differ(
    metric: Metric, statistic: Statistic, a: np.ndarray, b: np.ndarray
) -> None:
    loose = {"rtol": 0.5, "atol": 5.0, "cosine": 0.5, "quantile": 0.1}
    assert differs(a, b, metric=metric, statistic=statistic, **loose) == "mismatch"
    assert differs(a, a.copy(), metric=metric, statistic=statistic, rtol=0, atol=0, cosine=0) == ""
    difference = compare(a, b, rule(metric=metric))
    assert difference.exact and "elements differ" in difference.detail
    assert difference.max_abs == float(max(abs(int(one) - int(other)) for one, other in zip(a, b, strict=True)))


def test_a_share_of_whole_numbers_may_differ_where_the_metric_says_so() -> None:
    b = np.arange(1000)
    a = b.copy()
    a[:10] += 1
    assert differs(a, b, metric=Metric.fraction, fraction=0.01) == ""
    a[10] += 1
    assert differs(a, b, metric=Metric.fraction, fraction=0.01) == "mismatch"


@pytest.mark.parametrize(
    ("a", "b", "nan", "inf", "nothing"),
    [
        ([NAN, NAN], [1, 2], NonFinite.ignore, NonFinite.compare, True),
        ([NAN, INF], [1, 2], NonFinite.ignore, NonFinite.ignore, True),
        ([NAN, 1], [1, 1], NonFinite.ignore, NonFinite.compare, False),
        ([NAN, NAN], [NAN, NAN], NonFinite.compare, NonFinite.compare, False),
        ([NAN, INF], [1, 2], NonFinite.ignore, NonFinite.compare, False),
    ],
)
def test_what_is_left_out_is_not_compared(a: list, b: list, nan: NonFinite, inf: NonFinite, nothing: bool) -> None:
    difference = compare(np.array(a, np.float32), np.array(b, np.float32), rule(nan=nan, inf=inf))
    assert difference.nothing is nothing


def test_quantized_values_may_be_a_step_off() -> None:
    b = np.array([100, 101, -127], np.int8)
    assert differs(b + np.int8(1), b) == ""
    assert differs(b - np.int8(50), b) == "mismatch"
    assert differs(np.array([255], np.uint8), np.array([0], np.uint8)) == "mismatch"


def test_strings_and_small_floats() -> None:
    text = np.array(["a", "b"], object)
    assert differs(text, text.copy()) == ""
    assert differs(np.array(["a", "c"], object), text) == "mismatch"
    assert differs(np.array([b"a", b"b"], object), text) == ""
    one = np.array([1, 2], ml_dtypes.float8_e4m3fn)
    assert differs(one, one) == ""
    assert differs(np.array([1, 3], ml_dtypes.float8_e4m3fn), one) == "mismatch"
    assert differs(np.array([1, -3], ml_dtypes.int4), np.array([1, 2], ml_dtypes.int4)) == "mismatch"


def test_the_numbers() -> None:
    a, b = f32(1, 2.2, 4, 0), f32(1, 2, 4, 0)
    difference = compare(a, b, rule(), 2.0**-23)
    assert difference.max_abs == pytest.approx(0.2, rel=1e-5)
    assert difference.max_rel == pytest.approx(0.1, rel=1e-5)
    assert difference.error == pytest.approx(0.05, rel=1e-5)
    assert difference.limit == pytest.approx(0.01 + 1e-5 / 4)
    assert difference.floor == pytest.approx(4 * 2.0**-23)
    assert difference.fraction == 0.25
    each = compare(a, b, rule(metric=Metric.elementwise), 2.0**-10)
    assert (each.error, each.limit) == (pytest.approx(0.2 / (1e-5 + 0.02), rel=1e-5), 1)
    assert each.floor == pytest.approx(4 * 2.0**-10 * 4 / (1e-5 + 0.04))
    assert compare(a, b, rule(metric=Metric.cosine), 2.0**-10).floor == pytest.approx(2.0**-17)
    counts = compare(np.array([3, 9, 5]), np.array([2, 9, 5]), rule())
    assert (counts.max_abs, counts.max_rel, counts.fraction) == (1, 0.5, pytest.approx(1 / 3))
    assert (counts.detail, counts.flips) == ("1 of 3 elements differ, by up to 1", ((0, 3, 2),))
    assert compare(f32(NAN, 1), f32(2, 1), rule()).detail == "1 of 2 elements are nan in the target only"
    assert compare(f32(2, 1), f32(NAN, 1), rule()).detail == "1 of 2 elements are nan in the reference only"
    assert compare(f32(NAN, 1, 9, 9), f32(NAN, 2, 9, 9), rule()).fraction == 0.25


def test_what_must_be_equal_and_is_not_has_a_finite_rank() -> None:
    """It grows with the share of elements, and does not outrank a number that is wrong by far."""
    right, ranks = np.arange(100), []
    for count in (0, 1, 10, 100):
        found = compare(np.where(right < count, right + 7, right), right, rule())
        ranks.append(found.rank())
        assert found.fails() is bool(count)
    assert [round(how_far, 6) for _, how_far in ranks] == [0, 1.1, 2, 11]
    assert max(ranks) < compare(2 * B, B, rule()).rank()
    shares = compare(right, np.where(right < 2, 0, right), rule(metric=Metric.fraction, fraction=0.1))
    assert shares.rank()[1] == pytest.approx(0.1)
