"""Q/DQ layers beside raised ones: any model with them is valid, and the difference is that of the pairs alone."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser, shape_inference

from runner.jobs.precision.ranking import add_quantized
from tests.jobs.precision.cast.test_shared_pairs import FP32, X, mixer, model, run


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_any_model_can_be_run_so(seed: int) -> None:
    made = mixer(model(seed), FP32, keep_io=True)
    raised = made.mixed(frozenset(range(len(made.layers))))
    found = add_quantized(raised, made.model, made.layers)
    assert {index for index, *_ in found} <= set(range(len(made.layers)))
    top = [(name, other) for _, number, name, other in found if number == 0]
    raised.graph.output.extend(helper.make_tensor_value_info(str(other), TensorProto.FLOAT, [3, 3]) for _, other in top)
    onnx.checker.check_model(raised, full_check=True)
    run(raised)


def test_the_difference_is_that_of_the_pairs_alone() -> None:
    text = """<ir_version: 9, opset_import: ["" : 19]>
    g (float[3,3] x, bool c) => (float[3,3] y)
    <int8[3,3] w = {1,2,3,4,5,6,7,8,9}, float s = {0.1}, int8 z = {0}, float rs = {0.5}, int8 rz = {-128}> {
      wd = DequantizeLinear(w, s, z)
      a = MatMul(x, wd)
      q = QuantizeLinear(a, s, z)
      d = DequantizeLinear(q, s, z)
      b = MatMul(d, wd)
      r = QuantizeLinear(b, rs, rz)
      y = DequantizeLinear(r, rs, rz)
    }"""
    made = mixer(shape_inference.infer_shapes(parser.parse_model(text), strict_mode=True), FP32, keep_io=True)
    raised = made.mixed(frozenset(range(2)))
    (first, a, other_a), (second, y, other_y) = (
        (i, str(n), str(o)) for i, _, n, o in add_quantized(raised, made.model, made.layers)
    )
    assert (first, a, second, y) == (0, "a", 1, "y")
    del raised.graph.output[:]
    names = ("a", other_a, y, other_y)
    raised.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 3]) for name in names)
    found = dict(zip(names, run(raised), strict=True))
    weights = np.arange(1, 10, dtype=np.float32).reshape(3, 3) * np.float32(0.1)
    np.testing.assert_allclose(found["a"], X @ weights, rtol=1e-5, atol=1e-6)
    # the first layer has only its constant, which is what the raised one has too
    np.testing.assert_array_equal(found["a"], found[other_a])
    steps = np.clip(np.rint(found["a"] / np.float32(0.1)), -128, 127) * np.float32(0.1)
    ends = np.clip(np.rint(steps @ weights / 0.5), 0, 255) * 0.5
    np.testing.assert_allclose(found[other_y], ends, atol=1e-4)
    np.testing.assert_allclose(found["y"], np.clip(found["a"] @ weights, 0, 127.5), atol=1e-4)
