"""Sequences, optionals and maps: what a run writes of them can be fed to another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from tests.backends.conftest import BACKENDS, Lab

F, INT, S, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL
both = pytest.mark.parametrize("backend", BACKENDS)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


def tensor(kind: int) -> Any:
    return helper.make_tensor_type_proto(kind, None)


def sequence(inner: Any) -> Any:
    return helper.make_sequence_type_proto(tensor(inner) if isinstance(inner, int) else inner)


def optional(inner: Any) -> Any:
    return helper.make_optional_type_proto(tensor(inner) if isinstance(inner, int) else inner)


def outputs(lab: Lab, backend: str, model: Path, feeds: dict[str, str], **more: Any) -> dict[str, TensorFile]:
    reply = lab.run(backend, model, samples=[feeds], **more)
    assert reply.failure is None, reply.failure
    assert not reply.value["skipped"]
    return {name: TensorFile.from_json(entry) for name, entry in reply.value["samples"][0].items()}


def same(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)


@both
@pytest.mark.parametrize(
    ("kind", "items"),
    [
        (F, [np.ones((2, 3), np.float32), np.float32(np.nan).reshape(()), np.zeros((0, 4), np.float32)]),
        (INT, [np.array([1 << 40])]),
        (S, [np.array(["ä", ""], object), np.array([["x"]], object)]),
        (B, [np.array([True, False])]),
        (TensorProto.FLOAT16, [np.array([np.inf, 1], np.float16)]),
        (F, []),
        (S, []),
    ],
)
def test_a_sequence_comes_out_and_goes_in(lab: Lab, backend: str, kind: int, items: list[Any]) -> None:
    names = [f"x{at}" for at in range(len(items))]
    made = node("SequenceConstruct", names, ["s"]) if items else node("SequenceEmpty", [], ["s"], dtype=kind)
    # no type for the output: recording knows none
    maker = lab.model([made], dict.fromkeys(names, (kind, None)), {"s": None})
    feeds = {name: lab.tensor(item) for name, item in zip(names, items, strict=True)}
    found = outputs(lab, backend, maker, feeds)["s"]
    assert (found.structure, found.dtype, found.shape) == (("sequence", ("tensor", kind)), 0, ())
    assert found.elements == tuple(item.shape for item in items)
    finite = all(item.dtype.kind != "f" or np.isfinite(item).all() for item in items)
    assert (found.finite, found.nan) == (finite, any(item.dtype.kind == "f" and np.isnan(item).any() for item in items))
    same(recorded.contents(found), items)
    proto = onnx.SequenceProto.FromString(found.path.read_bytes())
    assert proto.name == "s"
    same([numpy_helper.to_array(item) for item in proto.tensor_values], [i.astype(i.dtype) for i in items])

    reader = lab.model([node("SequenceLength", ["s"], ["n"])], {"s": found.type}, {"n": (INT, [])})
    assert recorded.read(outputs(lab, backend, reader, {"s": str(found.path)}, out=str(lab.folder / "b"))["n"]) == len(
        items
    )
    reader = lab.model([node("Identity", ["s"], ["t"])], {"s": found.type}, {"t": None})
    again = outputs(lab, backend, reader, {"s": str(found.path)}, out=str(lab.folder / "c"))["t"]
    same(recorded.contents(again), items)


@both
@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("inner", [tensor(F), sequence(F)])
def test_an_optional_comes_out_and_goes_in(lab: Lab, backend: str, inner: Any, present: bool) -> None:
    x = np.arange(3, dtype=np.float32)
    if inner.WhichOneof("value") == "sequence_type":
        nodes = [node("SequenceConstruct", ["x", "x"], ["v"]), node("Optional", ["v"], ["o"])]
        structure, wanted = ("optional", ("sequence", ("tensor", F))), [x, x]
    else:
        nodes, structure, wanted = [node("Optional", ["x"], ["o"])], ("optional", ("tensor", F)), [x]
    if not present:
        nodes = [node("Optional", [], ["o"], type=inner), node("Neg", ["x"], ["y"])]
    shown = {"o": optional(inner)} if present else {"o": optional(inner), "y": (F, [3])}
    found = outputs(lab, backend, lab.model(nodes, {"x": (F, [3])}, shown), {"x": lab.tensor(x)})["o"]
    assert found.structure == structure
    assert found.elements == (tuple((3,) for _ in wanted) if present else ())
    content = recorded.contents(found)
    same(content if isinstance(content, list) else [content], wanted) if present else None
    assert present or content is None

    reader = lab.model([node("OptionalHasElement", ["o"], ["b"])], {"o": found.type}, {"b": (B, [])}, opset=18)
    has = outputs(lab, backend, reader, {"o": str(found.path)}, out=str(lab.folder / "b"))["b"]
    assert bool(recorded.read(has)) is present


def test_an_optional_that_is_not_fed_has_no_value(lab: Lab) -> None:
    reader = lab.model([node("OptionalHasElement", ["o"], ["b"])], {"o": optional(F)}, {"b": (B, [])}, opset=18)
    for backend in BACKENDS:
        has = outputs(lab, backend, reader, {}, out=str(lab.folder / backend))["b"]
        assert not recorded.read(has)


@pytest.mark.parametrize("key", [INT, S])
def test_maps(lab: Lab, key: int) -> None:
    labels = {"classlabels_int64s": [7, -8]} if key == INT else {"classlabels_strings": ["ä", "b"]}
    kind = helper.make_map_type_proto(key, tensor(F))
    maker = lab.model(
        [node("ZipMap", ["x"], ["m"], domain="ai.onnx.ml", **labels)],
        {"x": (F, [None, 2])},
        {"m": sequence(kind)},
        domains=["ai.onnx.ml"],
    )
    x = np.array([[0.1, np.inf], [0.3, 0.7]], np.float32)
    found = outputs(lab, "onnxruntime", maker, {"x": lab.tensor(x)})["m"]
    assert found.structure == ("sequence", ("map", key, ("tensor", F)))
    assert (found.finite, found.nan) == (False, False)
    keys = [7, -8] if key == INT else ["ä", "b"]
    assert [set(item) for item in recorded.contents(found)] == [set(keys), set(keys)]
    np.testing.assert_array_equal([[item[key] for key in keys] for item in recorded.contents(found)], x)
    assert found.type.sequence_type.elem_type.map_type.key_type == key


def test_a_map_is_fed(lab: Lab) -> None:
    kind = helper.make_map_type_proto(INT, tensor(F))
    reader = lab.model(
        [node("CastMap", ["m"], ["y"], domain="ai.onnx.ml"), node("Neg", ["x"], ["z"])],
        {"m": kind, "x": (F, [2])},
        {"y": (F, [1, 2]), "z": (F, [2])},
        domains=["ai.onnx.ml"],
    )
    path = lab.folder / "map.pb"
    content = numpy_helper.from_dict({0: np.float32(0.5), 1: np.float32(2)}, "m")
    file = recorded.write_container(content, ("map", INT, ("tensor", F)), "m", path)
    x = lab.tensor(np.ones(2, np.float32))
    found = outputs(lab, "onnxruntime", reader, {"m": str(file.path), "x": x})
    np.testing.assert_array_equal(recorded.read(found["y"]), [[0.5, 2]])
    np.testing.assert_array_equal(recorded.read(found["z"]), [-1, -1])


@both
@pytest.mark.parametrize("content", [b"junk junk", b"\x1a\x7f\x08", b"\x1a\x02\x08\x03"])
def test_files_that_hold_no_sequence(lab: Lab, backend: str, content: bytes) -> None:
    reader = lab.model([node("SequenceLength", ["s"], ["n"])], {"s": sequence(F)}, {"n": (INT, [])})
    path = lab.folder / "bad.pb"
    path.write_bytes(content)
    failure = lab.run(backend, reader, samples=[{"s": str(path)}]).failure
    assert (failure.stage, failure.type) == ("setup", "BadTensorFile") and str(path) in failure.message
