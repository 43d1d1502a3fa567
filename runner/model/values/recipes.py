"""Recipes: values that one short line of Python makes, in place of bytes that somebody would have to send along.

With ``numpy.random.default_rng(seed)`` as ``rng``, a recipe stands for

- splat: ``numpy.full(shape, value, dtype)``
- seeded, of floats: ``(rng.standard_normal(shape) * scale).astype(dtype)``
- seeded, of integers and booleans: ``rng.integers(0, scale, shape).astype(dtype)``
- literal: ``numpy.array(values, dtype).reshape(shape)``, at most ``MOST_LITERAL`` of them

Nothing of a recipe is kept beside an array: ``recognize`` makes the array again and compares every byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Value = bool | int | float | complex | str

MOST_LITERAL = 16
"""Elements of an array up to which these are written out."""
SEEDS = range(4)
LEAST_EXPONENT, MOST_EXPONENT = -10, 10
"""Scales of floats that are looked for: two to the power of these."""
_LOOK = 64
_BLOCK = 1 << 20


class Kind(str, Enum):
    """How an array is made."""

    SPLAT = "splat"
    SEEDED = "seeded"
    LITERAL = "literal"


@dataclass(frozen=True)
class Recipe:
    """How an array of any shape and dtype is made, see above.

    ``values``: one of a splat, all of a literal. ``scale``: a power of two.
    """

    kind: Kind
    values: tuple[Value, ...] = ()
    seed: int = 0
    scale: float = 1.0


def make(recipe: Recipe, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array. Raises ValueError for a literal that has another number of elements."""
    if recipe.kind is Kind.SPLAT:
        return np.full(shape, recipe.values[0], dtype)
    if recipe.kind is Kind.LITERAL:
        return np.array(recipe.values, dtype).reshape(shape)
    made = np.empty(math.prod(shape), dtype)
    start = 0
    for block in _drawn(recipe, made.size, dtype):
        made[start : start + block.size] = block
        start += block.size
    return made.reshape(shape)


def recognize(array: Array) -> Recipe | None:
    """Return the recipe that makes exactly this array, None: it has none."""
    flat = array.reshape(-1)
    if not flat.size:
        return Recipe(Kind.SPLAT, (0,)) if flat.dtype.kind != "O" else None
    small = flat[: _LOOK if flat.size > MOST_LITERAL else flat.size]
    splat = Recipe(Kind.SPLAT, (_plain(flat[0]),))
    if _makes(splat, small):
        return splat if _makes(splat, flat) else None
    if flat.size <= MOST_LITERAL:
        literal = Recipe(Kind.LITERAL, tuple(_plain(one) for one in flat))
        return literal if _makes(literal, flat) else None
    return next((one for one in _guesses(small) if _makes(one, small) and _makes(one, flat)), None)


def scale_of(array: Array) -> float:
    """Return the scale at which seeded values are about as large as those of an array; of integers, in their range."""
    flat = array.reshape(-1)
    if _counts(flat.dtype):
        return 2.0 if flat.dtype.kind == "b" else float(1 << max(int(_wide(flat).max(initial=0)), 1).bit_length() - 1)
    blocks = (flat[start : start + _BLOCK].astype(np.float64) for start in range(0, flat.size, _BLOCK))
    with np.errstate(over="ignore", invalid="ignore"):
        squares = sum(float(np.square(block[np.isfinite(block)]).sum()) for block in blocks)
    mean = squares / max(flat.size, 1)
    exponent = round(math.log2(mean) / 2) if 0 < mean < math.inf else 0
    return 2.0 ** min(max(exponent, LEAST_EXPONENT), MOST_EXPONENT)


def _guesses(start: Array) -> Iterator[Recipe]:
    """The seeded recipes that may make an array which begins so."""
    kind = start.dtype.kind
    if kind in "OSUc":
        return
    if _counts(start.dtype):
        bits = int(_wide(start).max()).bit_length() if _wide(start).min() >= 0 else 0
        scales = [float(1 << count) for count in (bits, bits + 1) if bits]
        yield from (Recipe(Kind.SEEDED, seed=seed, scale=scale) for scale in scales for seed in SEEDS)
        return
    with np.errstate(invalid="ignore"):  # NaN of another kind
        wide = start.astype(np.float64)
    for seed in SEEDS:
        drawn = np.random.default_rng(seed).standard_normal(start.size)
        place = int(np.argmax(np.abs(drawn)))
        ratio = wide[place] / drawn[place]
        if not 0 < ratio < math.inf:
            continue
        exponent = round(math.log2(ratio))
        if LEAST_EXPONENT <= exponent <= MOST_EXPONENT:
            yield Recipe(Kind.SEEDED, seed=seed, scale=2.0**exponent)


def _makes(recipe: Recipe, flat: Array) -> bool:
    """Whether a recipe makes exactly this array of one dimension."""
    if flat.dtype.kind == "O":
        return recipe.kind is not Kind.SEEDED and bool((make(recipe, flat.shape, flat.dtype) == flat).all())
    try:
        with np.errstate(all="ignore"):
            if recipe.kind is Kind.LITERAL:
                return make(recipe, flat.shape, flat.dtype).tobytes() == flat.tobytes()
            start = 0
            for block in _drawn(recipe, flat.size, flat.dtype):
                if block.tobytes() != flat[start : start + block.size].tobytes():
                    return False
                start += block.size
    except (OverflowError, ValueError, TypeError):  # a value that is no plain Python number
        return False
    return True


def _drawn(recipe: Recipe, size: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    """The elements of a splat or a seeded array, in blocks: the draws of a generator go on where they stopped."""
    rng = np.random.default_rng(recipe.seed)
    for start in range(0, size, _BLOCK):
        count = min(_BLOCK, size - start)
        if recipe.kind is Kind.SPLAT:
            yield np.full(count, recipe.values[0], dtype)
        elif _counts(dtype):
            yield rng.integers(0, int(recipe.scale), count).astype(dtype)
        else:
            yield (rng.standard_normal(count) * recipe.scale).astype(dtype)


def _counts(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds whole numbers only: those of the package ml_dtypes included."""
    return dtype.kind in "iub" or "int" in dtype.name


def _wide(array: Array) -> Array:
    """Whole numbers in a dtype of numpy's own."""
    return array if array.dtype.kind in "iub" else array.astype(np.int64)


def _plain(value: Any) -> Value:
    """Return an element as a plain Python value."""
    found = value.item() if hasattr(value, "item") else value
    if isinstance(found, bool | int | float | complex | str):
        return found
    return int(found) if "int" in np.asarray(value).dtype.name else float(found)
