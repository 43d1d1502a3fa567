"""Sixty weights with a planted change: is its kind, and its axis, told?

    python -m benchmarks.changed_weights [--held]

Thirty were looked at while the module was written, the other thirty (``--held``) were not: they have other shapes,
distributions and seeds. Prints each that is told wrong, and how many are right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from runner.reference.changed_array import Change, change_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Planted:
    """A good weight, what was made of it, and what it should be called."""

    name: str
    good: Array
    mine: Array
    kind: str
    axis: int | None
    others: dict[str, Array]


def _noise(values: Array, draw: np.random.Generator) -> Array:
    """Return values as another computation has them: off by the last digits of float32."""
    return (values * (1 + 3e-7 * draw.standard_normal(values.shape))).astype(np.float32)


def planted(held: bool) -> Iterator[Planted]:
    """Yield thirty of them."""
    for seed in range(3):
        draw = np.random.default_rng(1000 + seed if held else seed)
        square = ((16, 16), (64, 64), (7, 7))[seed] if not held else ((24, 24), (33, 33), (5, 5))[seed]
        kernel = (
            ((8, 4, 3, 3), (6, 6, 1, 1), (4, 3, 5, 2))[seed]
            if not held
            else ((10, 5, 3, 1), (4, 4, 2, 2), (3, 8, 7, 7))[seed]
        )
        width = (8, 5, 16)[seed] if not held else (6, 12, 3)[seed]

        def made(shape: tuple[int, ...], draw: np.random.Generator = draw, seed: int = seed) -> Array:
            values = draw.standard_normal(shape) if seed < 2 else draw.laplace(size=shape) * 0.05 + 0.01
            return values.astype(np.float32)

        matrix, filters = made(square), made(kernel)
        another = made(square)
        columns = draw.permutation(square[1])
        columns = columns if (columns != np.arange(square[1])).any() else columns[::-1]
        lstm, gru = made((1, 4 * width, 9)), made((1, 3 * width, 9))
        halves = {4: (0, 2, 1, 3), 3: (1, 0, 2)}
        clip = float(np.quantile(np.abs(matrix), 0.9))
        channel = np.ones(kernel[0], np.float32)
        channel[draw.integers(kernel[0])] = 3.5
        low = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)[seed]
        gates = lambda values, order: np.concatenate([np.split(values, len(order), 1)[at] for at in order], 1)  # noqa: E731
        make: tuple[tuple[str, Array, Array, int | None], ...] = (
            ("transposed", matrix, matrix.T.copy(), None),
            ("permuted", matrix, matrix[:, columns], 1),
            ("scaled", filters, filters * np.float32(1.7 + seed), None),
            ("scaled", filters, filters * channel[:, None, None, None], 0),
            ("negated", matrix, -matrix, None),
            ("swapped", matrix, another, None),
            ("rounded", matrix, matrix.astype(low).astype(np.float32), None),
            ("cut off", matrix, np.clip(matrix, -clip, clip), None),
            ("zero", filters, np.zeros_like(filters), None),
            ("gates", *((lstm, gates(lstm, halves[4])) if seed != 1 else (gru, gates(gru, halves[3]))), 1),
        )
        exact = ("rounded", "cut off", "zero")
        for kind, good, mine, axis in make:
            held_values = mine if kind in exact else _noise(mine, draw)
            yield Planted(f"{kind} {seed}", good, held_values, kind, axis, {"another": another, "filters": filters})


def right(one: Planted, told: Change | None) -> bool:
    """Whether kind and axis are told as they were planted."""
    return told is not None and told.kind == one.kind and told.axis == one.axis


def score(held: bool, say: Callable[[str], object] = print) -> tuple[int, int]:
    """Return how many are right, of how many."""
    every = [*planted(held)]
    told = [change_of(one.mine, one.good, one.others) for one in every]
    for one, found in zip(every, told, strict=True):
        if not right(one, found):
            say(f"{one.name}: {found}")
    return sum(map(right, every, told)), len(every)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held", action="store_true", help="the thirty that were held back")
    good, of = score(parser.parse_args().held)
    sys.stdout.write(f"{good} of {of} right\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
