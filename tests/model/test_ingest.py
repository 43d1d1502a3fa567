"""What comes in is kept to the letter, or refused in one line."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from runner.exit_codes import ModelError
from runner.model.files.read_model import ingest
from runner.model.values import tensor_bytes
from tests.model.models import SHAPE, ingested, model_of, tensor


def neg(source, target):
    return helper.make_node("Neg", [source], [target])


def refused(model, folder, match):
    with pytest.raises(ModelError, match=match) as error:
        ingested(model, folder)
    assert "\n" not in str(error.value)


def external(name, dims, location, dtype=TensorProto.FLOAT, **entries):
    weight = TensorProto(name=name, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    return weight


@pytest.mark.parametrize("ir", [3, 8])
def test_every_form_of_constant_becomes_an_initializer(tmp_path, ir):
    forms = {
        "value": tensor("other name", np.arange(3)),
        "value_float": 1.5,
        "value_floats": [1.5, 2.5],
        "value_int": -7,
        "value_ints": [1, -2],
        "value_string": b"\xffnot text",
        "value_strings": ["ä", ""],
    }
    nodes = [helper.make_node("Constant", [], [form], **{form: value}) for form, value in forms.items()]
    model = model_of([*nodes, neg("a", "y")], ["a"], ["y"], ir=ir)
    graph, _, report = ingested(model, tmp_path)
    assert (report["nodes"], report["constants"]) == (1, 7)
    assert set(graph.initializers) == set(forms)
    made = {name: weight for name, weight in graph.initializers.items() if "string" not in name}
    for node in nodes:
        if node.output[0] in made:
            constant = helper.make_graph([node], "c", [], [helper.make_empty_tensor_value_info(node.output[0])])
            (value,) = ReferenceEvaluator(helper.make_model(constant)).run(None, {})
            got = numpy_helper.to_array(made[node.output[0]])
            np.testing.assert_array_equal(got, value)
            assert got.dtype == value.dtype and got.shape == np.shape(value)
    assert list(graph.initializers["value_string"].string_data) == [b"\xffnot text"]
    assert list(graph.initializers["value_strings"].dims) == [2]
    assert graph.inputs == ("a",)
    onnx.checker.check_model(graph.model)


def test_nothing_else_changes(tmp_path):
    model = model_of([neg("a", "x"), neg("a", "y"), neg("x", "z")], ["a"], ["z", "y"], domains=["odd"], ir=6)
    model.metadata_props.add(key="k", value="v")
    model.producer_name = "someone"
    graph, _, report = ingested(model, tmp_path)
    assert graph.model == model
    assert report["warnings"] == []
    assert report["sha256"] == hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()


def test_unsorted_nodes_are_sorted_stably_and_it_is_said(tmp_path):
    nodes = """z = If (yes) <then_branch = b () => (float[2,3] t) { t = Neg (late) },
        else_branch = b () => (float[2,3] t) { t = Neg (late) }>  x = Neg (a)  late = Neg (x)  y = Neg (a)"""
    graph, _, report = ingested(model_of(nodes, ["a"], ["z", "y"], [tensor("yes", np.array(True))]), tmp_path)
    assert [node.outputs for node in graph.nodes] == [("x",), ("late",), ("z",), ("y",)]
    assert "Winnow sorts them" in report["warnings"][0]


def test_graphs_that_cannot_be_are_refused(tmp_path):
    for text, outputs, inputs, said in (
        ("x = Neg (a)  x = Neg (a)", ["x"], ["a"], "'x' is defined twice: as an output"),
        ("a = Neg (a)", ["a"], ["a"], "graph input"),
        ("x = Neg (y)  y = Neg (x)", ["y"], ["a"], "cycle"),
        ("x = Neg (ghost)", ["x"], ["a"], "'ghost'"),
        ("x = Neg (a)", ["ghost"], ["a"], "'ghost'"),
        ("x = Neg (a)", ["x"], ["a", "a"], "twice"),
        ("""z = If (yes) <then_branch = b () => (t) { t = Neg (ghost) },
            else_branch = b () => (t) { t = Neg (ghost) }>""", ["z"], ["a"], "'ghost'"),
    ):  # fmt: skip
        refused(model_of(text, inputs, outputs, [tensor("yes", np.array(True))]), tmp_path, said)


def test_names_that_are_no_text_are_refused(tmp_path):
    content = model_of([neg("long name", "x")], ["long name"], ["x"]).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(content.replace(b"long name", b"\xff\xfeng name"))
    with pytest.raises(ModelError, match="UTF-8"):
        ingest({"model": str(tmp_path / "m.onnx"), "store": str(tmp_path / "store")})


def test_external_data_is_read_only_from_inside_the_folder(tmp_path):
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(4096))
    (folder / "link.bin").symlink_to(secret)
    (folder / "sublink").symlink_to(tmp_path)
    (folder / "sub" / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    os.mkfifo(folder / "pipe")
    for location in ("../secret.bin", str(secret), "link.bin", "sublink/secret.bin", "sub/../../secret.bin", "missing",
                     "pipe", "sub", "a\0b", ""):  # fmt: skip
        model = model_of([neg("w", "x")], [], ["x"], [external("w", [4], location)])
        refused(model, folder, "'w'")
    for entries in ({"offset": 4}, {"offset": -4}, {"length": 8}, {"length": "x"}, {"offset": 1 << 62}):
        refused(model_of([neg("w", "x")], [], ["x"], [external("w", [4], "sub/w.bin", **entries)]), folder, "'w'")
    refused(model_of([neg("w", "x")], [], ["x"], [external("w", [1 << 60], "sub/w.bin")]), folder, "too short")
    graph, _, report = ingested(model_of([neg("w", "x")], [], ["x"], [external("w", [4], "sub/w.bin")]), folder)
    np.testing.assert_array_equal(numpy_helper.to_array(graph.initializers["w"]), np.arange(4, dtype=np.float32))
    assert report["weights_bytes"] == 16


def hub(root, folder="snapshots/rev"):
    """A model in the layout of a model hub's cache: all files are links into one folder."""
    blobs, snapshot = root / "blobs", root / folder
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "bbb").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    weight = external("w", SHAPE, "model.onnx_data")
    onnx.save(model_of([helper.make_node("Add", ["a", "w"], ["y"])], ["a"], ["y"], [weight]), blobs / "aaa")
    for name, blob in (("model.onnx", "aaa"), ("model.onnx_data", "bbb")):
        (snapshot / name).symlink_to(os.path.relpath(blobs / blob, snapshot))
    return snapshot / "model.onnx"


def test_a_link_in_such_a_cache_leads_into_it_only(tmp_path):
    model = hub(tmp_path / "cache")
    (tmp_path / "secret").write_bytes(bytes(24))
    # a link elsewhere, a link through a blob, a folder that is a link; a model that is no link itself
    beside = model.with_name("model.onnx_data")
    for make in (lambda: beside.symlink_to(tmp_path / "secret"), lambda: beside.symlink_to("../../blobs/c")):
        beside.unlink()
        (tmp_path / "cache/blobs/c").unlink(missing_ok=True)
        (tmp_path / "cache/blobs/c").symlink_to(tmp_path / "secret")
        make()
        with pytest.raises(ModelError, match=r"'w'.*leads out of the model's folder"):
            ingest({"model": str(model), "store": str(tmp_path / "store")})
    beside.unlink()
    beside.symlink_to("../../blobs/bbb")
    content = model.read_bytes()
    model.unlink()
    model.write_bytes(content)
    with pytest.raises(ModelError, match=r"'w'.*leads out of the model's folder"):
        ingest({"model": str(model), "store": str(tmp_path / "store")})
    # what the model itself says is held to its folder as ever
    for location in ("../../blobs/bbb", str(tmp_path / "cache/blobs/bbb"), "x/../../../blobs/bbb"):
        changed = onnx.load(tmp_path / "cache/blobs/aaa", load_external_data=False)
        changed.graph.initializer[0].external_data[0].value = location
        (tmp_path / "cache/blobs/ccc").write_bytes(changed.SerializeToString())
        model.unlink()
        model.symlink_to("../../blobs/ccc")
        with pytest.raises(ModelError, match=r"'w'.*outside the model's folder"):
            ingest({"model": str(model), "store": str(tmp_path / "store")})


def test_the_digest_depends_on_the_weights(tmp_path):
    digests = set()
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "w.bin").write_bytes(np.full(1024, number, np.float32).tobytes())
        model = model_of([neg("w", "x")], [], ["x"], [external("w", [1024], "w.bin")])
        for limit in (0, 1 << 20):
            digests.add(ingested(model, folder, inline_limit=limit)[2]["sha256"])
    assert len(digests) == 2


def test_typed_data_has_the_same_bytes_as_onnx_says():
    for name, dtype in TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING") or name.startswith("FLOAT6"):
            continue
        typed = helper.make_tensor("t", dtype, [3], [1, 0, 1])
        assert tensor_bytes.size_problem(typed) is None, name
        array = numpy_helper.to_array(typed)
        raw = numpy_helper.from_array(array, "t")
        assert tensor_bytes.raw_bytes(typed) == raw.raw_data, name
        assert tensor_bytes.byte_size(dtype, [3]) == len(raw.raw_data)
