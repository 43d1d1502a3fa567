"""Weights lie in one file; candidates find them; what is handed over stands alone."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from runner.model.files.candidate_store import Store
from runner.model.files.parse_without_weights import free_all_but
from runner.model.files.read_model import check_model
from runner.model.graph import scopes
from runner.model.graph.cut import CutError, cut, whole
from runner.model.values import tensor_bytes
from tests.model.models import ingested, model_of, nodes_of, tensor

SIDE = 32
WIDE = helper.make_tensor_type_proto(TensorProto.FLOAT, [SIDE, SIDE])


def info(name):
    return helper.make_value_info(name, WIDE)


def weight(number):
    return np.random.default_rng(number).standard_normal((SIDE, SIDE)).astype(np.float32)


def chain():
    """Two products, one weight outside, one in both branches of an If, one as a Constant; 4 KiB each."""
    branch = helper.make_graph(nodes_of("t = MatMul (x, nested)"), "b", [], [info("t")], [tensor("nested", weight(2))])
    nodes = [
        *nodes_of("x = MatMul (a, w)"),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("Constant", [], ["c"], value=tensor("", weight(3))),
        *nodes_of("z = Mul (y, c)  sum = Add (z, typed)"),
    ]
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [SIDE, SIDE], weight(4).ravel().tolist())
    return model_of(nodes, [info("a")], [info("sum")], [tensor("w", weight(1)), tensor("yes", np.array(True)), typed])


@pytest.fixture
def placed(tmp_path):
    model = chain()
    graph, store, report = ingested(model, tmp_path, inline_limit=10_000)
    expected = ReferenceEvaluator(model).run(None, {"a": weight(0)})[0]
    return graph, store, report, expected


def run(path, feeds):
    return ReferenceEvaluator(str(path)).run(None, feeds)[0]


def names_outside(model):
    return [item.name for item in scopes.initializers(model) if tensor_bytes.is_external(item)]


def test_small_candidates_carry_their_weights(placed, tmp_path):
    graph, store, _, _ = placed
    made = cut(graph, [0], types={"x": WIDE}, constants={})
    assert store.kept_bytes(made.model) == 4096
    path = store.write(made.model, tmp_path / "trial")
    assert path == tmp_path / "trial" / "model.onnx"
    assert not names_outside(onnx.load(path, load_external_data=False))
    np.testing.assert_allclose(run(path, {"a": weight(0)}), weight(0) @ weight(1), rtol=1e-4, atol=1e-5)
    assert store.kept_bytes(graph.model) == 5 * 4096


def test_large_candidates_lie_beside_the_weights(placed, tmp_path):
    graph, store, _, expected = placed
    before = store.weights.stat()
    path = store.write(whole(graph).model, tmp_path / "trial-7")
    assert path.parent == store.folder
    assert check_model({"model": str(path)}) == {"ok": True, "message": ""}
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"a": weight(0)})[0], expected, rtol=1e-4, atol=1e-4)
    assert store.weights.stat().st_mtime_ns == before.st_mtime_ns
    assert store.write(whole(graph).model, tmp_path / "trial-8") != path


@pytest.mark.parametrize(("external_data", "one_file"), [(None, True), ("big.data", True), ("big.data", False)])
def test_what_is_handed_over_stands_alone(placed, tmp_path, external_data, one_file):
    graph, store, _, expected = placed
    out = tmp_path / "out" / "reduced.onnx"
    model = whole(graph).model
    model.graph.initializer.append(tensor("given", weight(9)))
    before = model.SerializeToString()
    written = store.standalone(model, out, external_data=external_data, threshold=2048, one_file=one_file)
    assert model.SerializeToString() == before
    assert sorted(written) == sorted(out.parent.iterdir())
    assert len(written) == (1 if external_data is None else 2 if one_file else 7)
    store.weights.unlink()
    assert check_model({"model": str(out)})["ok"]
    # the reference evaluator does not load external data of nested graphs: have onnx do it
    got = ReferenceEvaluator(onnx.load(out)).run(None, {"a": weight(0)})[0]
    np.testing.assert_array_equal(got, expected)


def test_the_threshold_says_what_stays_inside(placed, tmp_path):
    graph, store, _, _ = placed
    store.standalone(whole(graph).model, tmp_path / "m.onnx", external_data="d", threshold=1 << 20)
    assert not names_outside(onnx.load(tmp_path / "m.onnx", load_external_data=False))
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("name", ["../d", "/tmp/d", "a/b", "m.onnx", ".."])
def test_external_data_must_be_a_plain_name(placed, tmp_path, name):
    graph, store, _, _ = placed
    with pytest.raises(ValueError, match="plain file name"):
        store.standalone(whole(graph).model, tmp_path / "m.onnx", external_data=name)
    assert not (tmp_path / "m.onnx").exists()


def test_a_candidate_that_no_file_can_hold_is_none(placed, tmp_path):
    graph, large, _, _ = placed
    store = Store(large.folder, inline_limit=1 << 20, file_limit=10_000)
    types = {"x": WIDE, "y": WIDE}
    kept = [index for index, node in enumerate(graph.nodes) if node.op_type == "Mul"]
    # the weights that it would carry, and recorded values written into it
    assert store.write(cut(graph, kept, types=types, constants={}).model, tmp_path / "good").is_file()
    with pytest.raises(CutError, match=r"would take 1\.9\de-05 GiB.*less than 2 GiB; cut\.policy=input feeds"):
        store.write(cut(graph, range(4), types=types, constants={}).model, tmp_path / "bad")
    constants = {"x": tensor("x", weight(0)), "y": tensor("y", weight(0)), "a": tensor("a", weight(0))}
    recorded = cut(graph, [0, 2, 3], types=types, constants=constants)
    with pytest.raises(CutError, match="less than 2 GiB"):
        store.write(recorded.model, tmp_path / "bad")
    # its own weights may lie outside; what is handed over has all of them there then
    store.inline_limit = 0
    assert store.write(cut(graph, range(4), types=types, constants={}).model, tmp_path / "outside").is_file()
    written = store.standalone(whole(graph).model, tmp_path / "out" / "m.onnx")
    assert [path.name for path in written] == ["m.onnx", "m.onnx.data"]


def test_tied_external_weights_are_stored_once(tmp_path):
    (tmp_path / "w.bin").write_bytes(weight(1).tobytes())
    ties = []
    for name in ("w1", "w2"):
        tie = TensorProto(name=name, data_type=1, dims=[SIDE, SIDE], data_location=TensorProto.EXTERNAL)
        tie.external_data.add(key="location", value="w.bin")
        ties.append(tie)
    text = "x = MatMul (a, w1)  y = MatMul (x, w2)"
    graph, store, _ = ingested(model_of(text, [info("a")], [info("y")], ties), tmp_path, inline_limit=0)
    assert store.weights.stat().st_size == 4096
    store.standalone(whole(graph).model, tmp_path / "out" / "m.onnx", external_data="d")
    assert (tmp_path / "out" / "d").stat().st_size == 4096
    loaded = onnx.load(tmp_path / "out" / "m.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[1]), weight(1))


def test_int4_and_bfloat16_weights_survive(tmp_path):
    made = [
        helper.make_tensor("q", TensorProto.INT4, [4096], [1, -2] * 2048),
        helper.make_tensor("b", TensorProto.BFLOAT16, [1024], [1.5] * 1024),
    ]
    model = model_of("y = Neg (a)", ["a"], ["y"], made, opset=21, ir=10)
    graph, store, report = ingested(model, tmp_path, inline_limit=0)
    assert report["weights_bytes"] == 4096
    store.inline(graph.model)
    for before in made:
        after = graph.initializers[before.name]
        np.testing.assert_array_equal(numpy_helper.to_array(after), numpy_helper.to_array(before))


def test_a_store_that_is_left_holds_only_the_weights_of_what_was_kept(tmp_path):
    wide = [tensor(name, np.full((128, 128), number, np.float32)) for number, name in enumerate("uvw", 1)]
    shape = helper.make_tensor_type_proto(TensorProto.FLOAT, [128, 128])
    text = "x = Add (a, u)  y = Add (x, v)  z = Add (y, w)"
    model = model_of(text, [helper.make_value_info("a", shape)], [helper.make_value_info("z", shape)], wide)
    graph, store, _ = ingested(model, tmp_path, inline_limit=1)
    kept = store.write(cut(graph, [1], types={"x": shape, "y": shape}, constants={}).model, tmp_path, "kept")
    store.write(whole(graph).model, tmp_path / "other")
    (store.folder / "weights.fp16.bin").touch()
    before = store.weights.stat()
    assert before.st_blocks * 512 >= 3 << 16
    store.leave_only([kept])
    assert sorted(store.folder.iterdir()) == sorted([kept, store.weights])
    assert store.weights.stat().st_size == before.st_size
    assert store.weights.stat().st_blocks * 512 < 2 << 16
    a = np.ones((128, 128), np.float32)
    np.testing.assert_array_equal(run(kept, {"x": a}), a + 2)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_with_another_name_keeps_all_its_bytes(tmp_path, link):
    content = b"x" * 8192
    (tmp_path / "mine").write_bytes(content)
    link(tmp_path / "mine", tmp_path / "weights.bin")
    free_all_but(tmp_path / "weights.bin", [(0, 1)])
    assert (tmp_path / "mine").read_bytes() == content


def test_what_is_handed_over_is_not_held_in_memory(tmp_path):
    big = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[40 << 18], raw_data=bytes(40 << 20))
    graph, store, _ = ingested(model_of("y = Add (a, w)", ["a"], ["y"], [big]), tmp_path, inline_limit=0)
    del big
    tracemalloc.start()
    try:
        path = store.standalone(whole(graph).model, tmp_path / "m.onnx")[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 40 << 20
    assert peak < 16 << 20


@pytest.mark.parametrize("most", [1, 100, 256, 10**6])
def test_an_array_is_read_in_blocks_along_its_first_axis(tmp_path, most):
    values = np.random.default_rng(0).normal(size=(7, 3, 5)).astype(np.float32)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 64 + values.tobytes())
    held = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=values.shape)
    tensor_bytes.set_reference(held, "weights.bin", 64, values.nbytes)
    store = Store(tmp_path)
    found = [np.array(one) for one in store.blocks(held, most)]
    assert np.array_equal(np.concatenate(found), values)
    assert all(one.nbytes < max(most, values[0].nbytes) + values[0].nbytes for one in found)
