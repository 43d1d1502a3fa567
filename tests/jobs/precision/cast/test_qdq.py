"""Q/DQ models: a raised layer is without its pairs, and nothing is left of what nobody reads."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper, parser, shape_inference

from runner.jobs.precision.layers import Pair, layers, quantized_layers
from runner.jobs.precision.mixer import Mixer
from runner.model.graph import scopes
from runner.model.graph.low_precision import pairs_of
from tests.jobs.precision.cast import mixers
from tests.jobs.precision.cast.mixers import converted

FP32, FP16 = TensorProto.FLOAT, TensorProto.FLOAT16
TEXT = """<ir_version: 9, opset_import: ["" : 19]>
g (float[2,3] x) => (float[2,2] y, float[2,2] top)
<int8[3,3] w = {1,2,3,4,5,6,7,8,9}, float[1] ws = {0.1}, int8[1] wz = {0},
 float s = {0.02}, int8 z = {0}, float rs = {0.05}, int8 rz = {-128}, int8[3,2] v = {1,-2,3,-4,5,-6}>
{
  xq = QuantizeLinear(x, s, z)
  xd = DequantizeLinear(xq, s, z)
  wd = DequantizeLinear<axis = 1>(w, ws, wz)
  a = MatMul(xd, wd)
  aq = QuantizeLinear(a, rs, rz)
  ad = DequantizeLinear(aq, rs, rz)
  vd = DequantizeLinear(v, s, z)
  b = MatMul(ad, vd)
  bq = QuantizeLinear(b, s, z)
  y = DequantizeLinear(bq, s, z)
  top = Tanh(y)
}"""
X = np.array([[0.5, -0.25, 1.0], [-1.0, 0.75, 0.125]], np.float32)


def mixer(low: int) -> Mixer:
    model = parser.parse_model(TEXT)
    for tensor, dims in ((model.graph.initializer[1], []), (model.graph.initializer[2], [])):
        del tensor.dims[:]
        tensor.dims.extend(dims)
    typed = shape_inference.infer_shapes(model, strict_mode=True)
    pair = Pair(low, FP32)
    found = layers(typed, {}, pair)
    found = quantized_layers(typed, found) if low == FP32 else found
    return Mixer(typed, {}, found, pair, converted(typed), restores=True)


def run(model: ModelProto) -> list[np.ndarray]:
    return mixers.run(model, {"x": X})


def ops(model: ModelProto) -> list[str]:
    return [node.op_type for node in scopes.all_nodes(model.graph.node)]


def test_what_a_pair_stands_for() -> None:
    (found,) = pairs_of(parser.parse_model(TEXT).graph)
    assert {name: pair.source for name, pair in found.items()} == {
        "xd": "x",
        "wd": None,
        "ad": "a",
        "vd": None,
        "y": "b",
    }
    assert found["ad"].ends == (0.0, pytest.approx(0.05 * 255)) and found["xd"].ends == (None, None)
    assert found["wd"].constant and found["wd"].constant.name == "w"


@pytest.mark.parametrize("low", [FP32, FP16])
def test_any_set_is_sound(low: int) -> None:
    made = mixer(low)
    paths = [layer.path for layer in made.layers]
    assert paths == ["a", "b", "top"]
    good = None
    for raised in itertools.chain.from_iterable(itertools.combinations(range(3), size) for size in (3, 2, 1, 0)):
        model = made.mixed(frozenset(raised))
        onnx.checker.check_model(model, full_check=True)
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        used = {name for node in model.graph.node for name in node.input}
        assert {tensor.name for tensor in model.graph.initializer} <= used
        found = run(model)
        good = good or found
        for mine, best in zip(found, good, strict=True):
            np.testing.assert_allclose(mine, best, atol=0.15)


def test_all_raised_has_no_pair_left_and_cuts_off_below_zero_as_it_did() -> None:
    model = mixer(FP32).mixed(frozenset({0, 1, 2}))
    assert ops(model) == ["MatMul", "Max", "Min", "MatMul", "Identity", "Tanh"]
    weights = {t.name: numpy_helper.to_array(t) for t in parser.parse_model(TEXT).graph.initializer}
    a = np.maximum(X @ (weights["w"] * np.float32(0.1)), 0)
    np.testing.assert_allclose(run(model)[0], a @ (weights["v"] * np.float32(0.02)), rtol=1e-5)


def test_a_pair_behind_a_pair_and_one_in_a_branch() -> None:
    text = """<ir_version: 9, opset_import: ["" : 19]>
    g (float[2] x, bool c) => (float[2] y) <float s = {0.02}, int8 z = {0}, int8[2] w = {1, 2}> {
      q = QuantizeLinear(x, s, z)
      d = DequantizeLinear(q, s, z)
      q2 = QuantizeLinear(d, s, z)
      d2 = DequantizeLinear(q2, s, z)
      y = If(c) <then_branch = t () => (float[2] a) { v = DequantizeLinear(w, s, z)  a = Mul(d2, v) },
                 else_branch = e () => (float[2] b) { b = Neg(d2) }>
    }"""
    outer, then, other = pairs_of(parser.parse_model(text).graph)
    assert (outer["d2"].source, other) == ("x", {})
    assert then["v"].constant and then["v"].constant.name == "w"


def test_none_raised_is_the_model_as_it_was() -> None:
    assert ops(mixer(FP32).mixed(frozenset())) == ops(parser.parse_model(TEXT))


def test_only_the_pairs_that_a_layer_reads_go() -> None:
    assert ops(mixer(FP32).mixed(frozenset({1}))).count("DequantizeLinear") == 2
    # what comes before it stays quantized for it, what it hands out is quantized for the next
    assert ops(mixer(FP32).mixed(frozenset({0}))).count("DequantizeLinear") == 3
