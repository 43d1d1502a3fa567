"""A body in its owner's place: the same values, names that tell where a node came from."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runner.model.graph.graph_index import Graph
from runner.model.nested.bodies import HoistError, Kind, bodies
from runner.model.nested.hoist import COUNT, hoist, limited_loop
from tests.model.nested import (
    CALL,
    DEEP,
    FEEDS,
    IF,
    LOOP,
    LOOP_FEEDS,
    PLAIN_SCAN,
    SCAN,
    SCAN_FEEDS,
    body_of,
    close,
    everything,
    graph_of,
    model_of,
    run_ort,
    run_reference,
)

RUNS = [pytest.param(run_reference, id="reference"), pytest.param(run_ort, id="onnxruntime")]


@pytest.fixture(autouse=True)
def _needs_onnxruntime():
    pytest.importorskip("onnxruntime")


def names_of(graph, elements):
    return [graph.nodes[index].name for index in elements]


def hoisted_graph(model, path, **given):
    made = hoist(graph_of(model), body_of(graph_of(model), path), **given)
    onnx.checker.check_model(made.model, full_check=True)
    return made, Graph.of(made.model)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("path", "chosen"), [("choice.then_branch", True), ("choice.else_branch", False)])
def test_a_branch_gives_what_the_if_gave(run, path, chosen):
    model = model_of(IF)
    made, graph = hoisted_graph(model, path)
    feeds = {**FEEDS, "c": np.array(chosen)}
    before, after = everything(model, feeds, run), everything(made.model, feeds, run)
    for name in set(before) - {"x", "c"}:
        close(after[name], before[name])
    wanted = ["first", "r", "s"] if chosen else ["t", "a2", "q", "r"]
    assert names_of(graph, made.inside) == [f"{path}/{name}" for name in wanted]
    assert not made.needs
    assert "If" not in {node.op_type for node in graph.nodes}


@pytest.mark.parametrize("run", RUNS)
def test_three_ifs_one_below_the_other(run):
    model = model_of(DEEP)
    expected = run(model, FEEDS)["y"]
    paths = ["If_0.then_branch", "If_0.then_branch/If_1.else_branch"]
    paths.append(f"{paths[-1]}/If_2.then_branch")
    for path in paths:
        made, graph = hoisted_graph(model, path)
        model = made.model
        close(run(model, FEEDS)["y"], expected)
    assert f"{paths[-1]}/Div" in names_of(graph, made.inside)
    assert not bodies(graph)


def test_shadowed_names_stay_different_tensors():
    # no runtime takes such a model as it is: hoisting must not mix the tensors up all the same
    text = """
    main (float[2,3] x, bool c, bool d) => (float[2,3] y) {
        a = Neg (x)
        [top] y = If (c) <
            then_branch = then () => (float[2,3] p) {
                a = Sin (x)
                [low] p = If (d) <
                    then_branch = t () => (float[2,3] q) { a = Exp (x) q = Abs (a) },
                    else_branch = e () => (float[2,3] q) { y = Cos (a) q = Mul (y, x) }
                >
            },
            else_branch = other () => (float[2,3] p) { p = Identity (a) }
        >
    }
    """
    model = model_of(text)
    made = hoist(graph_of(model), body_of(graph_of(model), "top.then_branch"))
    again = Graph.of(made.model)
    inner = hoist(again, body_of(again, "top.then_branch/low.else_branch"))
    onnx.checker.check_model(inner.model)
    close(run_ort(inner.model, FEEDS)["y"], np.cos(np.sin(FEEDS["x"])) * FEEDS["x"])


OUTER = """
main (float[2,3] x, bool c) => (float[2,3] y, float[2,3] w, float[2,3] z, float[2,3] v) {
    a = Neg (x)
    [choice] y, w, twice, z = If (c) <
        then_branch = then () => (float[2,3] a, float[1] b, float[2,3] t, float[2,3] t) <float[1] b = {0.5}> {
            t = Exp (a)
        },
        else_branch = other () => (float[2,3] q, float[1] b, float[2,3] q, float[2,3] q) <float[1] b = {0.5}> {
            q = Sin (x)
        }
    >
    u = Add (y, w)
    v = Mul (u, twice)
}
"""


def test_outputs_that_are_no_work_of_the_branch_get_no_identity_but_for_the_caller():
    model = model_of(OUTER)
    made = hoist(graph_of(model), body_of(graph_of(model), "choice.then_branch"))
    graph = Graph.of(made.model)
    assert [node.op_type for node in graph.nodes] == ["Neg", "Exp", "Identity", "Identity", "Add", "Mul"]
    assert graph.protos[4].input[:] == ["a", "w"]
    assert "w" in graph.initializers
    before, after = run_reference(model, FEEDS), run_ort(made.model, FEEDS)
    for name, value in before.items():
        close(after[name], value)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("iteration", [0, 2])
def test_one_iteration_of_a_loop(run, iteration):
    model = model_of(LOOP)
    whole = everything(model, LOOP_FEEDS, run_ort)
    made, graph = hoisted_graph(model, "loop.body", iteration=iteration)
    carried = run_ort(model, {**LOOP_FEEDS, "m": np.array(iteration)})["last"]
    feeds = {**whole, "v": carried}
    assert [(need.role, need.source) for need in made.needs] == [("carried", "half")] * (iteration > 0) + [
        ("result", "last")
    ]
    found = everything(made.model, feeds, run)
    close(found["scanned"], whole["all"][iteration])
    close(found["twice"], whole["gone"][iteration])
    close(found["w"], run_ort(model, {**LOOP_FEEDS, "m": np.array(iteration + 1)})["last"])
    close(found["z"], whole["z"])
    assert {"w", "scanned", "twice"} <= set(graph.outputs)
    assert "all" not in {*graph.outputs, *graph.inputs}
    assert "loop.body/grow" in names_of(graph, made.inside)


@pytest.mark.parametrize("iteration", [0, 1, 3])
def test_one_step_of_a_scan_takes_its_slices_along_axes_and_from_the_end(iteration):
    model = model_of(SCAN)
    whole = everything(model, SCAN_FEEDS, run_ort)
    made, _ = hoisted_graph(model, "scan.body", iteration=iteration)
    slices = {need.source: need for need in made.needs if need.role == "slice"}
    assert (slices["xs"].axis, slices["xs"].reverse) == (1, True)
    assert (slices["ys"].axis, slices["ys"].reverse) == (0, False)
    state = whole["k"]
    for at in range(iteration):
        state = np.tanh(state + SCAN_FEEDS["ys"][at])
    feeds = {**whole, "p": state, "a": SCAN_FEEDS["xs"][:, 3 - iteration], "b": SCAN_FEEDS["ys"][iteration]}
    for run in (run_reference, run_ort):
        close(everything(made.model, feeds, run)["o"], whole["out"][iteration])


@pytest.mark.parametrize("run", RUNS)
def test_a_call_becomes_the_functions_nodes_with_the_calls_attributes(run):
    model = model_of(CALL, more=', "f" : 1')
    before = everything(model, FEEDS, run)
    made, graph = hoisted_graph(model, "call.Outer")
    again, lower = hoisted_graph(made.model, "call.Outer/t.Inner")
    for hoisted in (made, again):
        after = everything(hoisted.model, FEEDS, run)
        for name in before:
            close(after[name], before[name])
    assert bodies(graph)[0].kind is Kind.FUNCTION
    assert names_of(lower, again.inside) == ["call.Outer/t.Inner/a", "call.Outer/t.Inner/r"]


def test_attributes_with_a_default_missing_arguments_and_arguments_handed_through():
    body = [
        helper.make_node("LeakyRelu", ["p"], ["t"]),
        helper.make_node("Elu", ["t"], ["u"]),
        helper.make_node("Clip", ["u", "low"], ["r"]),
    ]
    for node, name in ((body[0], "slope"), (body[1], "alpha")):
        node.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name=name)
    function = helper.make_function(
        "f", "F", ["p", "low", "q"], ["r", "q"], body, [helper.make_opsetid("", 16), helper.make_opsetid("g", 3)],
        ["alpha"], [helper.make_attribute("slope", 0.25)],
    )  # fmt: skip
    nodes = [helper.make_node("F", ["x", "", "x"], ["y", "z"], domain="f", name="call")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xyz"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=8)
    made, found = hoisted_graph(model, "call.F")
    assert found.protos[0].attribute[0].f == 0.25
    assert not found.protos[1].attribute
    assert found.protos[2].input[:] == ["u", ""]
    assert found.protos[3].op_type == "Identity"
    assert {entry.domain for entry in made.model.opset_import} == {"", "f", "g"}
    function.opset_import[0].version = 12
    model = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=8)
    with pytest.raises(HoistError, match=r"function F imports opset 12 of ai.onnx, the model 17, and LeakyRelu"):
        hoist(Graph.of(model), body_of(Graph.of(model), "call.F"))


def test_a_scan_with_a_batch_axis_is_refused():
    model = model_of(PLAIN_SCAN)
    model.opset_import[0].version = 8
    with pytest.raises(HoistError, match="batch axis"):
        hoist(Graph.of(model), bodies(Graph.of(model))[0])


def test_bodies_are_counted_without_constants():
    found = bodies(graph_of(model_of(IF)))
    assert [(body.path, body.kind, body.nodes) for body in found] == [
        ("choice.then_branch", Kind.IF, 3),
        ("choice.else_branch", Kind.IF, 4),
    ]
    assert [body.nodes for body in bodies(graph_of(model_of(LOOP)))] == [7]


@pytest.mark.parametrize("run", RUNS)
def test_a_limited_loop_says_how_far_it_got_and_what_it_carried(run):
    graph = graph_of(model_of(LOOP))
    feeds = everything(model_of(LOOP), LOOP_FEEDS, run_ort)
    made = limited_loop(graph, bodies(graph)[0], 3)
    made.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feeds[name].dtype), feeds[name].shape)
        for name in ("half", "x")
    )
    found = run(made, feeds)
    assert found[COUNT] == 2
    close(found["last"], run_ort(model_of(LOOP), {**LOOP_FEEDS, "m": np.array(3)})["last"])
