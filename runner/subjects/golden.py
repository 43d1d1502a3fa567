"""Golden values: what a tensor of the parent holds, in the type of the child's tensor whose partner it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.inputs.declared import type_name
from runner.inputs.fit import tensor
from runner.model import values
from runner.model.types import limit_of
from runner.model.values import TensorFile

_ONE_NUMBER = 1e-3
"""Relative distance up to which numbers that do not fit count as one and the same: a mask, added to scores."""


@dataclass(frozen=True)
class Golden:
    """``file``: the value in the child's type. ``unfit``: why it must not be fed, "" if it may."""

    file: TensorFile
    unfit: str = ""


def cast(sample: Mapping[str, TensorFile], dtypes: Mapping[str, int], folder: Path) -> dict[str, TensorFile]:
    """Return the tensors that ``dtypes`` names, in those ONNX element types.

    A value of another type is rounded to it and written into ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = {}
    for at, (name, dtype) in enumerate(dtypes.items()):
        result[name] = sample[name]
        if dtype and sample[name].structure is None and sample[name].dtype != dtype:
            rounded = tensor(values.read(sample[name]), name, dtype)
            result[name] = values.write(rounded, name, folder / f"{at}.pb")
    return result


def golden(
    theirs: TensorFile, name: str, dtype: int, own: TensorFile | None, path: Path, *, reshaped: bool = False
) -> Golden:
    """Return the parent's value as that of the child's tensor ``name`` of this type; it is written to ``path``.

    ``own``: what the child itself made of it. ``reshaped``: the value takes the shape of that. Numbers beyond the
    type's range become its largest ones, which shows where the child overflows, but is no value to go on with. A mask
    is: one large negative number over and over; it becomes -Inf where the child has infinities too.
    """
    reshaped = reshaped and own is not None and own.shape != theirs.shape
    if theirs.structure is not None or (dtype in (theirs.dtype, TensorProto.STRING) and not reshaped):
        return Golden(values.renamed(theirs, name, path))
    array = values.read(theirs)
    if reshaped and own is not None:
        array = array.reshape(own.shape)
    limit = limit_of(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = np.isfinite(array) & (np.abs(array) > limit) if limit is not None and array.dtype.kind == "f" else None
        if beyond is None or not beyond.any():
            return Golden(values.write(tensor(array, name, dtype), name, path))
        mask = _is_mask(array[beyond])
        if not (mask and own is not None and not own.finite):
            array = np.where(beyond, np.sign(array) * limit, array).astype(array.dtype)
        file = values.write(tensor(array, name, dtype), name, path)
    if mask:
        return Golden(file)
    return Golden(file, f"the good value of {name!r} does not fit into {type_name(dtype)}")


def _is_mask(beyond: np.ndarray[Any, Any]) -> bool:
    if beyond.size < 2 or beyond.max() >= 0:
        return False
    low, high = float(beyond.min()), float(beyond.max())
    return high - low <= _ONE_NUMBER * -low
