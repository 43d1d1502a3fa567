"""Outputs that show nothing: whatever goes wrong inside a model, a constant looks right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from runner.candidate import Sample
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.text import listed

CONSTANT = "constant"
"""The key of a verdict's metrics that lists such outputs."""


def blank(
    names: Sequence[str], expected: Sequence[Mapping[str, TensorFile]], samples: Sequence[Sample]
) -> tuple[str, ...]:
    """Return the outputs whose right values, ``expected`` of each sample, show nothing.

    They have no elements, are zero in all samples, or the same in all of several samples whose inputs differ. A single
    sample cannot show what is constant: there an output of several equal elements is taken to be. NaN and Inf are
    another matter, and only tensors are looked at.
    """
    fed = {tuple(sorted((name, feed.path.read_bytes()) for name, feed in one.feeds.items())) for one in samples}
    found = []
    for name in names:
        held = [one[name] for one in expected if name in one]
        if held and all(one.structure is None and one.finite for one in held) and _is_blank(held, several=len(fed) > 1):
            found.append(name)
    return tuple(found)


def said(names: Sequence[str]) -> str:
    """Say what is wrong with such outputs."""
    verb = "shows" if len(names) == 1 else "show"
    return (
        f"{listed(names)}: all zero, or the same whatever goes in, so {verb} nothing. Give inputs that make a "
        "difference (inputs=files inputs.path=..), or several samples (inputs.samples)"
    )


def _is_blank(held: Sequence[TensorFile], *, several: bool) -> bool:
    arrays = [recorded.read(one) for one in held]
    if all(array.size == 0 for array in arrays):
        return True
    numbers = all(array.dtype.kind not in "OSU" for array in arrays)
    if numbers and all(not np.any(array.astype(np.float64) if array.dtype.kind == "V" else array) for array in arrays):
        return True
    if several and len(arrays) > 1:
        return len({(array.shape, array.tobytes() if numbers else str(array.tolist())) for array in arrays}) == 1
    return all(array.size > 1 and bool((array == array.reshape(-1)[0]).all()) for array in arrays)
