"""A body in its owner's place: the same values, names that tell where a node came from."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from runner.model.graph.graph_index import Graph
from runner.model.nested.hoist import COUNT, HoistError, bodies, hoist, limited_loop
from tests.model.nested import FEEDS, PLAIN_SCAN, body_of, close, graph_of, model_of, run_ort, run_reference


@pytest.fixture(autouse=True)
def _needs_onnxruntime():
    pytest.importorskip("onnxruntime")


def hoisted_graph(model, path, **given):
    made = hoist(graph_of(model), body_of(graph_of(model), path), **given)
    onnx.checker.check_model(made.model, full_check=True)
    return made, Graph.of(made.model)


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


def test_attributes_with_a_default_missing_arguments_and_arguments_handed_through():
    model = model_of("""g (float[2,3] x) => (float[2,3] y, float[2,3] z) { [call] y, z = f.F (x, , x) }
        <domain: "f", opset_import: ["" : 16, "g" : 3]> F <alpha, slope: float = 0.25> (p, low, q) => (r, q) {
            t = LeakyRelu <alpha: float = @slope> (p)  u = Elu <alpha: float = @alpha> (t)  r = Clip (u, low) }
    """, more=', "f" : 1')  # fmt: skip
    made, found = hoisted_graph(model, "call.F")
    assert found.protos[0].attribute[0].f == 0.25
    assert not found.protos[1].attribute
    assert found.protos[2].input[:] == ["u", ""]
    assert found.protos[3].op_type == "Identity"
    assert {entry.domain for entry in made.model.opset_import} == {"", "f", "g"}
    model.functions[0].opset_import[0].version = 12
    with pytest.raises(HoistError, match=r"function F imports opset 12 of ai.onnx, the model 17, and LeakyRelu"):
        hoist(Graph.of(model), body_of(Graph.of(model), "call.F"))


def test_a_scan_with_a_batch_axis_is_refused():
    model = model_of(PLAIN_SCAN)
    model.opset_import[0].version = 8
    with pytest.raises(HoistError, match="batch axis"):
        hoist(Graph.of(model), bodies(Graph.of(model))[0])


def test_a_loop_that_carries_nothing_keeps_its_condition():
    model = model_of("""main (bool c, float[2] x) => (float[N,2] all) {
        [loop] all = Loop (limit, c) <
            body = step (int64 i, bool go) => (bool on, float[2] r) { on = Identity (go) r = Exp (x) }
        >
    }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(3), "limit"))
    graph = graph_of(model)
    (body,) = bodies(graph)
    limited = limited_loop(graph, body, 5)
    known = {value.name for value in limited.graph.input}
    limited.graph.input.extend(value for value in model.graph.input if value.name not in known)
    for condition, count in ((True, 5), (False, 0)):
        feeds = {"c": np.array(condition), "x": np.ones(2, np.float32)}
        assert int(np.ravel(run_reference(limited, feeds)[COUNT])[0]) + 1 == count
