"""Mixed-precision models: valid and strongly typed whatever is raised, with no cast too many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, parser, shape_inference

from runner.backends.rounding import rounded
from runner.jobs.precision.mixer import Mixer
from runner.jobs.precision.prepare_model import convert, inlined
from runner.model.graph import scopes
from tests.jobs.precision.cast import mixers
from tests.jobs.precision.cast.mixers import run

FP32, FP16, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16

FLOW = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,3] x, bool c, int64 n) => (float[2,3] y, float[K,2,3] stack, float[2,3] z)
<float[3] w = {1.0,2.0,3.0}, float[3] start = {1.0,1.0,1.0}, float one = {1.0}, bool go = {1}>
{
  a = Mul(x, w)
  [iff] b = If(c) <then_branch = t () => (float[2,3] tb) { t1 = Add(a, one)  tb = Mul(t1, w) },
                   else_branch = e () => (float[2,3] eb) { eb = Identity(a) }>
  [loop] y0, stack = Loop(n, go, b) <body = bd (int64 i, bool ci, float[2,3] s) =>
     (bool co, float[2,3] so, float[2,3] sc)
     { co = Identity(ci)  fi = Cast<to=1>(i)
       s1 = Add(s, fi)  so = Mul(s1, w)  sc = Sub(so, a) }>
  [scan] fin, z0 = Scan(start, y0) <num_scan_inputs = 1, body = sb (float[3] st, float[3] el) =>
     (float[3] st2, float[3] o)
     { st2 = Add(st, el)  ab = Abs(st2)  o = Sqrt(ab) }>
  y = Softmax(y0)
  z = Relu(z0)
}"""

PLAIN = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,3] x, int64[2] shape) => (float[p,q] y, int64[2] s, float[2,3] kept)
<float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[1] scale = {0.5}>
{
  m = MatMul(x, w)
  r = Relu(m)
  s = Shape(r)
  f = Cast<to=1>(shape)
  k = Cast<to=7>(r)
  kf = Cast<to=1>(k)
  sum = Add(r, kf)
  t = Mul(sum, scale)
  y = Reshape(t, shape)
  kept = Mul(x, scale)
}"""


def mixer(model: ModelProto, low: int, *, keep_io: bool = True) -> Mixer:
    return mixers.mixer(shape_inference.infer_shapes(model, strict_mode=True), low, keep_io)


def assert_sound(model: ModelProto) -> None:
    """Full type inference; no Cast of a constant, none that undoes another, none twice."""
    onnx.checker.check_model(model, full_check=True)
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    for graph in scopes.graphs_below(model.graph):
        constants = {tensor.name for tensor in graph.initializer}
        makers = {name: node for node in graph.node for name in node.output}
        casts = [node for node in graph.node if node.name.endswith("__cast")]
        assert not [node.name for node in casts if node.input[0] in constants]
        assert not [n.name for n in casts if n.input[0] in makers and makers[n.input[0]].name.endswith("__cast")]
        pairs = [(node.input[0], node.attribute[0].i) for node in casts]
        assert len(pairs) == len(set(pairs))


FEEDS = {
    FLOW: {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "c": np.array(True), "n": np.array(3)},
    PLAIN: {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "shape": np.array([3, 2])},
}


@pytest.mark.variants
@pytest.mark.parametrize("text", [FLOW, PLAIN], ids=["control flow", "plain"])
@pytest.mark.parametrize("low", [FP16, BF16])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_set_raised_is_sound_and_computes_the_same(text: str, low: int, data: st.DataObject) -> None:
    made = mixer(parser.parse_model(text), low)
    raised = data.draw(st.frozensets(st.integers(0, len(made.layers) - 1)))
    model = made.mixed(raised)
    assert_sound(model)
    emulated = ModelProto()
    emulated.CopyFrom(model)
    good = run(parser.parse_model(text), FEEDS[text])
    for mine, theirs in zip(run(rounded(emulated), FEEDS[text]), good, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=0.05, atol=0.3 if low == BF16 else 0.05)


@pytest.mark.parametrize("text", [FLOW, PLAIN], ids=["control flow", "plain"])
def test_all_raised_is_the_original(text: str) -> None:
    made = mixer(parser.parse_model(text), FP16)
    model = made.mixed(frozenset(range(len(made.layers))))
    assert not [node for node in scopes.all_nodes(model.graph.node) if node.name.endswith("__cast")]
    for mine, theirs in zip(run(model, FEEDS[text]), run(parser.parse_model(text), FEEDS[text]), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_nested_nodes_are_elements_with_paths() -> None:
    paths = [layer.path for layer in mixer(parser.parse_model(FLOW), FP16).layers]
    assert "iff.then_branch/t1" in paths
    assert "loop.body/s1" in paths
    assert "scan.body/o" in paths
    assert "loop.body/co" not in paths


def test_what_an_operator_takes_in_one_type_only_does_not_fix_the_others() -> None:
    """The scales of a Resize, and the mean that a normalization also makes, are float32 whatever its data are."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float16[1,1,2,2] x) => (float16[1,1,4,4] y, float16[1,1,2,2] z, float[1,1,2,1] mean)
    <float[4] scales = {1,1,2,2}, float16[2] w = {1,1}> {
      y = Resize<mode="nearest">(x, , scales)
      z, mean = LayerNormalization(x, w)
    }"""
    made = mixer(parser.parse_model(text), FP16)
    assert [layer.op_type for layer in made.layers] == ["Resize", "LayerNormalization"]
    assert not any(one.high for one in replace(made, layers=()).float_nodes)
    for raised in (frozenset[int](), frozenset({0, 1})):
        assert_sound(made.mixed(raised))


def test_inputs_and_outputs_may_be_converted() -> None:
    model = mixer(parser.parse_model(PLAIN), FP16, keep_io=False).mixed(frozenset())
    assert_sound(model)
    assert not [node for node in model.graph.node if node.name.endswith("__cast")]
    assert model.graph.input[0].type.tensor_type.elem_type == FP16
    assert model.graph.output[0].type.tensor_type.elem_type == FP16


def test_plumbing_of_a_mixed_model_is_laid_anew() -> None:
    """A model that is mixed already: what is in fp32 there stays, what is in fp16 can be raised."""
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        g (float[4] x) => (float[4] y) {
          h = Cast<to=10>(x)
          a = Relu(h)
          b = Exp(a)
          f = Cast<to=1>(b)
          y = Log(f)
        }"""
    )
    made = mixer(model, FP16)
    assert [layer.path for layer in made.layers] == ["a", "b"]
    low, one, both = (made.mixed(frozenset(raised)) for raised in ([], [1], [0, 1]))
    for mixed in (low, one, both):
        assert_sound(mixed)
    assert [node.op_type for node in both.graph.node] == ["Relu", "Exp", "Log"]
    assert [node.op_type for node in low.graph.node].count("Cast") == 2


def test_operators_of_another_domain_are_not_onnx_s_of_the_same_name() -> None:
    """Nobody knows what they compute: one reads its own type, and none is left out."""
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18, "mine" : 1]>
        g (float[4] x) => (float[4] y, float[1] s, float16[4] c) {
          h = Relu(x)
          s = mine.Shape(h)
          c = mine.Cast(x)
          y = Exp(h)
        }"""
    )
    made = mixer(model, FP16).mixed(frozenset())
    makers = {name: node for node in made.graph.node for name in node.output}
    shape = next(node for node in made.graph.node if node.op_type == "Shape")
    assert makers[shape.input[0]].op_type == "Cast" and makers[shape.input[0]].attribute[0].i == FP32
    assert [node.domain for node in made.graph.node if node.op_type == "Cast" and node.domain] == ["mine"]


def test_values_out_of_range_are_clamped_and_counted() -> None:
    values, counts = convert(np.array([1.0, -3.4e38, 1e-12, np.inf, 0.0], np.float32), FP16)
    assert counts == (1, 1)
    assert values.tolist() == [1.0, -65504.0, 0.0, np.inf, 0.0]


FUNCTIONS = """<ir_version: 10, opset_import: ["":18, "my":1]>
g (float[2,3] x, bool c) => (float[2,3] y, float[2,3] z) {
  [c1] a = my.Outer(x)
  [c2] b = my.Inner(a)
  [iff] y = If(c) <then_branch = t () => (float[2,3] t1) { [c3] t1 = my.Inner(b) },
                   else_branch = e () => (float[2,3] e1) { e1 = Identity(b) }>
  [plain] z = Neg(b)
}
<opset_import: ["":18], domain: "my">
Inner (i) => (o) { [n1] k = Exp(i)  [n2] o = Neg(k) }
<opset_import: ["":18, "my":1], domain: "my">
Outer (i) => (o) { [p1] k = my.Inner(i)  two = Constant<value = float {2.0}>()  [p2] o = Mul(k, two) }
"""


def test_where_nodes_come_from() -> None:
    made, origins = inlined(parser.parse_model(FUNCTIONS))
    named = {node.name: origins.get(node.output[0]) for node in made.graph.node if node.name}
    (branch,) = [a.g for node in made.graph.node for a in node.attribute if a.name == "then_branch"]
    by_call = [name for name in named.values() if name]
    assert by_call == [
        "node n1 of function my.Inner, called by node p1 of function my.Outer, called by node c1",
        "node n2 of function my.Inner, called by node p1 of function my.Outer, called by node c1",
        "node p2 of function my.Outer, called by node c1",
        "node n1 of function my.Inner, called by node c2",
        "node n2 of function my.Inner, called by node c2",
    ]
    assert named["plain"] is None and named["iff"] is None
    assert [origins[node.output[0]] for node in branch.node] == [
        "node n1 of function my.Inner, called by node c3",
        "node n2 of function my.Inner, called by node c3",
    ]
