from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.backends.conftest import BACKENDS, Lab, load

F = TensorProto.FLOAT
both = pytest.mark.parametrize("backend", BACKENDS)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


@both
def test_outputs_of_each_sample(lab: Lab, backend: str) -> None:
    model = lab.model([node("Neg", ["x"], ["y"])], {"x": (F, [None, 2])}, {"y": (F, None)})
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    reply = lab.run(backend, model, {"x": x, "not an input": x}, {"x": x[:1] + 5})
    assert reply.failure is None
    first, second = (numpy_helper.to_array(load(sample["y"])) for sample in reply.value["samples"])
    np.testing.assert_array_equal(first, -x)
    np.testing.assert_array_equal(second, -x[:1] - 5)
    entry = reply.value["samples"][1]["y"]
    assert load(entry).name == "y" == entry["name"]
    assert (entry["dtype"], entry["shape"], entry["finite"], entry["nan"]) == (F, [1, 2], True, False)


@both
def test_outputs_without_a_type(lab: Lab, backend: str) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Relu", ["x"], ["r"]),
        node("Cast", ["r"], ["h"], to=TensorProto.FLOAT16),
    ]
    model = lab.model(nodes, {"x": (F, [2])}, {"h": None, "s": None, "r": None})
    reply = lab.run(backend, model, {"x": np.array([-1, 7e4], np.float32)})
    sample = reply.value["samples"][0]
    assert [sample[name]["dtype"] for name in "shr"] == [TensorProto.INT64, TensorProto.FLOAT16, F]
    assert (sample["h"]["finite"], sample["h"]["nan"]) == (False, False)


NUMBERS = [
    ([1, 2], True, False),
    ([1, np.inf], False, False),
    ([np.nan, 1], False, True),
    ([-np.inf, np.nan], False, True),
    ([], True, False),
]
FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e5m2"]


def fp8(kind: int, bits: int) -> TensorProto:
    """A number of a type without infinity."""
    return TensorProto(dims=[1], data_type=kind, raw_data=bytes([bits]))


@both
@pytest.mark.parametrize(
    ("proto", "finite", "nan"),
    [
        *(
            (numpy_helper.from_array(np.array(values).astype(getattr(ml_dtypes, name, name))), finite, nan)
            for name in FLOATS
            for values, finite, nan in NUMBERS
        ),
        (fp8(TensorProto.FLOAT8E4M3FN, 0x7F), False, True),
        (fp8(TensorProto.FLOAT8E4M3FNUZ, 0x80), False, True),
        (fp8(TensorProto.FLOAT8E4M3FNUZ, 0x7F), True, False),
        (numpy_helper.from_array(np.float32(3)), True, False),
        (numpy_helper.from_array(np.zeros((0, 4), np.float32)), True, False),
    ],
)
def test_each_type_goes_in_and_out_and_what_is_not_finite(
    lab: Lab, backend: str, proto: TensorProto, finite: bool, nan: bool
) -> None:
    kind = (proto.data_type, None)
    model = lab.model([node("Identity", ["x"], ["y"])], {"x": kind}, {"y": kind}, 19, ir_version=9)
    entry = lab.run(backend, model, {"x": proto}).value["samples"][0]["y"]
    assert (entry["dtype"], entry["shape"]) == (proto.data_type, [*proto.dims])
    assert (entry["finite"], entry["nan"]) == (finite, nan)
    assert load(entry).raw_data == proto.raw_data


@both
def test_names_never_become_file_names(lab: Lab, backend: str) -> None:
    name = "../up/\n'\"%s{x}🙂"
    model = lab.model([node("Neg", ["x"], [name])], {"x": (F, [1])}, {name: (F, [1])})
    entry = lab.run(backend, model, {"x": np.ones(1, np.float32)}).value["samples"][0][name]
    assert Path(entry["path"]).parent == lab.folder / "out" and load(entry).name == name
    assert not list((lab.folder / "out").glob("*.part"))


@both
def test_missing_feed(lab: Lab, backend: str) -> None:
    model = lab.model([node("Add", ["x", "z"], ["y"])], {"x": (F, [1]), "z": (F, [1])}, {"y": (F, [1])})
    failure = lab.run(backend, model, {"x": np.ones(1, np.float32)}).failure
    assert (
        (failure.stage, failure.type) == ("setup", "MissingFeed")
        and "'z'" in failure.message
        and "x" in failure.message
    )


@both
def test_inputs_with_defaults_need_no_feed(lab: Lab, backend: str) -> None:
    z = numpy_helper.from_array(np.full(1, 5, np.float32), "z")
    for version in (3, 8):
        nodes, inputs = [node("Add", ["x", "z"], ["y"])], {"x": (F, [1]), "z": (F, [1])}
        model = lab.model(nodes, inputs, {"y": (F, [1])}, 8, initializer=[z], ir_version=version)
        reply = lab.run(backend, model, {"x": np.ones(1, np.float32)})
        assert numpy_helper.to_array(load(reply.value["samples"][0]["y"])) == [6]


@both
@pytest.mark.parametrize("content", [b"", b"\x08\x02\x10", b"not a tensor", b"\x08\x02\x10\x01\x4a\x04\0\0\0\0"])
def test_bad_tensor_files(lab: Lab, backend: str, content: bytes) -> None:
    model = lab.model([node("Neg", ["x"], ["y"])], {"x": (F, [2])}, {"y": (F, [2])})
    path = lab.folder / "bad.pb"
    path.write_bytes(content)
    failure = lab.run(backend, model, samples=[{"x": str(path)}]).failure
    assert (failure.stage, failure.type) == ("setup", "BadTensorFile") and str(path) in failure.message


@both
def test_errors_name_their_stage(lab: Lab, backend: str) -> None:
    unknown = lab.model([node("NoSuchOp", ["x"], ["y"])], {"x": (F, [2])}, {"y": (F, [2])})
    assert lab.run(backend, unknown, {"x": np.ones(2, np.float32)}).failure.stage == "load"
    nodes = [node("Reshape", ["x", "shape"], ["y"])]
    wrong = lab.model(nodes, {"x": (F, [2]), "shape": (TensorProto.INT64, [1])}, {"y": (F, None)})
    feeds = {"x": np.ones(2, np.float32), "shape": np.array([3])}
    failure = lab.run(backend, wrong, feeds).failure
    assert failure.stage == "infer"
    assert failure.type in {"onnxruntime": ["FAIL", "RUNTIME_EXCEPTION"], "onnx_reference": ["ValueError"]}[backend]
    corrupt = lab.folder / "corrupt.onnx"
    corrupt.write_bytes(b"\x08\x09garbage")
    assert lab.run(backend, corrupt).failure.stage == "load"
    assert lab.run(backend, lab.folder / "nowhere.onnx").failure.stage == "load"


def test_reference_overflows_in_fp16_without_chatter(lab: Lab) -> None:
    half = TensorProto.FLOAT16
    model = lab.model([node("Mul", ["x", "x"], ["y"])], {"x": (half, [1])}, {"y": (half, [1])})
    reply = lab.run("onnx_reference", model, {"x": np.array([300], np.float16)})
    assert reply.value["samples"][0]["y"]["finite"] is False and reply.log is None
