"""Variants of input samples: their floats perturbed by up to 1 %, so that other rounding errors occur."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from runner.model.values import recorded
from runner.model.values.recorded import TensorFile

MOVED = 0.01
"""By which share of itself a number is moved at most."""
_FLOATS = ("float16", "float32", "float64", "bfloat16")


def variants(
    samples: Sequence[Mapping[str, TensorFile]], count: int, seed: int, folder: Path
) -> tuple[Mapping[str, TensorFile], ...]:
    """Return ``count`` variants of the samples in turn; none where no sample holds real numbers.

    A tensor of whole numbers stands for something (a mask, an index, a step) and stays; the others keep their zeros and
    stay between their least and largest values. Files are written into ``folder``.
    """
    found = []
    for number in range(count):
        generator = np.random.Generator(np.random.PCG64([seed, number]))
        sample = samples[number % len(samples)]
        made = {}
        for position, (name, tensor) in enumerate(sample.items()):
            moved = _moved(tensor, generator, folder / f"variant_{number}" / f"input_{position}.pb")
            if moved is not None:
                made[name] = moved
        if made:
            found.append({**sample, **made})
    return tuple(found)


def _moved(tensor: TensorFile, generator: np.random.Generator, path: Path) -> TensorFile | None:
    if tensor.structure is not None:
        return None
    array = recorded.read(tensor)
    if str(array.dtype) not in _FLOATS or not array.size:
        return None
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size or np.array_equal(finite, np.rint(finite)):
        return None
    with np.errstate(invalid="ignore"):
        moved = wide * (1 + generator.uniform(-MOVED, MOVED, wide.shape))
    path.parent.mkdir(parents=True, exist_ok=True)
    return recorded.write(
        np.clip(moved, finite.min(), finite.max(), where=np.isfinite(wide), out=moved).astype(array.dtype),
        tensor.name,
        path,
    )
