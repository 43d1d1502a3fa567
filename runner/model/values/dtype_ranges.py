"""Ranges of element types: which values do not fit, and clipping to the range."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from runner.model.values.dtypes import is_integer, limits_of

Array = np.ndarray[Any, Any]


def range_of(dtype: int) -> tuple[float, float] | None:
    """Return the least and the largest finite number of an ONNX type; None for booleans, and for what is no number."""
    ends = limits_of(dtype)
    if ends is None or dtype == TensorProto.BOOL:
        return None
    return min(ends[0], 0), ends[1]


def beyond(array: Array, dtype: int) -> Array:
    """Return which elements an ONNX type cannot hold, as booleans.

    The ends of an integer type are no numbers beyond those of another one: they stand for as far as it goes.
    """
    ends = range_of(dtype)
    found = np.zeros(array.shape, bool)
    if ends is None or array.dtype.kind in "OSUbc":
        return found
    least, largest = ends
    if array.dtype.kind in "iu":
        own = np.iinfo(array.dtype)
        if largest < own.max:
            found |= array > largest
        if least > own.min:
            found |= array < least
        if is_integer(dtype):
            found &= (array != own.max) & ((array != own.min) | (own.min == 0))
        return found
    wide = array.astype(np.float64)
    if is_integer(dtype):
        return ~((wide > least - 1) & (wide < largest + 1))  # NaN and Inf are beyond as well
    return np.isfinite(wide) & ((wide > largest) | (wide < least))


def clipped(array: Array, dtype: int) -> Array:
    """Return numbers with those beyond the range of an ONNX type as its least and largest ones."""
    ends = range_of(dtype)
    if ends is None or array.dtype.kind in "OSUbc":
        return array
    least, largest = ends
    if array.dtype.kind in "iu":
        own = np.iinfo(array.dtype)
        return np.clip(array, max(least, own.min), min(largest, own.max)).astype(array.dtype)
    wide = array.astype(np.float64)
    if is_integer(dtype):
        # the largest int64 has no float64: the next one would wrap
        top = float(largest) if int(float(largest)) == largest else float(np.nextafter(float(largest), 0))
        return np.clip(np.nan_to_num(wide), least, top)
    return np.where(beyond(array, dtype), np.clip(wide, least, largest), wide)
