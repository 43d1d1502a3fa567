"""Tensor files as the onnx package writes them: numbers packed or one by one, and whatever is cut off."""

from __future__ import annotations

import io

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.backends import tensor_files
from runner.model.values import wire

VALUES = {
    TensorProto.FLOAT: [0.5, -3.0],
    TensorProto.DOUBLE: [0.5, -3.0],
    TensorProto.INT32: [-5, 1 << 30],
    TensorProto.INT64: [-(1 << 62), 1 << 62],
    TensorProto.UINT64: [0, (1 << 64) - 1],
    TensorProto.FLOAT16: [0.5, -3.0],
    TensorProto.BOOL: [True, False],
    TensorProto.COMPLEX64: [1 + 2j, -3j],
}


def parse(data: bytes) -> tensor_files.Tensor:
    return tensor_files.parse(io.BytesIO(data), len(data))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("dims", [[2], [1, 2], [0]])
def test_typed_fields(kind: int, dims: list[int]) -> None:
    proto = helper.make_tensor("x", kind, dims, VALUES[kind] if 0 not in dims else [])
    found = parse(proto.SerializeToString())
    assert found.shape == tuple(dims)
    np.testing.assert_array_equal(found.array(), numpy_helper.to_array(proto))


def test_numbers_one_by_one_and_packed() -> None:
    dims, int64 = b"\x08\x04", b"\x10\x07"
    data = dims + int64 + b"\x38\x01" + b"\x3a\x03\x80\x01\x02" + b"\x38" + wire.write_number(-3)
    assert parse(data).array().tolist() == [1, 128, 2, -3]


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_cut_off_is_no_tensor(kind: int) -> None:
    data = helper.make_tensor("x", kind, [2], VALUES[kind]).SerializeToString()
    whole = parse(data)
    for end in range(len(data)):
        try:
            found = parse(data[:end])
        except (ValueError, OverflowError):
            continue
        # only what stands behind the values, the name, may be missing
        assert (found.shape, found.raw.tobytes()) == (whole.shape, whole.raw.tobytes())
