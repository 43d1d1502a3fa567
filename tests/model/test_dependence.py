"""What is called the same for all data is; and what an ordinary model reads from shapes is called so."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from runner.model.graph import data_dependence
from runner.model.graph.data_dependence import NOTHING, RANK, SHAPE, VALUE
from runner.model.graph.graph_index import Graph
from tests.model.models import model_of, nodes_of, tensor

FLOAT = TensorProto.FLOAT
A_FEW = 2  # of the cases of each operator


def levels(model: ModelProto) -> dict[str, int]:
    graph = Graph.of(model)
    return data_dependence.levels(graph.model, graph.protos, {*graph.initializers, *graph.carried})


def same(model: ModelProto, feeds: list[dict]) -> int:
    """Compare every tensor over the feeds with what is claimed of it; return how many claims there were."""
    found = levels(model)
    names = [name for one in model.graph.node for name in one.output if name]
    marked = ModelProto()
    marked.CopyFrom(model)
    del marked.graph.output[:]
    marked.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    evaluator = ReferenceEvaluator(marked)
    runs, claims = [], 0
    for feed in feeds:
        with contextlib.suppress(Exception):  # data that an operator does not take
            runs.append(evaluator.run(None, feed))
    for first, second in itertools.combinations(runs, 2):
        for name, one, other in zip(names, first, second, strict=True):
            claims += found[name] > NOTHING
            _compare(name, found[name], one, other)
    return claims


def _compare(name, level, one, other):
    if isinstance(one, list) or one is None:
        if level >= SHAPE:
            assert [np.shape(item) for item in one or []] == [np.shape(item) for item in other or []], name
        return
    one, other = np.asarray(one), np.asarray(other)
    if level >= RANK:
        assert one.ndim == other.ndim, name
    if level >= SHAPE:
        assert one.shape == other.shape, name
    if level == VALUE:
        np.testing.assert_array_equal(one, other, name)


def changed(value, rng):
    """Other data of the same shape and type."""
    if not isinstance(value, np.ndarray) or not value.size:
        return value
    if value.dtype.kind == "f":
        return (rng.permutation(value.ravel()).reshape(value.shape) * rng.integers(0, 2, value.shape)).astype(
            value.dtype
        )
    if value.dtype.kind in "iu":
        return rng.integers(value.min(), int(value.max()) + 2, value.shape).astype(value.dtype)
    return rng.integers(0, 2, value.shape).astype(bool) if value.dtype.kind == "b" else value


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_is_claimed_of_every_operator_of_onnx_holds():
    seen: dict[str, int] = {}
    claims = 0
    for case in collect_testcases(None):
        op = case.model.graph.node[0].op_type
        if not case.data_sets or seen.get(op, 0) >= A_FEW:
            continue
        seen[op] = seen.get(op, 0) + 1
        graph = Graph.of(case.model)
        feed = dict(zip(graph.inputs, case.data_sets[0][0], strict=False))
        rng = np.random.default_rng(0)
        others = [{name: changed(value, rng) for name, value in feed.items()} for _ in range(2)]
        try:
            claims += same(case.model, [feed, *others])
        except (NotImplementedError, RuntimeError, TypeError):  # the evaluator cannot load the model
            continue
    assert len(seen) > 150 and claims > 300


ONE, C = tensor("one", np.array([1])), tensor("c", np.ones(2, np.float32))
YES, THREE = tensor("yes", np.array(True)), tensor("three", np.array(3))
SQUARE = helper.make_tensor_value_info("x", FLOAT, [2, 2])


def test_what_exports_read_from_shapes_stays_constant():
    # heads are split with Shape, Gather, Concat, Reshape; a mask is expanded; windows are made (Swin)
    weights = [ONE, tensor("i0", np.array(0)), tensor("i1", np.array(1)), tensor("w", np.ones((4, 4), np.float32))]
    weights += [tensor("four", np.array([4])), tensor("ax", np.array([0]))]
    text = """
        h = MatMul (x, w)  n = com.microsoft.SkipLayerNormalization (h, x, w)
        s = Shape (n)  rows = Gather (s, i0)  rows1 = Unsqueeze (rows, ax)  to = Concat <axis = 0> (rows1, four, one)
        heads = Reshape (n, to)  len = Shape (to)  ones = ConstantOfShape (len)  eq = Equal (to, ones)
        to2 = Where (eq, ones, to)  wide = Expand (heads, to2)  s2 = Shape (wide)  first = Slice (s2, ax, one, ax, one)
        positions = Range (i0, rows, i1)  resized = Resize <mode = "nearest"> (wide, , , s2)  count = Size (resized)
    """
    fixed = Graph.of(model_of(text, ["x"], ["count"], weights, domains=["com.microsoft"])).data_independent
    assert fixed >= {"s", "rows", "rows1", "to", "len", "ones", "eq", "to2", "s2", "first", "positions", "count"}
    assert not fixed & {"h", "n", "heads", "wide", "resized"}


def test_bodies_are_looked_at_from_inside():
    branches = """<then_branch = t () => (inner_s) { inner_s = Shape (x) },
        else_branch = e () => (inner_t) { inner_n = Neg (c)  inner_t = Shape (inner_n) }>"""
    sieve = "b () => (inner_f) { inner_f = NonZero (x) }"
    found = levels(model_of(f"""
        s = Shape (x)  p = ReduceProd <keepdims = 0> (s)  known = Greater (p, three)
        top = ReduceMax <keepdims = 0> (x)  unknown = Cast <to = 9> (top)  trips = Cast <to = 7> (top)
        taken = If (known) {branches}  either = If (unknown) {branches}
        sieved = If (known) <then_branch = {sieve}, else_branch = {sieve}>
        grown, grown_each = Loop (three, yes, x) <body = b (i, k, v) => (k, v2, each) {{
            v2 = Concat <axis = 0> (v, v)  each = Neg (x) }}>
        often, often_each = Loop (trips, yes, x) <body = b (i, k, v) => (k, v2, each) {{
            v2 = Neg (v)  each = Neg (x) }}>
        until, until_each = Loop (three, yes, x) <body = b (i, k, v) => (k2, v2, v2) {{
            v2 = Add (v, x)  m = ReduceMax <keepdims = 0> (v2)  k2 = Cast <to = 9> (m) }}>
        last, stacked = Scan <num_scan_inputs = 1, body = b (state, row) => (state2, rs) {{
            state2 = Add (state, row)  rs = Shape (row) }}> (c, x)
    """, [SQUARE], ["top"], [YES, THREE, C]))  # fmt: skip
    expected = {
        "taken": VALUE, "either": NOTHING, "sieved": RANK, "grown": SHAPE, "grown_each": SHAPE, "often": NOTHING,
        "often_each": RANK, "until": NOTHING, "until_each": RANK, "last": SHAPE, "stacked": VALUE,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_a_squeeze_without_axes_takes_what_happens_to_be_one():
    weights = [tensor("axes", np.array([0])), tensor("c", np.ones((1, 2), np.float32))]
    text = "places = NonZero (x)  any = Squeeze (places)  known = Squeeze (places, axes)  fixed = Squeeze (c)"
    found = levels(model_of(text, [SQUARE], ["any"], weights))
    assert [found[name] for name in ("places", "any", "known", "fixed")] == [RANK, NOTHING, RANK, VALUE]


OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def function(name: str, takes: str, gives: str, text: str) -> onnx.FunctionProto:
    return helper.make_function("f", name, takes.split(), gives.split(), nodes_of(text), OPSETS)


def test_functions_are_looked_at_from_inside():
    functions = [
        function("Sieve", "a", "b", "b = NonZero (a)"),
        function("Twice", "a o", "b s", "b = Add (a, a)  s = Shape (b)"),
        function("Through", "a", "s", "b = f.Sieve (a)  s = Shape (b)"),
        function("Endless", "a", "b", "b = f.Endless (a)"),
    ]
    text = """sieved = f.Sieve (x)  double, its_shape = f.Twice (x)  double2, its_shape2 = f.Twice (sieved)
        through = f.Through (x)  folded = f.Sieve (c)  endless = f.Endless (x)"""
    found = levels(model_of(text, ["x"], ["double"], [C], domains=["f"], functions=functions))
    expected = {
        "sieved": RANK, "double": SHAPE, "its_shape": VALUE, "double2": RANK, "its_shape2": SHAPE, "through": SHAPE,
        "folded": VALUE, "endless": NOTHING,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_nested_calls_are_not_walked_again_and_again():
    functions = [function("F0", "a", "b", "b = Neg (a)")]
    functions += [function(f"F{at}", "a", "b", f"m = f.F{at - 1} (a)  b = f.F{at - 1} (m)") for at in range(1, 30)]
    assert levels(model_of("y = f.F29 (x)", ["x"], ["y"], domains=["f"], functions=functions))["y"] == SHAPE
    loop, made = "v2 = Neg (v)", "v2"
    for at in range(20):
        loop, made = f"w{at} = Loop (three, yes, v) <body = b (i, k, v) => (k, {made}) {{ {loop} }}>", f"w{at}"
    model = model_of(f"y = Loop (three, yes, x) <body = b (i, k, v) => (k, {made}) {{ {loop} }}>", ["x"], ["y"],
                     [THREE, YES])  # fmt: skip
    assert levels(model)["y"] == SHAPE


def test_of_an_unknown_operator_the_file_is_believed():
    dims = {"sized": [2, 5], "named": ["batch", 5], "open": ["found", 5], "late": [2, 5]}
    infos = [helper.make_tensor_value_info(name, FLOAT, one) for name, one in dims.items()]
    text = """sized = mine.Plugin (x)  named = mine.Plugin (x)  open = mine.Plugin (x)  silent = mine.Plugin (x)
        sieved = NonZero (x)  late = mine.Plugin (sieved)  folded = mine.Plugin (c)  missing = Missing (x)"""
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", 3])
    found = levels(model_of(text, [x], ["silent"], [C], domains=["mine"], value_info=infos))
    expected = {"sized": SHAPE, "named": SHAPE, "open": RANK, "late": RANK, "folded": VALUE, "missing": NOTHING}
    assert {name: found[name] for name in expected} == expected


def test_sequences_and_optionals_of_the_caller_may_hold_any_number():
    inside = helper.make_tensor_type_proto(FLOAT, [2])
    inputs = [
        helper.make_value_info("seq", helper.make_sequence_type_proto(inside)),
        helper.make_value_info("opt", helper.make_optional_type_proto(inside)),
    ]
    text = """long = SequenceLength (seq)  has = OptionalHasElement (opt)  mine = SequenceConstruct (x, x)
        two = SequenceLength (mine)  item = SequenceAt (mine, at)"""
    found = levels(model_of(text, [*inputs, "x"], ["long"], [tensor("at", np.array(0))], opset=18))
    assert [found[name] for name in ("long", "has", "two", "item")] == [SHAPE, SHAPE, VALUE, SHAPE]


def test_no_input_decides_that_the_operator_does_not_have() -> None:
    for name, places in data_dependence._DECIDED.items():
        versions = [one for one in onnx.defs.get_all_schemas_with_history() if one.name == name and one.domain == ""]
        most = max(len(one.inputs) for one in versions)
        assert max(places) < most, name
