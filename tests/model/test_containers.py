"""Recorded values that are no tensors, as files: what they are, what type they give, how they are handed on."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

from runner.model.values import recorded, value_types
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from tests.model.data_sets import read_test_data_set

F = TensorProto.FLOAT
SEQUENCE = ("sequence", ("tensor", F))
OPTIONAL = ("optional", ("tensor", F))
NESTED = ("optional", ("sequence", ("tensor", F)))


def sequence(*items) -> SequenceProto:
    return numpy_helper.from_list([np.asarray(item, np.float32) for item in items], dtype=1)


def dims(proto):
    return [dim.dim_value or None for dim in proto.tensor_type.shape.dim]


def test_a_sequence_is_written_described_and_read(tmp_path):
    file = values.write_container(sequence([[1, 2]], [[np.nan, 3], [4, 5]]), SEQUENCE, "näme", tmp_path / "s.pb")
    assert (file.dtype, file.shape, file.elements) == (0, (), ((1, 2), (2, 2)))
    assert (file.finite, file.nan) == (False, True)
    assert onnx.SequenceProto.FromString(file.path.read_bytes()).name == "näme"
    assert TensorFile.from_json(json.loads(json.dumps(file.to_json()))) == file
    first, second = values.contents(file)
    assert (first.tolist(), second[1].tolist()) == ([[1, 2]], [4, 5])
    assert file.type.sequence_type.elem_type.tensor_type.elem_type == F
    # the second dimension is what both have
    assert dims(file.type.sequence_type.elem_type) == [None, 2]
    with pytest.raises(ValueError, match="no tensor but a sequence"):
        values.read(file)


def test_optionals(tmp_path):
    full = OptionalProto(elem_type=OptionalProto.TENSOR, tensor_value=numpy_helper.from_array(np.float32([1, 2])))
    file = values.write_container(full, OPTIONAL, "o", tmp_path / "o.pb")
    assert values.contents(file).tolist() == [1, 2]
    assert dims(file.type.optional_type.elem_type) == [2]
    empty = values.write_container(OptionalProto(elem_type=OptionalProto.TENSOR), OPTIONAL, "o", tmp_path / "e.pb")
    assert values.contents(empty) is None and empty.finite
    assert not empty.type.optional_type.elem_type.tensor_type.HasField("shape")
    nested = OptionalProto(elem_type=OptionalProto.SEQUENCE, sequence_value=sequence([1], [2]))
    file = values.write_container(nested, NESTED, "n", tmp_path / "n.pb")
    assert [item.tolist() for item in values.contents(file)] == [[1], [2]]
    assert file.type.optional_type.elem_type.sequence_type.elem_type.tensor_type.elem_type == F


@pytest.mark.parametrize(
    "structure",
    [("tensor", F), SEQUENCE, NESTED, ("sequence", ("map", 8, ("tensor", 1))), ("map", 7, SEQUENCE)],
)
def test_structures_are_types(structure):
    proto = value_types.type_of(structure)
    assert value_types.structure_of(proto) == structure
    assert value_types.frozen(json.loads(json.dumps(structure))) == structure
    assert value_types.leaf_dtype(structure) == F


def test_files_that_hold_something_else(tmp_path):
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "x")
    integers = numpy_helper.from_list([np.array([1])])
    torn = sequence([1, 2]).SerializeToString()[:-3]
    external = sequence([1])
    external.tensor_values[0].data_location = TensorProto.EXTERNAL
    external.tensor_values[0].external_data.add(key="location", value="/etc/passwd")
    contents = [integers, external, OptionalProto(elem_type=4, sequence_value=sequence([1]))]
    for content in [b"junk junk", torn, *(message.SerializeToString() for message in contents)]:
        path = tmp_path / "input_0.pb"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"input_0\.pb"):
            read_test_data_set(tmp_path, [SEQUENCE])
    path.write_bytes(tensor.SerializeToString())
    with pytest.raises(ValueError, match="something else"):
        recorded.parse(sequence([1]).SerializeToString(), ("sequence", ("sequence", ("tensor", F))))


def test_a_test_data_set_holds_them_and_an_npz_does_not(tmp_path):
    tensor = values.write(np.ones(2, np.float32), "x", tmp_path / "x.pb")
    inside = values.write_container(sequence([1, 2], [3]), SEQUENCE, "recorded", tmp_path / "s.pb")
    values.write_test_data_set({"x": tensor, "ß": inside}, {"out": inside}, tmp_path / "set")
    inputs, outputs = read_test_data_set(tmp_path / "set", [None, SEQUENCE], [SEQUENCE])
    assert [file.name for file in (*inputs, *outputs)] == ["x", "ß", "out"]
    assert inputs[1].elements == inside.elements
    # as any reader of such folders does it
    read = SequenceProto.FromString((tmp_path / "set" / "input_1.pb").read_bytes())
    assert [item.tolist() for item in numpy_helper.to_list(read)] == [[1, 2], [3]]
    assert values.write_npz({"x": tensor, "s": inside}, tmp_path / "x.npz") == ("s",)
    with np.load(tmp_path / "x.npz") as loaded:
        assert loaded.files == ["x"]
