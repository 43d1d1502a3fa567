"""What a conversion made of a weight, from its values and those of its partner."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.reference.parent import change_of

DRAW = np.random.default_rng(5)
GATES = "in another order of its {} gates, {}, along axis 1"
GOOD = DRAW.standard_normal((8, 6)).astype(np.float32)


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
    assert told is not None and told.said == "scaled by 0.25"
    assert change_of(np.float32(-2.0), np.float32(2.0)) is not None


def test_it_says_what_a_reader_needs() -> None:
    said = {
        "transposed": GOOD.T.copy(),
        "negated": -GOOD,
        "reversed along axis 0": GOOD[::-1],
        "zero throughout": np.zeros_like(GOOD),
        "rounded to float16": GOOD.astype(np.float16),
        "scaled by 3": 3 * GOOD,
    }
    for words, mine in said.items():
        told = change_of(mine, GOOD)
        assert told is not None and told.said == words, (words, told)
    clipped = change_of(np.clip(GOOD, -0.5, 0.5), GOOD)
    assert clipped is not None and clipped.said.startswith("cut off at -0.5 and 0.5, where its values reach ")


def test_an_order_and_a_scale_are_told_with_their_axis_and_another_weight_by_its_name() -> None:
    """As another computation has the values: off by the last digits of float32."""
    filters, lstm = (DRAW.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 2, 2), (1, 20, 9)))
    gru, other = lstm[:, :15], DRAW.standard_normal(GOOD.shape).astype(np.float32)
    channel = np.array([1, 1, 3.5, 1], np.float32)[:, None, None, None]
    first, second, third, last = np.split(lstm, 4, 1)
    for good, mine, words, axis in (
        (GOOD, GOOD[:, [1, 0, 2, 5, 3, 4]], "permuted along axis 1", 1),
        (filters, filters * channel, "scaled by 3.5 in one place along axis 0", 0),
        (lstm, np.concatenate([first, third, second, last], 1), GATES.format(4, "[0, 2, 1, 3]"), 1),
        (gru, np.concatenate([gru[:, 5:10], gru[:, :5], gru[:, 10:]], 1), GATES.format(3, "[1, 0, 2]"), 1),
        (GOOD, other, "the values of w", None),
    ):
        noisy = (mine * (1 + 3e-7 * DRAW.standard_normal(mine.shape))).astype(np.float32)
        told = change_of(noisy, good, {"filters": filters, "w": other})
        assert told is not None and (told.said, told.axis) == (words, axis)
