"""Good values: what a tensor of the parent holds, in the type of the child's tensor whose partner it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.inputs.declared_inputs import type_name
from runner.inputs.fit_to_declared import tensor
from runner.model.values import recorded
from runner.model.values.dtype_ranges import beyond, clipped
from runner.model.values.dtypes import is_integer
from runner.model.values.recorded import TensorFile

_ONE_NUMBER = 1e-3
"""Relative distance up to which numbers that do not fit count as one and the same: a mask, added to scores."""


@dataclass(frozen=True)
class GoodValue:
    """``file``: the value in the child's type. ``unfit``: why it must not be fed, "" if it may."""

    file: TensorFile
    unfit: str = ""


class UnfitError(ValueError):
    """A number is beyond the range of the type that it is wanted in; the message says which tensor, and the type."""


def cast(sample: Mapping[str, TensorFile], dtypes: Mapping[str, int], folder: Path) -> dict[str, TensorFile]:
    """Return the tensors that ``dtypes`` names, in those ONNX element types.

    A value of another type is rounded to it and written into ``folder``. Raises UnfitError for numbers that the type
    cannot hold, unless they are a mask (one large negative number over and over).
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = {}
    for at, (name, dtype) in enumerate(dtypes.items()):
        result[name] = sample[name]
        if dtype and sample[name].structure is None and sample[name].dtype != dtype:
            array = recorded.read(sample[name])
            over = beyond(array, dtype)
            if over.any() and (is_integer(dtype) or not _is_mask(array[over])):
                held = array[over].reshape(-1)[0]
                raise UnfitError(f"{name!r} holds {held!s}, which {type_name(dtype)} cannot hold")
            rounded = tensor(clipped(array, dtype) if is_integer(dtype) else array, name, dtype)
            result[name] = recorded.write(rounded, name, folder / f"{at}.pb")
    return result


def good_value(
    theirs: TensorFile, name: str, dtype: int, own: TensorFile | None, path: Path, *, reshaped: bool = False
) -> GoodValue:
    """Return the parent's value as that of the child's tensor ``name`` of this type; it is written to ``path``.

    ``own``: what the child itself made of it. ``reshaped``: the value takes the shape of that. Numbers beyond the
    type's range become its ends, which shows where the child overflows, but is no value to go on with. A mask
    is: one large negative number over and over; it becomes -Inf where the child has infinities too.
    """
    reshaped = reshaped and own is not None and own.shape != theirs.shape
    if theirs.structure is not None or (dtype in (theirs.dtype, TensorProto.STRING) and not reshaped):
        return GoodValue(recorded.renamed(theirs, name, path))
    array = recorded.read(theirs)
    if reshaped and own is not None:
        array = array.reshape(own.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        over = beyond(array, dtype)
        mask = bool(over.any()) and not is_integer(dtype) and _is_mask(array[over])
        if is_integer(dtype) or (over.any() and not (mask and own is not None and not own.finite)):
            array = clipped(array, dtype)
        file = recorded.write(tensor(array, name, dtype), name, path)
    if mask or not over.any():
        return GoodValue(file)
    return GoodValue(file, f"the good value of {name!r} does not fit into {type_name(dtype)}")


def _is_mask(found: np.ndarray[Any, Any]) -> bool:
    wide = found.astype(np.float64)
    if wide.size < 2 or wide.max() >= 0:
        return False
    low, high = float(wide.min()), float(wide.max())
    return high - low <= _ONE_NUMBER * -low
