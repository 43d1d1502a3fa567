from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from runner.checkers.tolerances import nudge, nudged
from runner.model.values import recorded
from tests.checkers.models import tensors


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_each_number_moves_to_a_neighbor(dtype: type) -> None:
    top = float(ml_dtypes.finfo(dtype).max)
    before = np.array([[1.0, -2.5, 0.0], [np.inf, np.nan, 1e-3], [top] * 3]).astype(dtype)
    after = nudge(before, np.random.default_rng(0))
    assert after.dtype == before.dtype and after.shape == before.shape
    moved = [one != other for one, other in zip(before.flat, after.flat, strict=True)]
    # not a zero, not what is not finite (a NaN differs from itself)
    assert moved[:6] == [True, True, False, False, True, True]
    assert np.isfinite(after[2]).all(), "the largest number has one neighbor"
    distance = np.abs(after[0, 0].astype(np.float64) - 1)
    assert 0 < distance <= float(ml_dtypes.finfo(dtype).eps)


def test_feeds_move_the_same_way_each_time(tmp_path: Path) -> None:
    feeds = tensors({"x": np.ones(100, np.float32), "i": np.arange(3)}, tmp_path / "feeds")
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        moved = nudged(feeds, tmp_path / name)
        assert moved["i"] == feeds["i"]
        found.append(recorded.read(moved["x"]))
    assert np.array_equal(*found)
    assert len(np.unique(found[0])) == 2
