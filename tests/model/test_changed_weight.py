"""What a conversion made of a weight, from its values and those of its partner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.reference.changed_array import change_of

Array = np.ndarray[Any, np.dtype[Any]]
DRAW = np.random.default_rng(5)
GOOD = DRAW.standard_normal((8, 6)).astype(np.float32)


SIZES = {
    0: (16, (8, 4, 3, 3), 8), 1: (64, (6, 6, 1, 1), 5), 2: (7, (4, 3, 5, 2), 16),
    1000: (24, (10, 5, 3, 1), 6), 1001: (33, (4, 4, 2, 2), 12), 1002: (5, (3, 8, 7, 7), 3),
}  # fmt: skip
"""By seed: the side of a matrix, the shape of filters, the width of a gate."""


def planted(seed: int) -> Iterator[tuple[str, Array, Array, int | None, dict[str, Array]]]:
    """Yield ten changes: what each is called, a good weight, what was made of it, the axis, and other weights."""
    draw, (side, kernel, width) = np.random.default_rng(seed), SIZES[seed]

    def made(*shape: int) -> Array:
        values = draw.laplace(size=shape) * 0.05 + 0.01 if seed % 1000 == 2 else draw.standard_normal(shape)
        return values.astype(np.float32)

    matrix, filters, another = made(side, side), made(*kernel), made(side, side)
    columns = draw.permutation(side)
    order = (1, 0, 2) if seed % 1000 == 1 else (0, 2, 1, 3)
    gates = made(1, len(order) * width, 9)
    clip, channel = float(np.quantile(np.abs(matrix), 0.9)), np.ones(kernel[0], np.float32)
    channel[draw.integers(kernel[0])] = 3.5
    low = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)[seed % 1000]
    for kind, good, mine, axis in (
        ("transposed", matrix, matrix.T.copy(), None),
        ("permuted", matrix, matrix[:, columns], 1),
        ("scaled", filters, filters * np.float32(1.7 + seed % 1000), None),
        ("scaled", filters, filters * channel[:, None, None, None], 0),
        ("negated", matrix, -matrix, None),
        ("swapped", matrix, another, None),
        ("gates", gates, np.concatenate([np.split(gates, len(order), 1)[at] for at in order], 1), 1),
        ("rounded", matrix, matrix.astype(low).astype(np.float32), None),
        ("cut off", matrix, np.clip(matrix, -clip, clip), None),
        ("zero", filters, np.zeros_like(filters), None),
    ):
        # as another computation has them: off by the last digits of float32
        noise = 0 if kind in ("rounded", "cut off", "zero") else 3e-7 * draw.standard_normal(mine.shape)
        yield kind, good, (mine * (1 + noise)).astype(np.float32), axis, {"another": another, "filters": filters}


@pytest.mark.parametrize("seeds", [(0, 1, 2), (1000, 1001, 1002)])
def test_nearly_all_of_sixty_planted_changes_are_told_with_their_axis(seeds: tuple[int, ...]) -> None:
    """Half of them were held back while the rules were written."""
    every = [(*one, seed) for seed in seeds for one in planted(seed)]
    told = [(change_of(mine, good, others), kind, axis, seed) for kind, good, mine, axis, others, seed in every]
    wrong = [one for one in told if one[0] is None or (one[0].kind, one[0].axis) != one[1:3]]
    assert len(every) == 30 and len(wrong) <= 2, wrong


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_is_another_weight_altogether_has_no_explanation(seed: int) -> None:
    assert change_of(np.random.default_rng(seed).standard_normal(GOOD.shape), GOOD) is None


def test_what_is_alike_or_empty_or_of_another_size_has_none() -> None:
    noise = GOOD * (1 + 1e-7)
    for mine, good in ((GOOD, GOOD), (noise, GOOD), (GOOD[:0], GOOD[:0]), (GOOD[:3], GOOD)):
        assert change_of(mine, good) is None
    assert change_of(np.full_like(GOOD, np.nan), GOOD) is None


def test_a_weight_of_one_number_is_scaled_or_negated() -> None:
    """As a scale of a quantizer is."""
    told = change_of(np.float32(0.5), np.float32(2.0))
    assert told is not None and (told.kind, told.said, told.wanted) == ("scaled", "0.5", "2")
    assert told.of("w", "v") == "w is 0.5; v of the original is 2"
    assert change_of(np.float32(-2.0), np.float32(2.0)) is not None


def test_it_says_what_a_reader_needs() -> None:
    said = {
        "transposed": GOOD.T.copy(),
        "negated": -GOOD,
        "reversed along axis 0": GOOD[::-1],
        "zero throughout": np.zeros_like(GOOD),
        "rounded to float16": GOOD.astype(np.float16),
        "rounded to int4 in steps of 0.5": np.rint(GOOD * 2) / 2,
        "scaled by 3": 3 * GOOD,
        "transposed in memory: the values in the order of another layout": GOOD.T.reshape(GOOD.shape),
    }
    for words, mine in said.items():
        told = change_of(mine, GOOD)
        assert told is not None and told.said == words, (words, told)
    large = np.random.default_rng(6).standard_normal((40, 30))
    stepped = change_of(np.rint(large * 32) / 32, large)
    assert stepped is not None and stepped.said == "rounded to int8 in steps of 0.0312"
    clipped = change_of(np.clip(GOOD, -0.5, 0.5), GOOD)
    assert clipped is not None and clipped.said.startswith("cut off at -0.5 and 0.5, where its values reach ")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("where", "factor", "said"),
    [
        (np.s_[:], 1.0, None),
        (np.s_[:], 1.6, "scaled by 1.6"),
        (np.s_[10:30], 3.0, "scaled by 3 in 20 of 64 places along axis 0"),
        (np.s_[10:30, 1], 4.0, "scaled by 4 in 20 of 128 blocks"),
        (np.s_[10:30], -1.0, "negated in 20 of 64 places along axis 0"),
    ],
)
def test_a_wrong_scale_is_told_of_integers_in_blocks(bits: int, where: Any, factor: float, said: str | None) -> None:
    """The largest number of a block is the least integer, as ONNX Runtime has it, so one as large on the other side
    loses a whole step."""
    good = np.random.default_rng(3).standard_normal((64, 2, 32))
    largest = np.take_along_axis(good, np.abs(good).argmax(2, keepdims=True), 2)
    low = -(1 << bits - 1)
    scale = largest / low
    whole = np.clip(np.rint(good / scale), low, -low - 1)
    scale[where] *= factor
    step = np.repeat(np.abs(scale), 32, 2).reshape(64, 64)
    told = change_of((whole * scale).reshape(64, 64), good.reshape(64, 64), None, step)
    assert (told and told.said) == said


def test_slices_of_one_factor_are_said_to_have_it() -> None:
    some = np.where(np.arange(len(GOOD)) < 2, 3, 1)[:, None]
    each = np.linspace(2, 3, len(GOOD))[:, None]
    told = [change_of(GOOD * one, GOOD) for one in (some, each)]
    said = [f"scaled by 3 in 2 of {len(GOOD)} places along axis 0", "scaled by 2 to 3 along axis 0"]
    assert [one and one.said for one in told] == said
