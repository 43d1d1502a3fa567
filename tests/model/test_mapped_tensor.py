"""Tensors mapped from their files are the tensors that protobuf and onnx read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

from runner.model.values import recorded
from runner.model.values.tensor_bytes import split

EVERY = [number for name, number in TensorProto.DataType.items() if name != "UNDEFINED"]
NUMBERS = TensorProto(name="x", data_type=1, dims=[2, 3], raw_data=np.arange(6, dtype=np.float32).tobytes())


@pytest.mark.parametrize("count", [0, 5, 600_001], ids=["none", "small", "large"])
@pytest.mark.parametrize("dtype", [1, 10, 11, 14, 7, 9, 16, 17, 22, 24])
def test_every_dtype_is_mapped_as_onnx_reads_it(dtype: int, count: int, tmp_path: Path) -> None:
    file = recorded.seeded("x", dtype, (count,), seed=4, path=tmp_path / "x.pb")
    whole = numpy_helper.to_array(onnx.load_tensor(file.path))
    mapped, read = recorded.mapped(file), recorded.read(file)
    assert mapped.dtype == read.dtype == whole.dtype
    assert mapped.tobytes() == read.tobytes() == whole.tobytes()
    read.flags.writeable or pytest.fail("a copy of one's own can be written")


@pytest.mark.parametrize("dtype", [1, 7, 8, 9, 10, 16, 22])
def test_what_lies_in_typed_fields_is_read_as_ever(dtype: int, tmp_path: Path) -> None:
    values = [b"a", b"\xff"] if dtype == TensorProto.STRING else [1, 0]
    tensor = onnx.helper.make_tensor("x", dtype, (2,), values)
    assert not tensor.HasField("raw_data")
    (tmp_path / "x.pb").write_bytes(tensor.SerializeToString())
    assert recorded.mapped(tmp_path / "x.pb").tolist() == recorded.to_array(tensor).tolist()
    assert recorded.load(tmp_path / "x.pb") == tensor


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 60), st.integers(0, 255), st.integers(0, 60), st.binary(max_size=6))
def test_damaged_files_are_refused_where_protobuf_refuses_them(at: int, byte: int, end: int, more: bytes) -> None:
    data = bytearray(NUMBERS.SerializeToString() + TensorProto(doc_string="y").SerializeToString())
    data[at % len(data)] = byte
    damaged = bytes(data[: max(end, 1)] + more)
    expected = TensorProto()
    try:
        expected.ParseFromString(damaged)
    except Exception:  # noqa: BLE001 - the class differs between protobuf's versions
        expected = None
    try:
        found, raw = split(damaged)
    except ValueError:
        found, raw = None, None
    if raw is not None:
        found.raw_data = bytes(raw)
    # groups, which no version of ONNX has, are refused here
    assert found == expected or (found is None and any(one & 7 in (3, 4) for one in damaged))


def test_a_file_that_is_no_tensor_says_so(tmp_path: Path) -> None:
    for content in (b"\xff", b"\x4a\xff", b"no tensor"):
        (tmp_path / "x.pb").write_bytes(content)
        with pytest.raises(ValueError, match="is not a serialized TensorProto"):
            recorded.mapped(tmp_path / "x.pb")
    (tmp_path / "x.pb").write_bytes(TensorProto(data_type=1, dims=[4], raw_data=b"\0" * 12).SerializeToString())
    with pytest.raises(ValueError, match="reshape"):
        recorded.mapped(tmp_path / "x.pb")
