"""Values that one line of Python makes: made, and recognized by making them again."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from runner.model.values.recipes import _BLOCK, Kind, Recipe, make, recognize, scale_of

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
WHOLE = [np.bool_, np.uint8, np.int32, np.int64, np.uint64, ml_dtypes.int4]


@pytest.mark.parametrize("dtype", [np.dtype(one) for one in FLOATS + WHOLE], ids=str)
@pytest.mark.parametrize("seed", [0, 3])
def test_what_is_made_is_recognized(dtype, seed):
    scale = 2.0 if dtype.kind not in "f" or dtype.itemsize == 1 else 0.25
    drawn = make(Recipe(Kind.SEEDED, seed=seed, scale=scale), (3, 40), dtype)
    assert recognize(drawn) == Recipe(Kind.SEEDED, seed=seed, scale=scale)
    assert recognize(make(Recipe(Kind.SPLAT, (1,)), (2, 50), dtype)) == Recipe(Kind.SPLAT, (1,))
    assert recognize(make(Recipe(Kind.LITERAL, (0, 1, 1)), (3,), dtype)) == Recipe(Kind.LITERAL, (0, 1, 1))
    drawn.reshape(-1)[-1] += np.ones((), dtype)
    assert recognize(drawn) is None


def test_a_few_floats_that_were_drawn_are_no_literal():
    drawn = make(Recipe(Kind.SEEDED, seed=60), (2, 1), np.dtype("f4"))
    assert recognize(drawn) == Recipe(Kind.SEEDED, seed=60)
    assert all(recognize(np.array([a, b])).kind is not Kind.SEEDED for a in range(4) for b in range(4))


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_blocks_are_those_of_one_draw(kind):
    shape = (_BLOCK + 3,)
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 8, shape) if kind == "int64" else (rng.standard_normal(shape) * 8).astype(kind)
    assert recognize(whole) == Recipe(Kind.SEEDED, seed=1, scale=8.0)


@pytest.mark.parametrize("value", [-0.0, np.nan, np.inf, -np.inf, 3.4e38, 1e-45], ids=repr)
def test_bytes_are_compared_not_values(value):
    array = np.full(20, value, np.float32)
    found = recognize(array)
    assert found and make(found, array.shape, array.dtype).tobytes() == array.tobytes()
    assert recognize(np.array([0.0, -0.0] * 10, np.float32)) is None  # equal as numbers


def test_what_has_no_recipe():
    assert recognize(np.arange(17)) is None
    assert recognize(np.frombuffer(b"\x01\x00\xa0\x7f" * 20, "<f4")) is None  # a NaN that no Python float is
    assert recognize(np.array(["a", "b"] * 9, object)) is None
    assert recognize(np.array(["a"] * 18, object)) == Recipe(Kind.SPLAT, ("a",))
    assert recognize(np.zeros((0, 3), np.float32)) == Recipe(Kind.SPLAT, (0,))
    assert recognize(np.array(2.5, np.float16)) == Recipe(Kind.SPLAT, (2.5,))
    assert recognize(np.array([1j, 2], np.complex64)) == Recipe(Kind.LITERAL, (1j, 2 + 0j))


def test_a_scale_keeps_the_size_and_the_range():
    values = np.random.default_rng(9).normal(0, 0.06, 5000).astype(np.float32)
    assert scale_of(values) == 2.0**-4
    assert scale_of(np.zeros(4, np.float32)) == 1.0
    assert scale_of(np.array([np.inf, 4.0], np.float32)) in (2.0, 4.0)
    tokens = np.arange(100)
    assert make(Recipe(Kind.SEEDED, scale=scale_of(tokens)), (50,), tokens.dtype).max() < 100
    assert scale_of(np.array([True])) == 2.0
