"""A word where the tolerance of an output is large in its own units, and none where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.checkers.tolerances import coarse
from runner.schema.checker import AutoChecker, CheckerSettings, CompareChecker, FiniteChecker
from runner.verdict import Sample
from tests.checkers.models import tensors

RANDOM = np.random.default_rng(0)


def said(folder: Path, outputs: Mapping[str, Any], checker: CheckerSettings | None = None) -> tuple[str, ...]:
    floats = {
        name: np.asarray(values, getattr(values, "dtype", np.float32)).astype(np.float32)
        if np.asarray(values).dtype == np.float64
        else np.asarray(values)
        for name, values in outputs.items()
    }
    return coarse(checker or AutoChecker(), [Sample({}, tensors(floats, folder))])


def corners(count: int, size: float, wide: float) -> np.ndarray:
    places = RANDOM.uniform(0, size, (count, 2))
    return np.concatenate([places, places + RANDOM.uniform(0.2, 1.8, (count, 2)) * wide], 1)


def centers(count: int, size: float, wide: float) -> np.ndarray:
    boxes = corners(count, size, wide)
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)


def padded(boxes: np.ndarray, rows: int) -> np.ndarray:
    return np.concatenate([boxes, np.zeros((rows, 4))])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (corners(300, 4000, 8)[None], "it looks like boxes"),
        (corners(300, 1, 0.02), "it looks like boxes"),
        (centers(300, 640, 20), "it looks like boxes"),
        (padded(corners(20, 640, 10), 80), "it looks like boxes"),
        # channels first, with 20 scores behind the four coordinates
        (np.concatenate([centers(500, 640, 300).T, RANDOM.uniform(0, 1, (20, 500))])[None], "no larger than"),
        (np.concatenate([corners(100, 640, 300), RANDOM.uniform(0, 1, (100, 1))], 1), "some of its columns"),
        # logits that a mask has made very small
        (np.where(RANDOM.random((4, 50)) < 0.3, np.float32(-3.4e38), RANDOM.normal(0, 3, (4, 50))), "its own size"),
        # 290 kelvin, more or less
        (RANDOM.normal(290, 0.5, (4, 50)), "differ by"),
        # places in a picture
        (RANDOM.uniform(0, 2000, (1, 17, 2)), "pixels or counts"),
    ],
)
def test_what_passes_is_much(tmp_path: Path, values: np.ndarray, why: str) -> None:
    (found,) = said(tmp_path, {"out": values})
    assert found.startswith("out has values up to ") and why in found
    assert ("checker.rtol={out: " in found) is ("elementwise" not in found)


@pytest.mark.parametrize(
    "values",
    [
        RANDOM.normal(0, 3, (4, 1000)),
        np.exp(RANDOM.normal(0, 4, (4, 1000))) / 1e5,
        np.exp(RANDOM.normal(0, 5, (40, 7))) / 1e5,
        np.clip(np.cumsum(RANDOM.normal(0, 9, (1, 3, 16, 16)), axis=-1) + 128, 0, 255),
        RANDOM.uniform(0, 255, (1, 3, 32, 32)),
        RANDOM.uniform(0, 255, (1, 32, 32, 4)),
        RANDOM.normal(0, 1, (4, 4)),
        np.maximum(RANDOM.normal(0, 1, (100, 4)), 0),
        np.tanh(RANDOM.normal(0, 1, (1, 16, 16))),
        corners(300, 100, 60),
        np.cumsum(RANDOM.normal(0, 0.1, (40, 8)), axis=1),
        np.zeros((10, 4)),
        np.array(3.0),
        np.array([], np.float32),
        np.full((3, 4), np.nan),
        np.arange(100000, dtype=np.int64).reshape(-1, 4),
    ],
)
def test_what_is_as_usual(tmp_path: Path, values: np.ndarray) -> None:
    assert said(tmp_path, {"out": values}) == ()


def test_checks_that_have_no_such_tolerance(tmp_path: Path) -> None:
    boxes = {"boxes": corners(300, 4000, 8), "scores": RANDOM.uniform(0, 1, (300,))}
    assert len(said(tmp_path, boxes)) == 1
    for checker in (
        FiniteChecker(),
        CompareChecker(metric="elementwise"),
        CompareChecker(metric=["scale", "elementwise"]),
        CompareChecker(metric="cosine"),
        CompareChecker(outputs=["scores"]),
        AutoChecker(rtol={"boxes": 0.0001}),
        # what may be off by so much is said by the user himself
        AutoChecker(rtol=0.0, atol=40.0),
    ):
        assert said(tmp_path, boxes, checker) == ()
    (found,) = said(tmp_path, boxes, CompareChecker(rtol={"scores": 0.1, "": 0.02}))
    assert 'checker.rtol={scores: 0.1, boxes: 0.0001, "": 0.02}' in found


def test_a_name_ends_no_word_of_a_shell(tmp_path: Path) -> None:
    (found,) = said(tmp_path, {"a'; rm -rf \"x": corners(300, 4000, 8)})
    assert '\'checker.rtol={"a\'"\'"\'; rm -rf \\"x": 0.' in found


def test_many_outputs_get_one_word_and_one_option(tmp_path: Path) -> None:
    (found,) = said(tmp_path, {f"boxes{number}": corners(300, 4000, 8) for number in range(5)})
    assert found.count("has values up to") == 3 and "2 more outputs are like that" in found
    assert all(f"boxes{number}: " in found for number in range(5))


def test_the_largest_value_may_lie_behind_the_rows_that_are_looked_at(tmp_path: Path) -> None:
    values = np.tile(np.float32([1, 2, 3, 4]), (600_000, 2))
    values[-1, -1] = 4000
    (word,) = said(tmp_path, {"y": values})
    assert "up to 4000, so an error of 40 passes" in word and "no larger than 2.5" in word
