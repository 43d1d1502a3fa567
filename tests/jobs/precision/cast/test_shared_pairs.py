"""Q/DQ pairs that share what they quantize: any raised set of any such model is valid, and so are layers beside."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, parser, shape_inference

from runner.jobs.precision.layers import Pair, layers, quantized_layers
from runner.jobs.precision.measurements import add_quantized
from runner.jobs.precision.mixer import Mixer
from tests.jobs.precision.cast import mixers

FP32, FP16 = TensorProto.FLOAT, TensorProto.FLOAT16
SIDE = 3
# name -> scale and zero; the last two cut off what is below zero, at different ends
STEPS = {"even": (0.02, 0), "short": (0.005, -128), "long": (0.05, -128)}
X = np.linspace(-2, 2, SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)


def model(seed: int) -> ModelProto:
    """Layers of products, sums and branches; floats and a constant are quantized once, twice, or not at all."""
    draw = random.Random(seed)
    nodes: list[NodeProto] = []
    floats, weights = ["x"], ["w"]
    constants = [
        numpy_helper.from_array(np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32), "w"),
        numpy_helper.from_array(np.arange(SIDE * SIDE, dtype=np.int8).reshape(SIDE, SIDE), "stored"),
        *(numpy_helper.from_array(np.float32(scale), f"{name}_s") for name, (scale, _) in STEPS.items()),
        *(numpy_helper.from_array(np.int8(zero), f"{name}_z") for name, (_, zero) in STEPS.items()),
    ]

    def pair(name: str, stem: str) -> list[NodeProto]:
        step = draw.choice([*STEPS])
        made = [helper.make_node("QuantizeLinear", [name, f"{step}_s", f"{step}_z"], [f"{stem}_q"])]
        read = [f"{stem}_q", f"{step}_s", f"{step}_z"]
        outputs = [f"{stem}{which}" for which in range(draw.choice([1, 1, 2]))]
        return made + [helper.make_node("DequantizeLinear", read, [name]) for name in outputs]

    def branch(name: str) -> GraphProto:
        inner, read = [], draw.choice(floats)
        if draw.random() < 0.5:
            inner, read = pair(read, f"{name}_d"), f"{name}_d0"
        inner.append(helper.make_node("MatMul", [read, draw.choice(weights)], [name]))
        return helper.make_graph(inner, name, [], [helper.make_tensor_value_info(name, FP32, [SIDE, SIDE])])

    for number in range(draw.randint(2, 5)):
        for which in range(draw.choice([0, 1, 2])):
            made = pair(draw.choice(floats), f"d{number}{which}_")
            floats += [name for node in made[1:] for name in node.output]
            nodes += made
        if draw.random() < 0.4:
            step = draw.choice([*STEPS])
            nodes.append(helper.make_node("DequantizeLinear", ["stored", f"{step}_s", f"{step}_z"], [f"v{number}"]))
            weights.append(f"v{number}")
        kind, made_name = draw.choice(["MatMul", "MatMul", "Add", "Relu", "If"]), f"m{number}"
        if kind == "If":
            bodies = {key: branch(f"{key}{number}") for key in ("then_branch", "else_branch")}
            nodes.append(helper.make_node("If", ["c"], [made_name], **bodies))
        else:
            second = {"MatMul": weights, "Add": floats, "Relu": [""]}[kind]
            read = [name for name in (draw.choice(floats), draw.choice(second)) if name]
            nodes.append(helper.make_node(kind, read, [made_name]))
        floats.append(made_name)
    last = pair(floats[-1], "end")
    ends = [*floats[-1:], *draw.sample(floats[1:-1], min(2, len(floats) - 2)), *(n.output[0] for n in last[1:])]
    graph = helper.make_graph(
        [*nodes, *last],
        "g",
        [
            helper.make_tensor_value_info("x", FP32, [SIDE, SIDE]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info(name, FP32, [SIDE, SIDE]) for name in dict.fromkeys(ends)],
        constants,
    )
    made_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    made_model.ir_version = 9
    return shape_inference.infer_shapes(made_model, check_type=True, strict_mode=True)


def mixer(typed: ModelProto, low: int, keep_io: bool) -> Mixer:
    pair = Pair(low, FP32)
    found = layers(typed, {}, pair)
    found = quantized_layers(typed, found) if low == FP32 else found
    return Mixer(typed, {}, found, pair, mixers.converted(typed), keep_io, restores=True)


def run(made: ModelProto) -> list[np.ndarray]:
    return mixers.run(made, {"x": X, "c": np.array(True)})


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([FP32, FP16]), st.booleans(), st.integers(0, 2**12 - 1))
def test_any_set_of_any_model_is_valid(seed: int, low: int, keep_io: bool, bits: int) -> None:
    made = mixer(model(seed), low, keep_io)
    every = range(len(made.layers))
    for raised in (frozenset(every), frozenset(index for index in every if bits >> index & 1)):
        mixed = made.mixed(raised)
        onnx.checker.check_model(mixed, full_check=True)
        shape_inference.infer_shapes(mixed, check_type=True, strict_mode=True)
        run(mixed)


@pytest.mark.parametrize("low", [FP32, FP16])
def test_one_tensor_cut_off_at_two_ends(low: int) -> None:
    text = """<ir_version: 9, opset_import: ["" : 19]>
    g (float[3,3] x, bool c) => (float[3,3] y, float[3,3] z)
    <float[3,3] w = {1,2,3,4,5,6,7,8,9}, float short_s = {0.005}, float long_s = {0.05}, int8 least = {-128}> {
      q = QuantizeLinear(x, short_s, least)
      d = DequantizeLinear(q, short_s, least)
      q2 = QuantizeLinear(x, long_s, least)
      d2 = DequantizeLinear(q2, long_s, least)
      y = MatMul(d, w)
      z = MatMul(d2, w)
    }"""
    typed = shape_inference.infer_shapes(onnx.parser.parse_model(text), strict_mode=True)
    mixed = mixer(typed, low, keep_io=True).mixed(frozenset({0, 1}))
    onnx.checker.check_model(mixed, full_check=True)
    weights = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    for found, end in zip(run(mixed), (0.005 * 255, 0.05 * 255), strict=True):
        np.testing.assert_allclose(found, np.clip(X, 0, end) @ weights, rtol=1e-5, atol=1e-5)


def test_what_a_graph_hands_out_is_cut_off_before_it_is_cast() -> None:
    text = """<ir_version: 9, opset_import: ["" : 19]>
    g (float[3,3] x, bool c) => (float[3,3] y)
    <float[3,3] w = {1,2,3,4,5,6,7,8,9}, float s = {0.05}, int8 least = {-128}> {
      a = MatMul(x, w)
      q = QuantizeLinear(a, s, least)
      y = DequantizeLinear(q, s, least)
    }"""
    typed = shape_inference.infer_shapes(onnx.parser.parse_model(text), strict_mode=True)
    mixed = mixer(typed, TensorProto.BFLOAT16, keep_io=False).mixed(frozenset({0}))
    onnx.checker.check_model(mixed, full_check=True)
    # few runtimes compare numbers in bfloat16
    assert [node.op_type for node in mixed.graph.node] == ["Cast", "MatMul", "Max", "Min", "Cast"]
    limits = [tensor.data_type for tensor in mixed.graph.initializer if not tensor.dims]
    assert limits == [FP32, FP32]


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
    rows = [(i, str(n), str(o)) for i, _, n, o in add_quantized(raised, made.model, made.layers)]
    assert [row[:2] for row in rows] == [(0, "a"), (1, "b"), (1, "y")]
    other_a, other_b, other_y = (other for *_, other in rows)
    del raised.graph.output[:]
    names = ("a", other_a, "b", other_b, "y", other_y)
    raised.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 3]) for name in names)
    found = dict(zip(names, run(raised), strict=True))
    weights = np.arange(1, 10, dtype=np.float32).reshape(3, 3) * np.float32(0.1)
    np.testing.assert_allclose(found["a"], X @ weights, rtol=1e-5, atol=1e-6)
    # the first layer has only its constant, which is what the raised one has too
    np.testing.assert_array_equal(found["a"], found[other_a])
    steps = np.clip(np.rint(found["a"] / np.float32(0.1)), -128, 127) * np.float32(0.1)
    np.testing.assert_allclose(found[other_b], steps @ weights, atol=1e-4)
    ends = np.clip(np.rint(found["b"] / np.float32(0.5)), 0, 255) * 0.5
    np.testing.assert_allclose(found[other_y], ends, atol=1e-4)
    np.testing.assert_allclose(found["y"], np.clip(found["a"] @ weights, 0, 127.5), atol=1e-4)
