"""Q/DQ pairs: a raised layer is without them, what nobody reads goes, and any raised set of any model is valid."""

from __future__ import annotations

import itertools
import random

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, parser, shape_inference

from runner.jobs.precision.setup import PrecisionModel
from runner.jobs.precision.units import add_quantized
from runner.model.graph import scopes
from runner.model.graph.low_precision import pairs_of
from tests.jobs.precision.cast import mixers
from tests.jobs.precision.cast.mixers import mixer

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


def typed(text: str) -> ModelProto:
    return shape_inference.infer_shapes(parser.parse_model(text), strict_mode=True)


def run(made: ModelProto) -> list[np.ndarray]:
    return mixers.run(made, {"x": X, "c": np.array(True)})


def ops(model: ModelProto) -> list[str]:
    return [node.op_type for node in scopes.all_nodes(model.graph.node)]


TEXT = """<ir_version: 9, opset_import: ["" : 19]>
g (float[3,3] x) => (float[3,2] y, float[3,2] top)
<int8[3,3] w = {1,2,3,4,5,6,7,8,9}, float ws = {0.1}, int8 wz = {0},
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
def test_any_set_computes_the_same(low: int) -> None:
    made = mixer(typed(TEXT), low, keep_io=True)
    assert [layer.path for layer in made.layers] == ["a", "b", "top"]
    good = run(made.mixed(frozenset(range(3))))
    for raised in itertools.chain.from_iterable(itertools.combinations(range(3), size) for size in range(3)):
        model = made.mixed(frozenset(raised))
        used = {name for node in model.graph.node for name in node.input}
        assert {tensor.name for tensor in model.graph.initializer} <= used
        for mine, best in zip(run(model), good, strict=True):
            np.testing.assert_allclose(mine, best, atol=0.15)


def test_all_raised_has_no_pair_left_and_cuts_off_below_zero_as_it_did() -> None:
    model = mixer(typed(TEXT), FP32, keep_io=True).mixed(frozenset({0, 1, 2}))
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
    assert ops(mixer(typed(TEXT), FP32, keep_io=True).mixed(frozenset())) == ops(parser.parse_model(TEXT))


def test_only_the_pairs_that_a_layer_reads_go() -> None:
    assert ops(mixer(typed(TEXT), FP32, keep_io=True).mixed(frozenset({1}))).count("DequantizeLinear") == 2
    # what comes before it stays quantized for it, what it hands out is quantized for the next
    assert ops(mixer(typed(TEXT), FP32, keep_io=True).mixed(frozenset({0}))).count("DequantizeLinear") == 3


def test_a_model_with_pairs_is_less_than_float32_whatever_its_low_type_is() -> None:
    plain = '<ir_version: 9, opset_import: ["" : 19]> g (float[3,3] x) => (float[3,3] y) { y = Tanh(x) }'
    made = [mixer(typed(text), FP16) for text in (TEXT, plain)]
    assert [PrecisionModel(one, one.pair, {}, {}, ()).is_lossy for one in made] == [True, False]


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
    mixed = mixer(typed(text), low, keep_io=True).mixed(frozenset({0, 1}))
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
    mixed = mixer(typed(text), TensorProto.BFLOAT16, keep_io=False).mixed(frozenset({0}))
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
    made = mixer(typed(text), FP32, keep_io=True)
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
