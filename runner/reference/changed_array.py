"""What makes one array of another.

A weight that a conversion got wrong is most often the right numbers in a wrong place, sign, size or type. Each kind
is one question about the two arrays; the first that explains all elements is the answer, from the most to the least
specific. Nothing here runs, reads or writes anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_NEAR = 1e-5
"""Part of the largest value by which equal numbers may differ: float32 that was computed in another order."""
LOW: Mapping[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
_MOST_AXES, _GATES, _DIRECTIONS = 6, (4, 3), 2
_STEPS = 1.001
"""Steps by which a number is moved, and a bit more: half a one by rounding, a whole one at an end (8 becomes 7)."""
_FARTHEST = 16
"""Steps that no number is moved by which is fitted to data."""
_LEAST_GROUP = 8
"""Numbers with one scale that tell a factor of their own."""
_LEVELS = {"int4": 16, "int8": 256}
"""How many values an integer type has."""
_LEAST_CUT = 0.01
"""Part of the elements that stand at an end where values were cut off."""


@dataclass(frozen=True)
class Change:
    """What happened to a weight.

    ``kind``: transposed, permuted, gates, scaled, shifted, negated, swapped, rounded, cut off, zero, constant.
    ``said``: in words, behind "it is"; of a swapped one, whose values it holds. ``axis``: along which axis, or None.
    ``wanted``: the one number that it should hold throughout; "": it should hold several.
    """

    kind: str
    said: str
    axis: int | None = None
    wanted: str = ""

    def of(self, name: str, good: str, more: str = "") -> str:
        """Return it as a sentence. ``name``, ``good``: the weight's and its partner's; ``more``: about that one."""
        if self.kind == "swapped":
            return f"{name} holds {self.said} of the original, not {good}"
        if self.wanted:
            its = "the original's" if name == good else f"{good} of the original"
            return f"{name} is {self.said}; {its} is {self.wanted}"
        return f"{name} is {self.said}, compared with {good} of the original{more}"


def change_of(
    mine: Array, good: Array, others: Mapping[str, Array] | None = None, step: Array | float = 0.0
) -> Change | None:
    """Return what makes ``mine`` of ``good``; None: nothing does, or the two are alike.

    ``mine``, ``good``: of any shape, dtype float or integer. ``others``: further weights of the original by name, of
    which ``mine`` may be one. ``step``: of integers that stand for ``mine``: so far each is rounded.
    """
    mine, good = (np.asarray(one).astype(np.float64) for one in (mine, good))
    off = off_of(mine, step)
    if not mine.size or not np.isfinite(good).all() or (mine.shape == good.shape and alike(mine, good, off)):
        return None
    for ask in (_throughout, _transposed):
        if found := ask(mine, good, off):
            return found
    for name, other in (others or {}).items():
        if other.shape == mine.shape and other.size > 1 and alike(mine, other.astype(np.float64), off):
            return Change("swapped", name)
    if mine.shape != good.shape:
        return None
    asked = [_scaled, _permuted, _rounded, _cut_off, _scaled_along]
    if np.any(step):  # few values tell that they were cut off, where a coarse step hides what became of the others
        together = partial(_scaled_together, step=np.broadcast_to(step, mine.shape))
        asked = [_cut_off, _scaled, _shifted, _permuted, _scaled_along, together]
    return next((found for ask in asked if (found := ask(mine, good, off))), None)


def off_of(mine: Array, step: Array | float = 0.0) -> Array:
    """Return by how much each number may be off where it is equal. ``step``: see `change_of`."""
    least = _NEAR * np.max(np.abs(mine), initial=0.0)
    found: Array = np.maximum(least, np.broadcast_to(_STEPS * np.asarray(step), mine.shape))
    return found


def alike(mine: Array, good: Array, off: Array) -> bool:
    """Whether numbers differ by no more than they may be off."""
    return bool(np.isfinite(mine).all() and (np.abs(mine - good) <= off).all())


def steps_between(mine: Array, good: Array, step: Array | float) -> int:
    """Return by how many steps integers are off where it is most; 0: they may have been fitted to data, or cut off.

    ``step``: of each. Fitted ones (GPTQ) miss by about half a step, and few by more than one.
    """
    step = np.broadcast_to(step, mine.shape)
    groups = np.unique(step, return_inverse=True)[1].reshape(mine.shape)
    ends = np.full((2, groups.max() + 1), [[np.inf], [-np.inf]])
    np.minimum.at(ends[0], groups, mine)
    np.maximum.at(ends[1], groups, mine)
    low, high = ends[:, groups]
    far = np.abs(mine - np.where(low < high, np.clip(good, low, high), good)) / np.where(step > 0, step, np.inf)
    most = float(far.max())
    return round(most) if most > _FARTHEST or np.square(far).mean() > 1 else 0


def _throughout(mine: Array, good: Array, _: Array) -> Change | None:
    """Whether it holds one number, as often as it may be."""
    one = mine.flat[0]
    if (mine != one).any() or not good.size:
        return None
    least, largest, beside = good.min(), good.max(), mine.shape == good.shape
    if beside and least == largest:
        return Change("scaled", f"{one:.6g}", wanted=f"{least:.6g}")
    if one == 0 and good.any():
        return Change("zero", "zero throughout")
    return Change("constant", f"{one:.3g} throughout, not {least:.3g} to {largest:.3g}") if beside else None


def _transposed(mine: Array, good: Array, off: Array) -> Change | None:
    """Whether the axes stand in another order, or the values were read in the order of one."""
    if not (2 <= good.ndim <= _MOST_AXES and mine.ndim == good.ndim):
        return None
    _, *orders = itertools.permutations(range(good.ndim))
    for order in orders:
        turned = good.transpose(order)
        if turned.shape == mine.shape and alike(mine, turned, off):
            more = "" if good.ndim == 2 else f", its axes in the order {list(order)}"
            return Change("transposed", f"transposed{more}")
        if turned.size == mine.size and alike(mine.ravel(), turned.ravel(), off.ravel()):
            return Change("transposed", "transposed in memory: the values in the order of another layout")
    return None


def _scaled(mine: Array, good: Array, off: Array) -> Change | None:
    factor = _factor(mine, good, off)
    if factor is None:
        return None
    if alike(mine, -good, off):
        return Change("negated", "negated")
    return Change("scaled", f"scaled by {_in_words([factor], mine, off)}")


def _shifted(mine: Array, good: Array, off: Array) -> Change | None:
    step = off / _STEPS
    by = float(np.rint(((mine - good) / step).mean()))
    said = f"shifted by {by:.0f} step{'s' * (abs(by) != 1)}, as by another zero point"
    if abs(by) >= max(_LEVELS.values()):  # no zero point is
        said = f"shifted by {float((mine - good).mean()):.3g}"
    return Change("shifted", said) if alike(mine, good + by * step, off) else None


def _in_words(factors: Sequence[float], mine: Array, off: Array) -> str:
    """Return one factor, or the least and the largest, with the digits that are known."""
    digits = 4 if np.max(off) <= _NEAR * np.max(np.abs(mine)) else 2
    return " to ".join(dict.fromkeys(f"{one:.{digits}g}" for one in (min(factors), max(factors))))


def _factor(mine: Array, good: Array, off: Array) -> float | None:
    """Return the number that makes one of the other; None: none does. What was lost at an end makes it inexact."""
    square = float((good * good).sum())
    factor = float((mine * good).sum()) / square if square else 0.0
    return next((one for one in (factor, float(f"{factor:.2g}")) if one and alike(mine, one * good, off)), None)


def _scaled_along(mine: Array, good: Array, off: Array) -> Change | None:
    """Whether each slice along an axis has a factor of its own; some may be 1."""
    for axis in range(good.ndim if good.ndim > 1 else 0):
        rows, right, by = (np.moveaxis(one, axis, 0).reshape(good.shape[axis], -1) for one in (mine, good, off))
        if rows.shape[1] < 2 or rows.shape[0] < 2:
            continue
        wrong = [part for part in zip(rows, right, by, strict=True) if not alike(*part)]
        one = _factor(*map(np.stack, zip(*wrong, strict=True))) if wrong else None
        factors = [_factor(*part) for part in wrong] if one is None else [one]
        if wrong and (known := [one for one in factors if one]) == factors:
            where = f"in {len(wrong)} of {len(rows)} places " if len(wrong) < len(rows) else ""
            if all(alike(row, -other, far) for row, other, far in wrong):
                return Change("negated", f"negated {where}along axis {axis}", axis)
            return Change("scaled", f"scaled by {_in_words(known, mine, off)} {where}along axis {axis}", axis)
    return None


def _scaled_together(mine: Array, good: Array, off: Array, step: Array) -> Change | None:
    """Whether the numbers with one step, a block of a row, say, have a factor of their own; some may be 1."""
    groups = np.unique(step, return_inverse=True)[1].reshape(mine.shape)
    count = int(groups.max()) + 1
    wrong = np.unique(groups[np.abs(mine - good) > off])
    one = _factor(*(each[np.isin(groups, wrong)] for each in (mine, good, off)))
    sizes, square, both = (
        np.bincount(groups.ravel(), one.ravel(), count) for one in (np.ones(mine.shape), good * good, mine * good)
    )
    factors = np.ones(count)
    factors[wrong] = both[wrong] / np.where(square[wrong], square[wrong], 1)
    factors[wrong] = one or factors[wrong]
    if sizes.min() < _LEAST_GROUP or not factors.all() or not alike(mine, factors[groups] * good, off):
        return None
    return Change("scaled", f"scaled by {_in_words(factors[wrong], mine, off)} in {len(wrong)} of {count} blocks")


def _permuted(mine: Array, good: Array, off: Array) -> Change | None:
    for axis in range(good.ndim):
        rows, right, by = (np.moveaxis(one, axis, 0).reshape(good.shape[axis], -1) for one in (mine, good, off))
        order = _order(rows, right, by)
        if order is None or len(order) < 2:
            continue
        for gates in _GATES if axis == 1 and good.shape[0] <= _DIRECTIONS else ():
            if moved := _of_blocks(order, gates):
                return Change("gates", f"permuted in its {gates} gates (axis {axis}): their order is {moved}", axis)
        if order == [*range(len(order))][::-1]:
            return Change("permuted", f"reversed along axis {axis}", axis)
        return Change("permuted", f"permuted along axis {axis}", axis)
    return None


def _order(rows: Array, right: Array, off: Array) -> list[int] | None:
    """Return which good row each is; None: they are not the same rows."""
    free, found = np.ones(len(right), bool), []
    for row, by in zip(rows, off, strict=True):
        far = np.max(np.abs(right - row), axis=1)
        far[~free] = np.inf
        at = int(np.argmin(far))
        if not alike(row, right[at], by):
            return None
        free[at] = False
        found.append(at)
    return found


def _of_blocks(order: list[int], gates: int) -> list[int] | None:
    """Return the order of so many blocks of equal length, each whole; None: the rows moved otherwise."""
    length, rest = divmod(len(order), gates)
    if rest or length < 2:
        return None
    starts = order[::length]
    if any(
        order[at] != starts[at // length] + at % length or order[at - at % length] % length for at in range(len(order))
    ):
        return None
    return [one // length for one in starts]


def _rounded(mine: Array, good: Array, _: Array) -> Change | None:
    """Whether the values are the good ones in a type of fewer bits, or in the steps of an integer type."""
    for name, dtype in LOW.items():
        with np.errstate(all="ignore"):
            rounded = good.astype(np.float32).astype(dtype).astype(np.float64)
        if np.isfinite(rounded).all() and np.array_equal(mine.astype(np.float32), rounded.astype(np.float32)):
            return Change("rounded", f"rounded to {name}")
    values = np.unique(mine)
    step = float(np.diff(values).min()) if values.size > 1 else 0.0
    for name, levels in _LEVELS.items():
        if step > 0 and values.size <= levels < mine.size and np.abs(mine - good).max() <= 0.51 * step:
            whole = mine / step
            if np.abs(whole - np.rint(whole)).max() <= 1e-3:
                return Change("rounded", f"rounded to {name} in steps of {step:.3g}")
    return None


def _cut_off(mine: Array, good: Array, off: Array) -> Change | None:
    low, high = float(mine.min()), float(mine.max())
    at_ends = (good > high + off) | (good < low - off)
    if low == high or not at_ends.any() or at_ends.mean() < min(_LEAST_CUT, 1 / mine.size):
        return None
    if alike(mine, np.clip(good, low, high), off):
        largest = float(np.max(np.abs(good)))
        ends = [f"{end:.4g}" for end, beyond in ((low, good < low - off), (high, good > high + off)) if beyond.any()]
        return Change("cut off", f"cut off at {' and '.join(ends)}, where its values reach {largest:.4g}")
    return None
