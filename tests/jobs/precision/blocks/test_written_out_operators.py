"""Norms, softmaxes and the like are found however they are written out, and nothing else is taken for one."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from runner.jobs.precision.blocks.written_out_operators import groups
from runner.jobs.precision.cast.layers import Pair, layers

PAIR = Pair(TensorProto.FLOAT16, TensorProto.FLOAT)


def found(model: ModelProto) -> list[tuple[str, list[str], list[str]]]:
    """The kind, the core and the scale and bias of each group, by the names of nodes."""
    onnx.checker.check_model(model, full_check=True)
    typed = onnx.shape_inference.infer_shapes(model)
    own = layers(typed, {}, PAIR)
    names = [layer.path for layer in own]
    return [
        (one.kind, [names[index] for index in one.core], [names[index] for index in one.affine])
        for one in groups(typed, {}, own, PAIR)
    ]


def text(body: str, *, x: str = "float[2,4,6] x", y: str = "float[2,4,6] y", opset: int = 18) -> ModelProto:
    """A graph from x to y; constants of one number are there under the names of what they are."""
    constants = (
        "float two = {2.0}, float three = {3.0}, float half = {0.5}, float least = {-0.5}, float one = {1.0}, "
        "float eps = {1e-5}, float root2 = {1.41421}, float cubic = {0.044715}, float rootpi = {0.79788}, "
        "float n = {6.0}, int64[1] last = {-1}, int64[1] middle = {1}, int64[2] plane = {2, 3}, int64[1] from2 = {2}, "
        "float[6] scale = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, float[6] bias = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}"
    )
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {opset}]> g ({x}) => ({y}) <{constants}> {{ {body} }}'
    )


def core(model: ModelProto) -> list[tuple[str, int, int]]:
    return [(kind, len(own), len(affine)) for kind, own, affine in found(model)]


class Writer:
    """Writes nodes, and constants in one of the ways in which there are constants."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.core: list[str] = []
        self.count = 0

    def choose(self, *ways: str) -> str:
        return self.draw(st.sampled_from(ways))

    def add(self, op: str, *inputs: str, swapped: bool = False, to: list[str] | None = None, **attributes: int) -> str:
        self.count += 1
        name = f"{op}_{self.count}"
        given = inputs[::-1] if swapped and self.draw(st.booleans()) else inputs
        self.nodes.append(helper.make_node(op, given, [f"{name}_out"], name=name, **attributes))
        (self.core if to is None else to).append(name)
        return self.cast(f"{name}_out")

    def cast(self, name: str) -> str:
        """Casts of one float type to itself are plumbing wherever they stand."""
        if self.draw(st.integers(0, 9)):
            return name
        self.count += 1
        self.nodes.append(helper.make_node("Cast", [name], [f"c{self.count}"], name=f"c{self.count}", to=1))
        return f"c{self.count}"

    def constant(self, value: object, dtype: type = np.float32) -> str:
        self.count += 1
        name = f"k{self.count}"
        tensor = numpy_helper.from_array(np.asarray(value, dtype), name)
        if self.draw(st.booleans()):
            self.weights.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], name=f"{name}_node", value=tensor))
        return name if dtype is np.int64 else self.cast(name)

    def mean(self, name: str) -> str:
        if self.choose("mean", "sum") == "mean":
            return self.add("ReduceMean", name, self.constant([-1], np.int64))
        total = self.add("ReduceSum", name, self.constant([-1], np.int64))
        return self.add("Div", total, self.constant(6.0))

    def square(self, name: str) -> str:
        if self.draw(st.booleans()):
            return self.add("Mul", name, name)
        return self.add("Pow", name, self.constant(2.0))

    def normed(self, x: str, *, centered: bool) -> tuple[str, list[str]]:
        """Write a norm; return what it makes, and the names of its scale and bias."""
        value, affine = x, list[str]()
        if centered:
            mean = self.mean(x)
            value = self.add("Sub", x, mean)
        if centered and self.choose("differences", "moments") == "moments":
            variance = self.add("Sub", self.mean(self.square(x)), self.square(mean))
        else:
            variance = self.mean(self.square(value))
        if self.draw(st.booleans()):
            variance = self.add("Add", variance, self.constant(1e-5), swapped=True)
        way = self.choose("div", "reciprocal", "one over", "power", "half")
        if way == "power":
            made = self.add("Mul", value, self.add("Pow", variance, self.constant(-0.5)), swapped=True)
        else:
            half = way == "half"
            root = self.add("Pow", variance, self.constant(0.5)) if half else self.add("Sqrt", variance)
            if way == "reciprocal":
                made = self.add("Mul", value, self.add("Reciprocal", root), swapped=True)
            elif way == "one over":
                made = self.add("Mul", value, self.add("Div", self.constant(1.0), root), swapped=True)
            else:
                made = self.add("Div", value, root)
        if self.draw(st.booleans()):
            made = self.add("Mul", made, self.constant(np.arange(6)), swapped=True, to=affine)
            if self.draw(st.booleans()):
                made = self.add("Add", made, self.constant(np.arange(6)), swapped=True, to=affine)
        return made, affine

    def softened(self, x: str) -> str:
        """Write a softmax."""
        if self.draw(st.booleans()):
            x = self.add("Sub", x, self.add("ReduceMax", x, self.constant([-1], np.int64)))
        top = self.add("Exp", x)
        total = self.add("ReduceSum", top, self.constant([-1], np.int64))
        if self.draw(st.booleans()):
            return self.add("Mul", top, self.add("Reciprocal", total), swapped=True)
        return self.add("Div", top, total)


@st.composite
def written(draw: st.DrawFn) -> tuple[ModelProto, list[tuple[str, list[str], list[str]]]]:
    """A model with norms and softmaxes in a chain, inside a branch or not, and what they are."""
    writer, x, expected = Writer(draw), "x", []
    for _ in range(draw(st.integers(1, 3))):
        x = writer.add("Tanh", x, to=[])
        writer.core = []
        kind = writer.choose("LayerNorm", "RMSNorm", "Softmax")
        if kind == "Softmax":
            x, affine = writer.softened(x), list[str]()
        else:
            x, affine = writer.normed(x, centered=kind == "LayerNorm")
        # what is neither one number nor a weight ends the norm
        x = writer.add("Mul", x, "x", to=[])
        expected.append((kind, writer.core, affine))
    value = helper.make_tensor_value_info
    x_in, out = value("x", TensorProto.FLOAT, [2, 4, 6]), value(x, TensorProto.FLOAT, [2, 4, 6])
    prefix = ""
    if draw(st.booleans()):
        other = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["o"])], "o", [], [value("o", TensorProto.FLOAT, [2, 4, 6])]
        )
        # weights lie in the branch or around it
        around = writer.weights if draw(st.booleans()) else []
        inner = helper.make_graph(writer.nodes, "b", [], [out], [] if around else writer.weights)
        branch = helper.make_node("If", ["c"], ["y"], name="if", then_branch=inner, else_branch=other)
        inputs = [x_in, value("c", TensorProto.BOOL, [])]
        graph = helper.make_graph([branch], "g", inputs, [value("y", TensorProto.FLOAT, [2, 4, 6])], around)
        prefix = "if.then_branch/"
    else:
        graph = helper.make_graph(writer.nodes, "g", [x_in], [out], writer.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    told = [
        (kind, sorted(prefix + name for name in own), sorted(prefix + name for name in affine))
        for kind, own, affine in expected
    ]
    return model, told


@given(written())
@settings(max_examples=150, deadline=None)
def test_each_is_found_with_its_nodes(case: tuple[ModelProto, list[tuple[str, list[str], list[str]]]]) -> None:
    model, expected = case
    assert [(kind, sorted(own), sorted(affine)) for kind, own, affine in found(model)] == expected


NORM = "m = ReduceMean(x, last) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, last) e = Add(v, eps) s = Sqrt(e) "


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(NORM + "y = Div(d, s)", ("LayerNorm", 7, 0), id="plain"),
        pytest.param(NORM + "d2 = Sub(x, m) y = Div(d2, s)", ("LayerNorm", 8, 0), id="difference-made-twice"),
        pytest.param(
            "m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last) s = Sqrt(v) "
            "b = Add(s, eps) y = Div(d, b)",
            ("LayerNorm", 7, 0),
            id="epsilon-behind-the-root",
        ),
        pytest.param(
            NORM + "i = Reciprocal(s) g = Mul(i, scale) a = Mul(x, g) h = Mul(m, g) k = Sub(bias, h) y = Add(a, k)",
            ("LayerNorm", 11, 1),
            id="folded-into-a-scale-and-an-offset",
        ),
        pytest.param(
            "m = ReduceMean<keepdims = 0>(x, last) mm = Unsqueeze(m, last) d = Sub(x, mm) q = Mul(d, d) "
            "v = ReduceMean<keepdims = 0>(q, last) vv = Unsqueeze(v, last) e = Add(vv, eps) s = Sqrt(e) y = Div(d, s)",
            ("LayerNorm", 9, 0),
            id="axes-that-go-and-come-back",
        ),
        pytest.param(
            "q = Pow(x, two) v = ReduceMean(q, last) s = Sqrt(v) c = Clip(s, eps) y = Div(x, c)",
            ("RMSNorm", 5, 0),
            id="limited-from-below",
        ),
        pytest.param("l = ReduceL2(x, last) c = Max(l, eps) y = Div(x, c)", ("L2Norm", 3, 0), id="length"),
        pytest.param(
            "l = ReduceL2(x, last) c = Clip(l, eps) h = Shape(x) w = Expand(c, h) y = Div(x, w)",
            ("L2Norm", 4, 0),
            id="length-expanded",
        ),
        pytest.param("q = ReduceSumSquare(x, last) s = Sqrt(q) y = Div(x, s)", ("L2Norm", 3, 0), id="sum-of-squares"),
        pytest.param(
            "a = ReduceMax(x, last) d = Sub(x, a) e = Exp(d) s = ReduceSum(e, last) l = Log(s) y = Sub(d, l)",
            ("LogSoftmax", 6, 0),
            id="logarithm",
        ),
        pytest.param(
            "a = ReduceMax(x, last) d = Sub(x, a) e = Exp(d) s = ReduceSum(e, last) l = Log(s) z = Add(l, a) "
            "y = Sub(x, z)",
            ("LogSoftmax", 7, 0),
            id="logarithm-and-largest-in-one",
        ),
        pytest.param("l = ReduceLogSumExp(x, last) y = Sub(x, l)", ("LogSoftmax", 2, 0), id="logarithm-of-a-sum"),
        pytest.param(
            "e = Exp(x) k = Mul(e, scale) s = ReduceSum(k, last) t = Add(s, eps) y = Div(k, t)",
            ("Softmax", 5, 0),
            id="masked-and-guarded",
        ),
        pytest.param(
            "d = Div(x, root2) e = Erf(d) a = Add(one, e) b = Mul(a, x) y = Mul(half, b)", ("Gelu", 5, 0), id="gelu"
        ),
        pytest.param(
            "h = Mul(half, x) d = Div(x, root2) e = Erf(d) a = Add(e, one) y = Mul(h, a)",
            ("Gelu", 5, 0),
            id="gelu-half",
        ),
        pytest.param(
            "p = Pow(x, three) c = Mul(p, cubic) a = Add(x, c) b = Mul(a, rootpi) t = Tanh(b) u = Add(t, one) "
            "h = Mul(u, half) y = Mul(x, h)",
            ("Gelu", 8, 0),
            id="gelu-tanh",
        ),
    ],
)
def test_ways_of_writing(body: str, expected: tuple[str, int, int]) -> None:
    assert core(text(body)) == [expected]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(NORM.replace("two", "three") + "y = Div(d, s)", id="a-cube"),
        pytest.param(NORM + "y = Div(x, s)", id="what-is-divided-is-not-centered"),
        pytest.param(
            "q = Pow(x, two) v = ReduceMean(q, last) s = Sqrt(v) f = Tanh(x) y = Div(f, s)", id="another-value"
        ),
        pytest.param("q = Pow(x, two) v = ReduceMean(q, last) s = Sqrt(v) y = Mul(x, s)", id="multiplied"),
        pytest.param("q = Pow(x, two) v = ReduceMean(q, last) s = Sqrt(v) y = Div(s, x)", id="upside-down"),
        pytest.param("e = Exp(x) f = Exp(e) s = ReduceSum(f, last) y = Div(e, s)", id="a-sum-of-others"),
        pytest.param("s = ReduceSum(x, last) y = Div(x, s)", id="a-share"),
        pytest.param("e = Exp(x) s = ReduceSum(e, last) y = Div(s, e)", id="softmax-upside-down"),
        pytest.param("d = Div(x, two) e = Erf(d) a = Add(one, e) b = Mul(a, x) y = Mul(half, b)", id="another-gelu"),
        pytest.param("l = Log(x) y = Sub(x, l)", id="a-logarithm"),
    ],
)
def test_what_is_none(body: str) -> None:
    assert core(text(body)) == []


def test_by_what_it_is_taken_over() -> None:
    picture = NORM.replace("last", "plane") + "y = Div(d, s)"
    shape = {"x": "float[2,3,4,6] x", "y": "float[2,3,4,6] y"}
    assert core(text(picture, **shape)) == [("InstanceNorm", 7, 0)]
    channels = NORM.replace("last", "middle") + "y = Div(d, s)"
    assert core(text(channels, **shape)) == [("LayerNorm", 7, 0)]
    parts = "r = Reshape(x, into) " + NORM.replace("(x", "(r").replace("last", "from2")
    whole = parts + "a = Div(d, s) b = Reshape(a, back) y = Mul(b, scale)"
    model = text(whole)
    for name, dims in (("into", [2, 2, 12]), ("back", [2, 4, 6])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(dims), name))
    # what reshapes the result goes with the scale behind it
    assert core(model) == [("GroupNorm", 7, 2)]


def test_no_node_is_in_two() -> None:
    """A root that two values are divided by belongs to the first."""
    model = text("q = Pow(x, two) v = ReduceMean(q, last) s = Sqrt(v) a = Div(x, s) b = Div(x, s) y = Add(a, b)")
    assert core(model) == [("RMSNorm", 4, 0)]


def test_a_scale_is_no_gain_and_no_residual() -> None:
    rms = "q = Pow(x, two) v = ReduceMean(q, last) s = Sqrt(v) a = Div(x, s) "
    assert core(text(rms + "y = Mul(a, half)")) == [("RMSNorm", 4, 0)]
    assert core(text(rms + "y = Add(a, x)")) == [("RMSNorm", 4, 0)]
    assert core(text(rms + "b = Mul(a, scale) c = Mul(a, bias) y = Add(b, c)")) == [("RMSNorm", 4, 0)]


def test_what_another_domain_calls_so_is_no_part() -> None:
    model = text(NORM + "y = Div(d, s)")
    for node in model.graph.node:
        if node.op_type == "Sqrt":
            node.domain = "my.own"
    model.opset_import.add(domain="my.own", version=1)
    typed = onnx.shape_inference.infer_shapes(model)
    assert groups(typed, {}, layers(typed, {}, PAIR), PAIR) == ()


def test_an_island_that_stays_high_is_no_group() -> None:
    """In a model that is float16 already, a norm in float32 is none of what may be raised."""
    model = text("w = Cast<to = 1>(x) " + NORM.replace("(x", "(w") + "z = Div(d, s) y = Cast<to = 10>(z)")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    more = [helper.make_node("Tanh", [f"t{at}" if at else "y"], [f"t{at + 1}"]) for at in range(12)]
    model.graph.node.extend(more)
    model.graph.output[0].name = "t12"
    assert found(model) == []
