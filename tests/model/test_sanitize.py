"""Sanitizing changes what it is told to and nothing else: values, order and names of what stays are the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from runner.exit_codes import ModelError
from runner.model.passes.sanitize import SanitizeError, sanitize
from tests.model.models import dags, model_of, nodes_of, tensor

LIMIT = 16 << 20


def sanitized(model: ModelProto, folder, **what) -> tuple[ModelProto, list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "m.onnx")
    done = sanitize({"model": str(folder / "m.onnx"), "out": str(folder / "out"), **what})
    assert sorted(path.name for path in (folder / "out").iterdir() if path.suffix == ".onnx") == ["sanitized.onnx"]
    return onnx.load(done["path"]), done["done"]


def gives(model: ModelProto) -> list[str]:
    return [one.output[0] for one in model.graph.node]


def shape_model(**options) -> ModelProto:
    """Reshape to a computed shape: of six nodes only two read the data itself."""
    text = """shape = Shape (x)  n = Gather (shape, zero)  n1 = Unsqueeze (n, axes)
        target = Concat <axis = 0> (n1, rest)  flat = Reshape (x, target)  y = Neg (flat)"""
    weights = [tensor("zero", np.int64(0)), tensor("axes", [0]), tensor("rest", [-1])]
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", "K"])
    return model_of(text, [declared], [out], weights, **options)


def test_shapes_are_written_and_then_folded(tmp_path):
    model, done = sanitized(shape_model(ir=6), tmp_path, fold=True, fold_limit=LIMIT, shapes={"x": [4, 2, 3]})
    assert gives(model) == ["flat", "y"]
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [4, 2, 3]
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [4, 6]
    assert [one.name for one in model.graph.initializer] == ["target"]
    assert numpy_helper.to_array(model.graph.initializer[0]).tolist() == [4, -1]
    assert model.ir_version == 6
    assert done == [
        "sanitize.shapes: the model's inputs now have the shapes x [4, 2, 3]",
        "sanitize.fold: 4 of 6 nodes folded into 1 constant",
    ]
    onnx.checker.check_model(model)


def test_before_ir_version_4_a_constant_is_an_input_too(tmp_path):
    before = shape_model(ir=3, opset=8)
    before.graph.node[2].CopyFrom(*nodes_of("n1 = Unsqueeze <axes = [0]> (n)"))
    infos = [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in before.graph.initializer]
    before.graph.input.extend(infos)
    model, _ = sanitized(before, tmp_path, fold=True, shapes={"x": [4, 2, 3]})
    assert gives(model) == ["flat", "y"]
    assert {one.name for one in model.graph.initializer} <= {one.name for one in model.graph.input}
    assert model.ir_version == 3
    onnx.checker.check_model(model)


def test_a_shape_that_the_file_only_claims_is_not_believed(tmp_path):
    text = "b = odd.Odd (a)  s = Shape (b)  y = Expand (a, s)"
    claimed = helper.make_tensor_value_info("b", TensorProto.FLOAT, [7, 7])
    model, _ = sanitized(model_of(text, ["a"], ["y"], domains=["odd"], value_info=[claimed]), tmp_path, fold=True)
    assert len(model.graph.node) == 3


def test_a_shape_of_nothing_is_no_shape(tmp_path):
    nodes = [helper.make_node("Shape", [], ["s"]), *nodes_of("y = Expand (a, s)")]
    with pytest.raises(SanitizeError, match=r"^sanitize\.fold=true: .*Shape.* has input size 0"):
        sanitized(model_of(nodes, ["a"], ["y"]), tmp_path, fold=True)


def test_what_is_drawn_quantized_or_a_face_of_the_model_stays(tmp_path):
    text = """drawn = RandomNormal <shape = [2, 3]> ()  negated = Neg (drawn)  d = DequantizeLinear (q, s, z)
        sum = Add (d, negated)  out = Abs (w)  sum2 = Add (sum, out)  root = Sqrt (fed)  sum3 = Add (a, root)"""
    weights = [tensor("q", np.ones((2, 3), np.int8)), tensor("s", np.float32(0.5)), tensor("z", np.int8(0))]
    weights += [tensor(name, np.ones((2, 3), np.float32)) for name in ("w", "fed")]
    before = model_of(text, ["a", "fed"], ["sum2", "out", "sum3"], weights)
    model, done = sanitized(before, tmp_path, fold=True)
    assert gives(model) == gives(before)
    assert "may be fed: 1" in done[0]


@pytest.mark.parametrize("known", [True, False], ids=["known", "only when computed"])
def test_a_value_beyond_the_limit_stays_computed(tmp_path, known):
    size = "size" if known else "sizes"
    # NonZero gives as many as there are, which only running it tells
    text = f"""places = NonZero (ones)  sizes = ReduceMax <keepdims = 0, axes = [1]> (places)
        large = ConstantOfShape ({size})  sum = ReduceSum <keepdims = 0> (large)  y = Add (a, sum)"""
    weights = [tensor("ones", np.ones(1 << 20, np.int32)), tensor("size", [(1 << 20) - 1])]
    model, done = sanitized(model_of(text, ["a"], ["y"], weights), tmp_path, fold=True, fold_limit=1 << 20)
    if known:
        assert {"large", "sum", "y"} <= set(gives(model))
        assert "beyond sanitize.fold_limit_mb=1: " in done[0]
    before, after = (ReferenceEvaluator(one) for one in (model_of(text, ["a"], ["y"], weights), model))
    feeds = {"a": np.ones((2, 3), np.float32)}
    np.testing.assert_array_equal(after.run(None, feeds)[0], before.run(None, feeds)[0])
    assert all(len(one.raw_data) <= 4 << 20 for one in model.graph.initializer)


def test_one_value_that_cannot_be_computed_does_not_stop_the_others(tmp_path):
    bad = "bad = Gather (w, nine)  y = Add (a, bad)"
    weights = [tensor("w", -np.ones((2, 3), np.float32)), tensor("nine", [9])]
    text = f"{bad}  good = Abs (w)  z = Add (a, good)"
    model, done = sanitized(model_of(text, ["a"], ["y", "z"], weights), tmp_path, fold=True)
    assert gives(model) == ["bad", "y", "z"]
    assert "could not be computed: 1 (" in done[0] and "indices" in done[0]
    with pytest.raises(SanitizeError, match=r"^sanitize\.fold=true: .*indices") as error:
        sanitized(model_of(bad, ["a"], ["y"], weights), tmp_path / "none", fold=True)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "none" / "out" / "sanitized.onnx").exists()


def test_dead_nodes_and_unused_tensors_are_removed_in_place(tmp_path):
    nodes = nodes_of("""dead = Abs (a)  kept = Exp (a)  deader = Neg (dead)  y = If (yes) <
        then_branch = b () => (float[2,3] t) { t = Neg (kept) },
        else_branch = b () => (float[2,3] t) { t = Neg (kept) }>""")
    nodes[3].doc_string = "of the If"
    weights = [tensor("yes", np.array(True)), tensor("unused", np.ones(3))]
    infos = [helper.make_tensor_value_info(name, 1, [2, 3]) for name in ("dead", "kept", "gone")]
    before = model_of(nodes, ["a", "b"], ["y"], weights, value_info=infos)
    before.metadata_props.add(key="k", value="v")
    model, done = sanitized(before, tmp_path, cleanup=True)
    assert list(model.graph.node) == [nodes[1], nodes[3]]
    assert [one.name for one in model.graph.initializer] == ["yes"]
    assert [one.name for one in model.graph.value_info] == ["kept"]
    assert [one.name for one in model.graph.input] == ["a", "b"]
    assert model.metadata_props == before.metadata_props
    assert done == ["sanitize.cleanup: 2 dead nodes and 1 unused tensor removed"]


def test_large_weights_stay_in_their_file(tmp_path):
    """As with a model of more than 2 GiB: only what a folded node reads is taken out of the weights file."""
    large = np.zeros((2300, 4000), np.float32)
    text = "h = MatMul (a, large)  t = Transpose (small)  y = MatMul (h, t)"
    small = np.arange(8000, dtype=np.float32).reshape(2, 4000)
    declared = [helper.make_tensor_value_info("a", 1, [2, 2300])], [helper.make_tensor_value_info("y", 1, [2, 2])]
    model = model_of(text, *declared, [tensor("large", large), tensor("small", small)])
    onnx.save(model, tmp_path / "m.onnx")
    done = sanitize({"model": str(tmp_path / "m.onnx"), "out": str(tmp_path / "out"), "fold": True})
    assert (tmp_path / "out" / "sanitized.onnx").stat().st_size < 1 << 20
    got = {one.name: one for one in onnx.load(done["path"]).graph.initializer}
    assert set(got) == {"large", "t"}
    np.testing.assert_array_equal(numpy_helper.to_array(got["t"]), small.T)


def test_settings_that_cannot_be_followed(tmp_path):
    for shapes in ({}, {"nobody": [1]}, {"x": [1, 2]}):
        with pytest.raises(SanitizeError, match=r"^sanitize\.shapes=true: "):
            sanitized(shape_model(), tmp_path, shapes=shapes)
    (tmp_path / "bad.onnx").write_bytes(b"junk")
    with pytest.raises(ModelError, match=r"bad\.onnx") as error:
        sanitize({"model": str(tmp_path / "bad.onnx"), "out": str(tmp_path / "out"), "fold": True})
    assert not isinstance(error.value, SanitizeError)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=dags(), cleanup=st.booleans())
def test_values_order_and_names_survive(tmp_path_factory, case, cleanup):
    before, feeds = case
    after, _ = sanitized(before, tmp_path_factory.mktemp("dag"), fold=True, fold_limit=LIMIT, cleanup=cleanup)
    onnx.checker.check_model(after)
    places = {tuple(one.output): at for at, one in enumerate(before.graph.node)}
    assert [tuple(one.output) for one in after.graph.node] == sorted(
        (tuple(one.output) for one in after.graph.node), key=places.__getitem__
    )
    for one in after.graph.node:
        assert one == before.graph.node[places[tuple(one.output)]]
    expected, got = (ReferenceEvaluator(model).run(None, feeds) for model in (before, after))
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
