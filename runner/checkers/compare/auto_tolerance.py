"""`checker.tolerance=auto`: a tolerance between the noise of good runs and the error of the failing model.

Noise: the reference runs a candidate twice, the second time with every floating-point feed moved by one unit in its
last place, up or down by a seeded coin; what that does to an output is its noise, at least a few units in the last
place of its type. The error of the failing model is that of its worst output. The limit for an output of a candidate
is the geometric mean of its noise and that error: in the middle between the two on a logarithmic scale, since both
spread over decades.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import TensorProto

from runner.checkers.compare.element_blocks import Array, blocks, real
from runner.model.values import recorded
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import BITS

# below this many times the noise an error cannot be told from it
CLEAR = 10.0

# distance from 1 to the next number, of the types that are computed in; integers have none
EPSILON = {dtype: 2.0 ** (1 - kind.digits) for dtype, kind in FLOATS.items() if BITS[dtype] >= 8 and kind.digits > 1}
# types whose neighboring numbers have neighboring bit patterns (sign and magnitude)
_NUDGED = frozenset(EPSILON) - {int(TensorProto.COMPLEX64), int(TensorProto.COMPLEX128)}


def limit(noise: float, failing: float) -> float:
    """The limit for an output with this noise (not 0), given the failing model's error, in the same unit."""
    return math.sqrt(noise * failing)


def nudged(feeds: Mapping[str, TensorFile], folder: Path) -> dict[str, TensorFile]:
    """The same feeds with each finite, non-zero floating-point number moved to a neighbor; the name seeds the coin.

    Files are written into ``folder``, which exists. Feeds of other types stay the files that they are.
    """
    moved = {}
    for position, (name, feed) in enumerate(feeds.items()):
        if feed.dtype not in _NUDGED:
            moved[name] = feed
            continue
        array = recorded.mapped(feed)
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        generator = np.random.Generator(np.random.PCG64(seed))
        moved[name] = recorded.write(nudge(array, generator), name, folder / f"nudged_{position}.pb")
    return moved


def nudge(array: Array, generator: np.random.Generator) -> Array:
    """Every number of an IEEE-like type moved by one unit in its last place; zeros, infinities and NaN stay."""
    # of the whole array this is the only copy; a block takes as many coins of the generator as it has numbers
    result = np.array(array).reshape(-1)
    for block in blocks(result):
        block[:] = _nudged(block, generator)
    return result.reshape(array.shape)


def _nudged(block: Array, generator: np.random.Generator) -> Array:
    bits = block.view(np.dtype(f"u{block.dtype.itemsize}"))
    step = generator.integers(0, 2, bits.shape, dtype=np.int8) * 2 - 1
    up, down = bits + bits.dtype.type(1), bits - bits.dtype.type(1)
    moved = np.where(step > 0, up, down).astype(bits.dtype)
    with np.errstate(invalid="ignore"):  # a NaN that signals
        before = real(block)
        after = real(moved.view(block.dtype))
    stays = (before == 0) | ~np.isfinite(before) | ~np.isfinite(after)
    found: Array = np.where(stays, bits, moved).view(block.dtype)
    return found
