"""Converts a value that was read to the type that a model's input declares, or says why it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from runner.errors import UsageError
from runner.inputs.declared_inputs import Declared, type_name
from runner.model.values.dtype_ranges import beyond, clipped
from runner.model.values.dtypes import is_integer, limits_of
from runner.model.values.tensor_bytes import BITS
from runner.model.values.tensor_file import NUMPY

# the element types that numpy has itself: everything else (bfloat16, float8, int4) travels through files as something
# else
_NATIVE = frozenset({*NUMPY, TensorProto.STRING})
FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
# FLOAT4E2M1, FLOAT6E2M3, FLOAT6E3M2
_WITHOUT_NAN = (23, 27, 28)
# what `values.write` takes: an array, or a tensor of a type that numpy lacks
Value: TypeAlias = np.ndarray[Any, Any] | TensorProto


def tensor(array: np.ndarray[Any, Any], name: str, dtype: int) -> Value:
    """``array``'s values in the ONNX type ``dtype`` (rounded where the array's type is wider)."""
    if dtype == TensorProto.STRING:
        return array.astype(object)
    if dtype in _NATIVE:
        return array.astype(helper.tensor_dtype_to_np_dtype(dtype), copy=False)
    return helper.make_tensor(name, dtype, array.shape, array.reshape(-1).astype(np.float32))


def fitted(value: Value, one: Declared, source: Path) -> Value:
    """``value`` as a tensor for input ``one``.

    Where numpy has no such type, an array of the raw bits (a void type of the same size, which is how npz files hold
    bfloat16) or of float32, int8 or uint8 values is taken. Raises UsageError, naming ``source``, for another type or
    shape, and for a value that the type cannot hold (rounding aside).
    """
    if isinstance(value, TensorProto):
        if why := one.mismatch(value.data_type, value.dims):
            raise UsageError(f"{source}: {one.name!r} {why}")
        return value
    found = _onnx_type(value, one.dtype)
    if why := one.mismatch(found, value.shape):
        raise UsageError(f"{source}: {one.name!r} {why}")
    if value.dtype.kind == "V" and value.dtype.name not in type_name(one.dtype):
        return helper.make_tensor(one.name, one.dtype, value.shape, value.tobytes(), raw=True)
    if one.dtype not in _NATIVE and value.dtype.kind in "fiu":
        _refuse_misfits(value, one, source)
    return tensor(value, one.name, one.dtype)


def rounded(value: Value, one: Declared) -> Value:
    """``value`` in the float type that is declared, where both are floats, else as it is.

    A number beyond the range of that type becomes its end, which is no infinity.
    """
    theirs = value.data_type if isinstance(value, TensorProto) else _onnx_type(value, TensorProto.FLOAT)
    if theirs == one.dtype or not {theirs, one.dtype} <= FLOATS:
        return value
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
    return tensor(np.where(beyond(array, one.dtype), clipped(array, one.dtype), array), one.name, one.dtype)


def _refuse_misfits(array: np.ndarray[Any, Any], one: Declared, source: Path) -> None:
    """Raise UsageError for a value that the input's type cannot hold.

    Of the types that numpy lacks only bfloat16 is given infinities.
    """
    least, greatest = limits_of(one.dtype) or (-np.inf, np.inf)
    if is_integer(one.dtype):
        # NaN fails both comparisons
        bad = ~((array >= least) & (array <= greatest) & (array == np.floor(array)))
    else:
        bad = (array < min(least, 0)) | (array > greatest)
        bad = bad & np.isfinite(array) if one.dtype == TensorProto.BFLOAT16 else bad
        bad = bad | np.isnan(array) if one.dtype in _WITHOUT_NAN else bad
    if bad.any():
        what = "whole numbers" if is_integer(one.dtype) else "numbers"
        raise UsageError(
            f"{source}: {one.name!r} has {array[bad].flat[0]:g}, which {type_name(one.dtype)} cannot hold: it has "
            f"{what} from {least:g} to {greatest:g}"
        )


def _onnx_type(array: np.ndarray[Any, Any], wanted: int) -> int:
    """The ONNX type of the array, ``wanted`` if it can stand for that one."""
    if wanted == TensorProto.STRING and array.dtype.kind in "USO":
        return wanted
    if wanted not in _NATIVE:
        raw = array.dtype.kind == "V" and array.dtype.itemsize == BITS.get(wanted, 0) // 8
        if raw or array.dtype in (np.float32, np.int8, np.uint8):
            return wanted
    try:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("=")))
    except (KeyError, ValueError, TypeError):
        return int(TensorProto.UNDEFINED)
