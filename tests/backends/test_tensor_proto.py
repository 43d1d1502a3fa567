"""Tensor files: what is recorded is read by workers, and whatever is cut off is not."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from onnx import SequenceProto, TensorProto, helper, numpy_helper

from runner.backends import tensor_files
from runner.model.values import recorded

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
def test_elements_in_a_field_of_their_type_are_read_as_they_are_recorded(
    kind: int, dims: list[int], tmp_path: Path
) -> None:
    proto = helper.make_tensor("x", kind, dims, VALUES[kind] if 0 not in dims else [])
    found = tensor_files.read(str(recorded.write(proto, "x", tmp_path / "x.pb").place))
    assert found.shape == tuple(dims)
    np.testing.assert_array_equal(found.array(), numpy_helper.to_array(proto))
    if proto.dims[0]:
        sequence = SequenceProto(elem_type=SequenceProto.TENSOR, tensor_values=[proto])
        structure = ("sequence", ("tensor", kind))
        place = recorded.write_container(sequence, structure, "x", tmp_path / "s.pb").place
        (inside,) = tensor_files.read_container(str(place), structure)  # type: ignore[misc]
        np.testing.assert_array_equal(inside.array(), numpy_helper.to_array(proto))


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_cut_off_is_no_tensor(kind: int) -> None:
    array = numpy_helper.to_array(helper.make_tensor("x", kind, [2], VALUES[kind]))
    data = numpy_helper.from_array(array, "x").SerializeToString()
    whole = parse(data)
    for end in range(len(data)):
        try:
            found = parse(data[:end])
        except (ValueError, OverflowError):
            continue
        # only what stands behind the values, the name, may be missing
        assert (found.shape, found.raw.tobytes()) == (whole.shape, whole.raw.tobytes())
