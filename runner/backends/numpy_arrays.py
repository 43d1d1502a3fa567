"""Tensors as arrays for Python code: numpy's own types, ml_dtypes' and the custom ones of older onnx packages."""

# a package is imported when it is used: the interpreter may not have it
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import Any

import numpy as np

from runner.backends.tensor_files import Structure, Tensor, Value
from runner.model.values.dtypes import BY_NUMBER, BY_NUMPY, STRING, pack, unpack

_SIGNED = frozenset({22, 26})


def to_array(tensor: Tensor, custom: bool = False) -> Any:
    """Return an array with the tensor's own dtype: numpy's, else ml_dtypes', else the bits as unsigned integers.

    ``custom``: use the structured dtypes of ``onnx.reference.custom_element_types``, which the evaluator of onnx < 1.19
    reads.
    """
    kind = tensor.kind
    if kind.native:
        return tensor.array()
    signed = kind.number in _SIGNED
    bits = unpack(tensor.raw, kind.bits, tensor.count, signed) if kind.bits < 8 else tensor.raw.view(kind.storage)
    bits = bits.reshape(tensor.shape)
    if custom:
        import onnx.reference.custom_element_types as custom_types

        names = (kind.numpy_name, kind.name)
        found = [getattr(custom_types, name) for name in names if hasattr(custom_types, name)]
        return bits.view(found[0]) if found else bits
    try:
        import ml_dtypes
    except ImportError:
        return bits
    found_type = getattr(ml_dtypes, kind.numpy_name, None)
    return bits if found_type is None else bits.view(found_type)


def from_array(value: Any) -> Tensor:
    """Return the tensor of an array or a scalar. Raises TypeError for what is no tensor (None, a list, a dict)."""
    if value is None or isinstance(value, (list, tuple, dict, set)):
        raise TypeError(f"no tensor but {type(value).__name__}")
    array = np.asarray(value)
    shape = tuple(array.shape)
    if array.dtype.kind in "OUS":
        texts = [_text(item) for item in array.reshape(-1)]
        return Tensor(BY_NUMBER[STRING], shape, None, tuple(texts))
    # a structured dtype of one field names the type
    name = (array.dtype.fields and next(iter(array.dtype.fields))) or array.dtype.name
    kind = BY_NUMPY.get(name)
    if kind is None:
        raise TypeError(f"no ONNX tensor has elements of numpy type {array.dtype}")
    # not ascontiguousarray, which makes a scalar a vector
    flat = array.reshape(-1)
    flat = flat if flat.flags.c_contiguous else flat.copy()
    if kind.bits < 8:
        return Tensor(kind, shape, pack(flat.view(np.uint8), kind.bits))
    if array.dtype.byteorder == ">":
        flat = flat.astype(array.dtype.newbyteorder("<"))
    return Tensor(kind, shape, flat.view(np.uint8))


def declared_as(tensor: Tensor, number: int) -> Tensor:
    """Return the tensor as the element type that the model declares, if an evaluator gave its bits as plain integers.

    Evaluators before onnx 1.19 do so for some operators: int4 as int8, one element a byte, float8 as uint8.
    """
    kind = BY_NUMBER.get(number)
    if kind is None or kind.native or not tensor.kind.native or tensor.kind.number not in (2, 3, 4):
        return tensor
    if kind.bits < 8 == tensor.kind.bits:
        return Tensor(kind, tensor.shape, pack(tensor.raw, kind.bits))
    return Tensor(kind, tensor.shape, tensor.raw) if kind.bits == tensor.kind.bits else tensor


def to_python(value: Value, custom: bool = False) -> Any:
    """Return a value as Python code knows it: arrays, lists of them for sequences, None, and dicts for maps.

    The values of a map come as plain numbers and strings where they are scalars.
    """
    if isinstance(value, Tensor):
        return to_array(value, custom)
    if isinstance(value, dict):
        return {key: _plain(to_python(item, custom)) for key, item in value.items()}
    return value if value is None else [to_python(item, custom) for item in value]


def from_python(value: Any, structure: Structure) -> Value:
    """Undo ``to_python`` for a value of this structure. Raises TypeError for one of another."""
    form = structure[0]
    if form == "tensor":
        kind = BY_NUMBER.get(structure[1])
        if kind is not None and kind.native and kind.number != STRING and isinstance(value, (bool, int, float)):
            # a plain number of a map has to be rounded to the declared type first
            value = np.asarray(value, kind.numpy_name)
        return declared_as(from_array(value), structure[1])
    if form == "optional":
        value = _unwrapped(value, structure[1])
        return None if value is None else from_python(value, structure[1])
    if form == "sequence" and isinstance(value, (list, tuple)):
        return [from_python(item, structure[1]) for item in value]
    if form == "map" and isinstance(value, dict):
        return {key: from_python(item, structure[2]) for key, item in value.items()}
    raise TypeError(f"no {form} but {type(value).__name__}")


def _unwrapped(value: Any, inner: Structure) -> Any:
    """Return the value of an optional: the evaluator's operator Optional makes a list of one element of it."""
    if isinstance(value, list) and len(value) == 1:
        first = value[0]
        if first is None or inner[0] == "tensor" or isinstance(first, list):
            return first
    return value


def _plain(value: Any) -> Any:
    return value.item() if getattr(value, "shape", None) == () else value


def _text(item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode(errors="surrogateescape")
    raise TypeError(f"no tensor but an array of {type(item).__name__}")
