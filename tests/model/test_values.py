"""Every dtype goes to disk and comes back; npz and test data sets are what others read."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from runner.model.values import dtypes, recorded
from runner.model.values.tensor_bytes import beyond, clipped
from tests.model.data_sets import describe

EVERY = [number for name, number in TensorProto.DataType.items() if name != "UNDEFINED"]
NATIVE = ["float32", "float64", "float16", "int8", "uint64", "bool", "complex64", "complex128", ">f4", ">i8"]


@pytest.mark.parametrize("dtype", EVERY)
def test_every_dtype_is_seeded_written_and_read(dtype, tmp_path):
    first = recorded.seeded("x", dtype, (3, 5), seed=4, path=tmp_path / "a.pb")
    again = recorded.seeded("x", dtype, (3, 5), seed=4, path=tmp_path / "b.pb")
    other = recorded.seeded("y", dtype, (3, 5), seed=4, path=tmp_path / "c.pb")
    assert first.path.read_bytes() == again.path.read_bytes()
    if dtype != TensorProto.FLOAT8E8M0:
        assert not np.array_equal(recorded.read(first), recorded.read(other))
    assert (first.dtype, first.shape, first.finite, first.nan) == (dtype, (3, 5), True, False)
    array = recorded.read(first)
    assert array.shape == (3, 5)
    rewritten = recorded.write(array, "again", tmp_path / "d.pb")
    assert rewritten.dtype == dtype
    np.testing.assert_array_equal(recorded.read(rewritten), array)
    assert describe(first.path) == first
    assert recorded.TensorFile.from_json(first.to_json()) == first


@pytest.mark.parametrize("dtype", NATIVE)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0, 3)])
def test_arrays_are_what_onnx_reads(dtype, shape, tmp_path):
    array = (np.arange(np.prod(shape, dtype=int)) % 3).reshape(shape).astype(dtype)
    file = recorded.write(array, "näme", tmp_path / "x.pb")
    tensor = onnx.load_tensor(file.path)
    assert tensor.name == "näme"
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), array)
    np.testing.assert_array_equal(recorded.read(file), array)
    assert recorded.read(file).dtype == np.dtype(dtype).newbyteorder("=")


def test_views_are_written_as_they_look(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(4, 6).T[::2]
    np.testing.assert_array_equal(recorded.read(recorded.write(array, "x", tmp_path / "x.pb")), array)


@pytest.mark.parametrize("dtype", [1, 10, 11, 14, TensorProto.BFLOAT16, TensorProto.FLOAT8E5M2])
def test_what_is_not_finite_is_seen(dtype, tmp_path):
    numpy_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    for content, finite, nan in (([1, 2], True, False), ([1, np.inf], False, False), ([np.nan, np.inf], False, True)):
        file = recorded.write(np.array(content).astype(numpy_dtype), "x", tmp_path / "x.pb")
        assert (file.finite, file.nan) == (finite, nan)
        assert describe(file.path) == file


@pytest.mark.parametrize("first", [[1, 2], [np.inf, 1], [np.nan, 1]])
@pytest.mark.parametrize("second", [[3, 4], [np.inf, 4], [3, np.nan]])
def test_a_tensor_is_looked_at_in_pieces(monkeypatch, first, second):
    monkeypatch.setattr(dtypes, "_CHUNK", 2)
    held = np.array([*first, *second], np.float32)
    told = dtypes.finiteness(held.tobytes(), dtypes.BY_NUMBER[TensorProto.FLOAT])
    assert told == (bool(np.isfinite(held).all()), bool(np.isnan(held).any()))


def test_strings_of_any_kind(tmp_path):
    for array in (np.array([["ä", ""]]), np.array([b"x", b"\xff"]), np.array(["a\0", "b"], dtype=object)):
        file = recorded.write(array, "s", tmp_path / "s.pb")
        got = [item.encode("utf-8", "surrogateescape") for item in recorded.read(file).ravel()]
        assert got == [item if isinstance(item, bytes) else item.encode() for item in array.ravel()]
    with pytest.raises(ValueError, match="dtype"):
        recorded.write(np.array([object()]), "s", tmp_path / "s.pb")
    with pytest.raises(ValueError, match="dtype"):
        recorded.write(np.array(["2020-01-01"], dtype="M8[D]"), "s", tmp_path / "s.pb")


@settings(max_examples=50, deadline=None)
@given(names=st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), max_size=5))
def test_npz_holds_names_as_they_are(names, tmp_path_factory):
    folder = tmp_path_factory.mktemp("npz")
    feeds = {
        name: recorded.write(np.full(2, at, np.float32), name, folder / f"{at}.pb")
        for at, name in enumerate([*names, "file", "args", "kwds", "arr_0", "../x", "a.npy", "a"])
    }
    skipped = recorded.write_npz(feeds, folder / "feeds.npz")
    assert set(skipped) == {"a.npy", *(name for name in names if "\0" in name)}
    with np.load(folder / "feeds.npz") as loaded:
        assert set(loaded.files) == set(feeds) - set(skipped)
        for name in loaded.files:
            np.testing.assert_array_equal(loaded[name], recorded.read(feeds[name]))


def test_npz_leaves_out_what_numpy_lacks(tmp_path):
    feeds = {str(dtype): recorded.seeded("x", dtype, (3,), path=tmp_path / f"{dtype}.pb") for dtype in EVERY}
    skipped = recorded.write_npz(feeds, tmp_path / "x.npz")
    assert {int(name) for name in skipped} == {dtype for dtype in EVERY if dtype >= TensorProto.BFLOAT16}
    with np.load(tmp_path / "x.npz", allow_pickle=False) as loaded:
        assert loaded["8"].dtype.kind == "U"
        for name in loaded.files:
            np.testing.assert_array_equal(loaded[name], recorded.read(feeds[name]))


def test_what_is_drawn():
    floats = recorded.seeded_array("x", 1, (1000,))
    assert 0 <= floats.min() < 0.1 and 0.9 < floats.max() < 1
    wide, small = (recorded.seeded_array("x", dtype, (1000,)) for dtype in (7, 22))
    assert (wide.min(), wide.max(), small.min(), small.max()) == (1, 25, -8, 7)
    assert set(recorded.seeded_array("x", 9, (100,)).tolist()) == {True, False}
    assert recorded.seeded_array("x", 7, ()).shape == ()


WHOLE = {"INT4": (-8, 7), "UINT4": (0, 15), "INT8": (-128, 127), "UINT8": (0, 255), "INT16": (-(2**15), 2**15 - 1)}


@pytest.mark.parametrize("given", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("name", WHOLE)
def test_a_type_holds_its_own_ends_and_nothing_beyond_them(name: str, given: type) -> None:
    least, largest = WHOLE[name]
    numbers = np.array([least - 1, least, largest, largest + 1], given)
    dtype = TensorProto.DataType.Value(name)
    assert beyond(numbers, dtype).tolist() == [True, False, False, True]
    assert clipped(numbers, dtype).tolist() == [least, least, largest, largest]
