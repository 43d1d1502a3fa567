"""Outputs that show nothing: whatever goes wrong inside a model, a constant looks right."""

from __future__ import annotations

import filecmp
from collections.abc import Mapping, Sequence

import numpy as np

from runner.candidate import Sample
from runner.checkers.compare.element_blocks import Array, blocks, real
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import STRING
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
    several = any(_fed_otherwise(one.feeds, samples[0].feeds) for one in samples[1:])
    found = []
    for name in names:
        held = [one[name] for one in expected if name in one]
        if held and all(one.structure is None and one.finite for one in held) and _is_blank(held, several=several):
            found.append(name)
    return tuple(found)


def _fed_otherwise(mine: Mapping[str, TensorFile], theirs: Mapping[str, TensorFile]) -> bool:
    return mine.keys() != theirs.keys() or not all(
        filecmp.cmp(mine[name].path, theirs[name].path, shallow=False) for name in mine
    )


def said(names: Sequence[str]) -> str:
    """Say what is wrong with such outputs."""
    verb = "shows" if len(names) == 1 else "show"
    return (
        f"{listed(names)}: all zero, or the same whatever goes in, so {verb} nothing. Give inputs that make a "
        "difference (inputs=files inputs.path=..), or several samples (inputs.samples)"
    )


def _is_blank(held: Sequence[TensorFile], *, several: bool) -> bool:
    if all(0 in one.shape for one in held):
        return True
    # each map keeps a file handle: one is opened when it is looked at
    if all(one.dtype != STRING for one in held) and not any(_any(recorded.mapped(one)) for one in held):
        return True
    if several and len(held) > 1:
        first = recorded.mapped(held[0])
        return all(_alike(first, recorded.mapped(one)) for one in held[1:])
    return all(array.size > 1 and _is_one_value(array) for array in map(recorded.mapped, held))


def _any(array: Array) -> bool:
    """Whether anything but zeros is in an array."""
    return any(np.any(real(block) if block.dtype.kind == "V" else block) for block in blocks(array.reshape(-1)))


def _alike(one: Array, other: Array) -> bool:
    """Whether two arrays are the same bit by bit, or text by text."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    pairs = zip(blocks(one.reshape(-1)), blocks(other.reshape(-1)), strict=True)
    if one.dtype.kind in "OSU":
        return all(a.tolist() == b.tolist() for a, b in pairs)
    return all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in pairs)


def _is_one_value(array: Array) -> bool:
    flat = array.reshape(-1)
    return all(bool((block == flat[0]).all()) for block in blocks(flat))
