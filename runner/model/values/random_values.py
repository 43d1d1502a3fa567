"""Random values that are the same for the same name and seed, on every machine.

This module also runs in workers under older interpreters (Python 3.8, onnx 1.13, numpy 1).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from onnx import helper

from runner.model.values import tensor_bytes
from runner.model.values.dtypes import limits_of
from runner.model.values.tensor_file import INTEGERS, NUMPY, Array, TensorFile, write

_LARGEST_DRAWN = (1 << 63) - 1


def seeded(
    name: str,
    dtype: int,
    shape: tuple[int, ...],
    low: float | None = None,
    high: float | None = None,
    seed: int = 0,
    *,
    path: Path,
) -> TensorFile:
    """Write random values in [low, high); see ``seeded_array``.

    They depend on the name, the dtype, the shape, the range and the seed only.
    """
    array = seeded_array(name, dtype, shape, low, high, seed)
    if dtype in NUMPY or dtype == tensor_bytes.STRING:
        return write(array, name, path)
    tensor = helper.make_tensor(name, dtype, list(shape), array.ravel().tolist())
    raw = tensor_bytes.raw_bytes(tensor)
    if raw is not None:
        tensor_bytes.set_raw(tensor, raw)
    return write(tensor, name, path)


def seeded_array(
    name: str,
    dtype: int,
    shape: tuple[int, ...],
    low: float | None = None,
    high: float | None = None,
    seed: int = 0,
) -> Array:
    """Return random values in [low, high).

    Floats are uniform (default 0 to 1), integers too (default 1 to 26, or all that a small dtype has), bools and
    strings of digits. A dtype that numpy lacks comes as float32 or int64 values for it.
    """
    digest = hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogateescape")).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    if dtype == 9 and low is None and high is None:
        return rng.integers(0, 2, size=shape).astype(bool)
    if dtype in INTEGERS:
        first, last = _integer_range(dtype, low, high)
        drawn = rng.integers(first, last, size=shape, dtype=np.int64, endpoint=True)
        if dtype == tensor_bytes.STRING:
            return np.asarray(drawn).astype(str).astype(object)
        return np.asarray(drawn).astype(NUMPY.get(dtype, "int64"))
    start, end = 0.0 if low is None else float(low), 1.0 if high is None else float(high)
    drawn = np.asarray(start + (end - start) * rng.random(size=shape))
    if dtype in (14, 15):
        drawn = drawn + 1j * (start + (end - start) * rng.random(size=shape))
    return np.asarray(drawn).astype(NUMPY.get(dtype, "float32"))


def _integer_range(dtype: int, low: float | None, high: float | None) -> tuple[int, int]:
    """Return the least and the greatest integer to draw, both included."""
    least, greatest = (int(end) for end in limits_of(dtype) or (0, _LARGEST_DRAWN))
    greatest = min(greatest, _LARGEST_DRAWN)
    lowest = 1 if greatest >= 26 else least
    first = int(np.ceil(lowest if low is None else low))
    last = int(np.ceil(26 if high is None else high)) - 1
    first = min(max(first, least), greatest)
    return first, min(max(last, first), greatest)
