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
from tests.model.models import model_of, tensor

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
A_FEW = 2  # of the cases of each operator


def levels(model: ModelProto) -> dict[str, int]:
    graph = Graph.of(model)
    return data_dependence.levels(graph.model, graph.protos, {*graph.initializers, *graph.carried})


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def body(nodes, inputs, outputs, initializers=()):
    infos = [[helper.make_empty_tensor_value_info(name) for name in names.split()] for names in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *infos, list(initializers))


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


def test_what_exports_read_from_shapes_stays_constant():
    # heads are split with Shape, Gather, Concat, Reshape; a mask is expanded; windows are made (Swin)
    weights = [tensor(f"i{at}", np.array(at)) for at in range(2)] + [tensor("one", np.array([1]))]
    weights += [tensor("w", np.ones((4, 4), np.float32)), tensor("four", np.array([4])), tensor("ax", np.array([0]))]
    nodes = [
        node("MatMul", "x w", "h"),
        node("SkipLayerNormalization", "h x w", "n", domain="com.microsoft"),
        node("Shape", "n", "s"),
        node("Gather", "s i0", "rows"),
        node("Unsqueeze", "rows ax", "rows1"),
        node("Concat", "rows1 four one", "to", axis=0),
        node("Reshape", "n to", "heads"),
        node("Shape", "to", "len"),
        node("ConstantOfShape", "len", "ones"),
        node("Equal", "to ones", "eq"),
        node("Where", "eq ones to", "to2"),
        node("Expand", "heads to2", "wide"),
        node("Shape", "wide", "s2"),
        node("Slice", "s2 ax one ax one", "first"),
        node("Range", "i0 rows i1", "positions"),
        node("Resize", "wide e e2 s2", "resized", mode="nearest"),
        node("Size", "resized", "count"),
    ]
    nodes[15].input[:] = ["wide", "", "", "s2"]
    model = model_of(nodes, ["x"], ["count"], weights, domains=["com.microsoft"])
    fixed = Graph.of(model).data_independent
    constant = "s rows rows1 to len ones eq to2 s2 first positions count"
    assert fixed >= set(constant.split())
    assert not fixed & {"h", "n", "heads", "wide", "resized"}


def test_bodies_are_looked_at_from_inside():
    weights = [tensor("yes", np.array(True)), tensor("three", np.array(3)), tensor("c", np.ones(2, np.float32))]
    shape_of_x = body([node("Shape", "x", "inner_s")], "", "inner_s")
    other = body([node("Neg", "c", "inner_n"), node("Shape", "inner_n", "inner_t")], "", "inner_t")
    filtered = body([node("NonZero", "x", "inner_f")], "", "inner_f")
    grows = body([node("Concat", "v v", "v2", axis=0), node("Neg", "x", "each")], "i k v", "k v2 each")
    data_trips = body([node("Neg", "v", "v2"), node("Neg", "x", "each")], "i k v", "k v2 each")
    stops = body(
        [node("Add", "v x", "v2"), node("ReduceMax", "v2", "m", keepdims=0), node("Cast", "m", "k2", to=9)],
        "i k v",
        "k2 v2 v2",
    )
    scan = body([node("Add", "state row", "state2"), node("Shape", "row", "rs")], "state row", "state2 rs")
    nodes = [
        node("Shape", "x", "s"),
        node("ReduceProd", "s", "p", keepdims=0),
        node("Greater", "p three", "known"),
        node("ReduceMax", "x", "top", keepdims=0),
        node("Cast", "top", "unknown", to=9),
        node("Cast", "top", "trips", to=INT),
        node("If", "known", "taken", then_branch=shape_of_x, else_branch=other),
        node("If", "unknown", "either", then_branch=shape_of_x, else_branch=other),
        node("If", "known", "sieved", then_branch=filtered, else_branch=filtered),
        node("Loop", "three yes x", "grown grown_each", body=grows),
        node("Loop", "trips yes x", "often often_each", body=data_trips),
        node("Loop", "three yes x", "until until_each", body=stops),
        node("Scan", "c x", "last stacked", body=scan, num_scan_inputs=1),
    ]
    found = levels(model_of(nodes, [helper.make_tensor_value_info("x", FLOAT, [2, 2])], ["top"], weights))
    expected = {
        "taken": VALUE, "either": NOTHING, "sieved": RANK, "grown": SHAPE, "grown_each": SHAPE, "often": NOTHING,
        "often_each": RANK, "until": NOTHING, "until_each": RANK, "last": SHAPE, "stacked": VALUE,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_a_squeeze_without_axes_takes_what_happens_to_be_one():
    weights = [tensor("axes", np.array([0])), tensor("c", np.ones((1, 2), np.float32))]
    nodes = [
        node("NonZero", "x", "places"),
        node("Squeeze", "places", "any"),
        node("Squeeze", "places axes", "known"),
        node("Squeeze", "c", "fixed"),
    ]
    found = levels(model_of(nodes, [helper.make_tensor_value_info("x", FLOAT, [2, 2])], ["any"], weights))
    assert [found[name] for name in ("places", "any", "known", "fixed")] == [RANK, NOTHING, RANK, VALUE]


def test_functions_are_looked_at_from_inside():
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    make = helper.make_function
    functions = [
        make("f", "Sieve", ["a"], ["b"], [node("NonZero", "a", "b")], opsets),
        make("f", "Twice", ["a", "o"], ["b", "s"], [
            node("Add", "a a", "b"), node("Shape", "b", "s")], opsets),
        make("f", "Through", ["a"], ["s"], [
            node("Sieve", "a", "b", domain="f"), node("Shape", "b", "s")], opsets),
        make("f", "Endless", ["a"], ["b"], [node("Endless", "a", "b", domain="f")], opsets),
    ]  # fmt: skip
    nodes = [
        node("Sieve", "x", "sieved", domain="f"),
        node("Twice", "x", "double its_shape", domain="f"),
        node("Twice", "sieved", "double2 its_shape2", domain="f"),
        node("Through", "x", "through", domain="f"),
        node("Sieve", "c", "folded", domain="f"),
        node("Endless", "x", "endless", domain="f"),
    ]
    model = model_of(
        nodes, ["x"], ["double"], [tensor("c", np.ones(2, np.float32))], domains=["f"], functions=functions
    )
    found = levels(model)
    expected = {
        "sieved": RANK, "double": SHAPE, "its_shape": VALUE, "double2": RANK, "its_shape2": SHAPE, "through": SHAPE,
        "folded": VALUE, "endless": NOTHING,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_nested_calls_are_not_walked_again_and_again():
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "F0", ["a"], ["b"], [node("Neg", "a", "b")], opsets)]
    for at in range(1, 30):
        inner = [node(f"F{at - 1}", "a", "m", domain="f"), node(f"F{at - 1}", "m", "b", domain="f")]
        functions.append(helper.make_function("f", f"F{at}", ["a"], ["b"], inner, opsets))
    model = model_of([node("F29", "x", "y", domain="f")], ["x"], ["y"], domains=["f"], functions=functions)
    assert levels(model)["y"] == SHAPE
    loop = body([node("Neg", "v", "v2")], "i k v", "k v2")
    for at in range(20):
        loop = body([node("Loop", "three yes v", f"w{at}", body=loop)], "i k v", f"k w{at}")
    model = model_of([node("Loop", "three yes x", "y", body=loop)], ["x"], ["y"],
                     [tensor("three", np.array(3)), tensor("yes", np.array(True))])  # fmt: skip
    assert levels(model)["y"] == SHAPE


def test_of_an_unknown_operator_the_file_is_believed():
    infos = [
        helper.make_tensor_value_info("sized", FLOAT, [2, 5]),
        helper.make_tensor_value_info("named", FLOAT, ["batch", 5]),
        helper.make_tensor_value_info("open", FLOAT, ["found", 5]),
        helper.make_tensor_value_info("late", FLOAT, [2, 5]),
    ]
    names = ("sized", "named", "open", "silent")
    nodes = [helper.make_node("Plugin", ["x"], [name], domain="mine") for name in names]
    nodes += [node("NonZero", "x", "sieved"), helper.make_node("Plugin", ["sieved"], ["late"], domain="mine")]
    nodes += [helper.make_node("Plugin", ["c"], ["folded"], domain="mine"), node("Missing", "x", "missing")]
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", 3])
    weights = [tensor("c", np.ones(2, np.float32))]
    found = levels(model_of(nodes, [x], ["silent"], weights, domains=["mine"], value_info=infos))
    expected = {"sized": SHAPE, "named": SHAPE, "open": RANK, "late": RANK, "folded": VALUE, "missing": NOTHING}
    assert {name: found[name] for name in expected} == expected


def test_sequences_and_optionals_of_the_caller_may_hold_any_number():
    inside = helper.make_tensor_type_proto(FLOAT, [2])
    inputs = [
        helper.make_value_info("seq", helper.make_sequence_type_proto(inside)),
        helper.make_value_info("opt", helper.make_optional_type_proto(inside)),
    ]
    nodes = [
        node("SequenceLength", "seq", "long"),
        node("OptionalHasElement", "opt", "has"),
        node("SequenceConstruct", "x x", "mine"),
        node("SequenceLength", "mine", "two"),
        node("SequenceAt", "mine at", "item"),
    ]
    found = levels(model_of(nodes, [*inputs, "x"], ["long"], [tensor("at", np.array(0))], opset=18))
    assert [found[name] for name in ("long", "has", "two", "item")] == [SHAPE, SHAPE, VALUE, SHAPE]


def test_no_input_decides_that_the_operator_does_not_have() -> None:
    for name, places in data_dependence._DECIDED.items():
        versions = [one for one in onnx.defs.get_all_schemas_with_history() if one.name == name and one.domain == ""]
        most = max(len(one.inputs) for one in versions)
        assert max(places) < most, name
