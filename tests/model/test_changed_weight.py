"""What a conversion made of a weight, from its values and those of its partner."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.changed_weights import score
from runner.reference.changed_array import change_of

DRAW = np.random.default_rng(5)
GOOD = DRAW.standard_normal((8, 6)).astype(np.float32)


@pytest.mark.parametrize("held", [False, True])
def test_nearly_all_of_sixty_planted_changes_are_told_with_their_axis(held: bool) -> None:
    """Half of them were held back while the rules were written."""
    wrong: list[str] = []
    right, of = score(held, wrong.append)
    assert (of, right >= 28) == (30, True), wrong


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
    assert told is not None and (told.kind, told.said) == ("scaled", "0.5, not 2")
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
