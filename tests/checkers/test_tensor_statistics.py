"""Numbers of two tensors, in pieces as of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from runner.checkers.metrics import statistics
from runner.checkers.task_metrics import agreement


def pair(dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    good = (draw.standard_normal((7, 50)) * 9).astype(dtype)
    return (good + draw.standard_normal(good.shape)).astype(dtype), good


@pytest.mark.parametrize("block", [16, 1 << 18])
def test_against_the_whole_array(block: int) -> None:
    mine, good = pair()
    found = statistics(mine, good, block)
    distance = np.abs(mine.astype(float) - good)
    noise, signal = np.square(distance).sum(), np.square(good.astype(float)).sum()
    peak = float(np.ptp(good)) ** 2
    assert found["max"] == pytest.approx(distance.max()) and found["mean"] == pytest.approx(distance.mean())
    assert found["p99"] == pytest.approx(np.quantile(distance, 0.99))
    assert found["relative"] == pytest.approx(distance.max() / np.abs(good).max())
    assert found["sqnr"] == pytest.approx(10 * np.log10(signal / noise))
    assert found["psnr"] == pytest.approx(10 * np.log10(peak / (noise / good.size)))
    assert found["range"] == [[mine.min(), mine.max()], [good.min(), good.max()]]
    assert found["nan"] == found["inf"] == [0, 0]


def test_what_is_not_finite_is_counted_on_both_sides_and_left_out() -> None:
    mine, good = pair()
    mine[0, :3], good[1, 0] = (np.nan, np.inf, -np.inf), np.nan
    found = statistics(mine, good, 16)
    assert found["nan"] == [1, 1] and found["inf"] == [2, 0] and 0 < found["mean"] < 9
    none = statistics(np.full(3, np.nan, np.float32), np.ones(3, np.float32))
    assert none["range"] == [None, [1, 1]] and none["nan"] == [3, 0] and none["sqnr"] is None


def test_what_is_equal_has_no_noise_and_what_is_large_no_overflow() -> None:
    assert statistics(*[pair()[0]] * 2)["sqnr"] is None
    found = statistics(np.array([2e300, 1.0]), np.array([1e300, 1.0]))
    assert found["sqnr"] == pytest.approx(0.0) and found["max"] == 1e300


def test_of_what_is_no_number_or_no_pair_there_are_none() -> None:
    assert statistics(np.zeros(2), np.zeros(3)) == statistics(np.array(["a"]), np.array(["b"])) == {}
    assert statistics(np.zeros(0), np.zeros(0)) == agreement(np.zeros((3, 1)), np.zeros((3, 1))) == {}
    for held in (np.eye(3) > 0, np.eye(3) * 1j, np.array([["a", "b"]])):
        assert agreement(held, held) == {}
    assert statistics(np.array([True, False]), np.array([True, True]))["max"] == 1


def test_how_many_rows_have_the_same_largest_values() -> None:
    good = np.arange(24, dtype=np.float32).reshape(2, 12)
    mine = good.copy()
    mine[0, 0] = 99  # one of the five largest, and the largest, of one row
    found = agreement(mine, good)
    assert found["top1"] == 0.5 and found["top5"] == pytest.approx(0.9)
    assert agreement(mine[:, :4], good[:, :4]) == {"top1": 0.5}


def test_rows_that_hold_a_nan_never_agree() -> None:
    good = np.arange(24, dtype=np.float32).reshape(2, 12)
    broken = good.copy()
    broken[0, 3] = np.nan
    for mine, theirs in ((broken, good), (good, broken), (broken, broken)):
        assert agreement(mine, theirs) == {"top1": 0.5, "top5": 0.5}
    assert agreement(good * np.nan, good) == {"top1": 0.0, "top5": 0.0}


def test_without_a_signal_there_is_no_ratio() -> None:
    found = statistics(np.array([1.0, 2.0]), np.array([7.0, 7.0]))
    assert found["psnr"] is None and found["sqnr"] is not None
    assert statistics(np.ones(2), np.zeros(2))["sqnr"] is None
