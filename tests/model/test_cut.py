"""Exactly the kept nodes, in order; valid; and, on recorded values, the very values of the original."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from runner.model.graph.cut import CutError, cut, whole
from runner.model.graph.graph_index import Graph
from runner.model.passes.lift_constants import lower_constants
from tests.model.models import SHAPE, dags, model_of, nodes_of, recorded, tensor, types_of

FLOAT = helper.make_tensor_type_proto(TensorProto.FLOAT, SHAPE)


def graph_of(model):
    lower_constants(model.graph, model.ir_version)
    return Graph.of(model)


def test_a_shape_that_the_file_declares_wrongly_does_not_stand_against_a_value_from_outside():
    """A fed value has the shape that was seen; the whole, and a part that no such value comes into, stay."""
    wrong = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 3]) for name in "ab"]
    graph = Graph.of(model_of("a = Neg (x)  b = Neg (a)  y = Neg (b)", ["x"], ["y"], value_info=wrong))
    types = dict.fromkeys("xaby", FLOAT)
    kept = [
        [one.name for one in cut(graph, keep, types=types, constants={}).model.graph.value_info]
        for keep in ([0, 1, 2], [0, 1], [1, 2])
    ]
    assert kept == [["a", "b"], ["a"], []]


def expected_outputs(graph, keep, expose):
    names, unread = set(), set()
    for index in keep:
        node = graph.nodes[index]
        read = {name: set(graph.readers.get(name, ())) for name in node.outputs}
        leaving = {name for name in node.outputs if read[name] - keep or name in graph.outputs}
        if expose == "all":
            names |= set(node.outputs)
        elif expose == "sinks":
            names |= {name for name in leaving if not read[name] & keep}
        else:
            names |= leaving
        if not leaving and not any(read.values()):
            unread.add(node.outputs[0])
    return names or unread


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags(), st.data())
def test_any_set_of_nodes_gives_the_values_of_the_original(dag, data):
    model, feeds = dag
    graph = graph_of(model)
    if not graph.nodes:
        return
    values = recorded(model, feeds)
    keep = data.draw(st.sets(st.sampled_from(range(len(graph.nodes))), min_size=1))
    expose = data.draw(st.sampled_from(["frontier", "sinks", "all"]))
    held = data.draw(st.sets(st.sampled_from(sorted(values))))
    constants = {name: numpy_helper.from_array(values[name], name) for name in held}
    made = cut(graph, keep, types=types_of(values), constants=constants, expose=expose)

    kept = [graph.protos[index].SerializeToString() for index in sorted(keep)]
    assert [node.SerializeToString() for node in made.model.graph.node] == kept
    onnx.checker.check_model(made.model, full_check=True)
    inside = {name for index in keep for name in graph.nodes[index].outputs}
    outside = {name for index in keep for name in graph.nodes[index].inputs} - inside - set(graph.initializers)
    assert set(made.inputs) == outside - held
    assert set(made.constants) == outside & held
    assert list(made.inputs) == [value.name for value in made.model.graph.input]
    assert list(made.outputs) == [value.name for value in made.model.graph.output]
    assert len(set(made.outputs)) == len(made.outputs)
    assert set(made.outputs) == expected_outputs(graph, keep, expose)
    got = ReferenceEvaluator(made.model).run(None, {name: values[name] for name in made.inputs})
    for name, value in zip(made.outputs, got, strict=True):
        np.testing.assert_array_equal(value, values[name])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags())
def test_what_is_called_data_independent_is(dag):
    model, feeds = dag
    graph = graph_of(model)
    before, after = recorded(model, feeds), recorded(model, {name: value * -3 + 1 for name, value in feeds.items()})
    for name in graph.data_independent & set(before):
        np.testing.assert_array_equal(before[name], after[name])


def test_the_whole_model_keeps_its_inputs_and_outputs_in_their_order():
    weight = tensor("w", np.ones(SHAPE, np.float32))
    graph = Graph.of(model_of("x = Neg (a)  y = Neg (x)", ["unused", "a"], ["y", "x", "w", "a"], [weight]))
    made = whole(graph)
    assert (made.inputs, made.outputs) == (("unused", "a"), ("y", "x", "w", "a"))
    assert cut(graph, [0, 1], types={}, constants={}).outputs == ("y", "x")


def test_an_input_of_unknown_type_is_an_error_that_names_it():
    graph = Graph.of(model_of("x = Neg (a)  y = Neg (x)", ["a"], ["y"]))
    with pytest.raises(CutError, match="'x'"):
        cut(graph, [1], types={}, constants={})
    assert cut(graph, [0], types={}, constants={}).outputs == ("x",)
    with pytest.raises(CutError, match="no node"):
        cut(graph, [], types={}, constants={})


def test_only_what_is_needed_comes_along():
    opset, f, g = (helper.make_opsetid(*one) for one in (("", 17), ("f", 1), ("g", 1)))  # g: only a function uses it
    functions = [
        helper.make_function(domain, name, ["x"], ["y"], nodes_of(f"y = {called} (x)"), imports)
        for domain, name, called, imports in (
            *(("h", "Other", "Abs", [opset]), ("f", "Outer", "f.Inner", [opset, f])),
            ("f", "Inner", "g.Gone", [opset, g]),
        )
    ]
    text = "x = f.Outer (a)  y = h.Other (x)  z = custom.Mystery (y, w)"
    weights = [tensor("w", np.ones(2, np.float32)), tensor("v", np.ones(2, np.float32))]
    graph = Graph.of(model_of(text, ["a"], ["z"], weights, domains=["f", "g", "h", "custom"], functions=functions))
    made = cut(graph, [0], types={"x": FLOAT}, constants={}).model
    assert [function.name for function in made.functions] == ["Outer", "Inner"]
    assert [entry.domain for entry in made.opset_import] == ["", "f", "g"]
    assert not made.graph.initializer
    onnx.checker.check_model(made)
    made = cut(graph, [2], types={"y": FLOAT}, constants={}).model
    assert [entry.domain for entry in made.opset_import] == ["", "custom"]
    assert [weight.name for weight in made.graph.initializer] == ["w"]
    assert not made.functions
    onnx.checker.check_model(cut(graph, [2], types={"y": FLOAT, "z": FLOAT}, constants={}).model)


@pytest.mark.parametrize("ir", [3, 4, 8])
def test_initializers_that_are_inputs_too_stay_so(ir):
    info = helper.make_tensor_value_info("w", TensorProto.FLOAT, SHAPE)
    text = "x = Neg (a)  c = Constant <value = float[2,3] {1, 1, 1, 1, 1, 1}> ()  y = Sum (x, w, c)"
    model = model_of(text, ["a", info], ["y"], [tensor("w", np.ones(SHAPE, np.float32))], opset=8, ir=ir)
    graph = graph_of(model)
    assert graph.inputs == ("a",)
    onnx.checker.check_model(whole(graph).model)
    made = cut(graph, [1], types={}, constants={"x": tensor("", np.ones(SHAPE, np.float32))})
    assert (made.inputs, made.constants) == ((), ("x",))
    assert {value.name for value in made.model.graph.input} == ({"w", "c", "x"} if ir < 4 else {"w"})
    onnx.checker.check_model(made.model)


def test_a_sparse_constant_is_carried_along_and_is_no_element():
    values, indices = tensor("", np.ones(1, np.float32)), tensor("", np.array([1]))
    sparse = helper.make_sparse_tensor(values, indices, SHAPE)
    constant = helper.make_node("Constant", [], ["s"], sparse_value=sparse)
    nodes = [*nodes_of("x = Neg (a)"), constant, *nodes_of("y = Add (x, s)")]
    graph = graph_of(model_of(nodes, ["a"], ["y"]))
    assert [node.op_type for node in graph.nodes] == ["Neg", "Add"]
    made = cut(graph, [0, 1], types={"x": FLOAT}, constants={})
    assert [node.op_type for node in made.model.graph.node] == ["Neg", "Constant", "Add"]
    made = cut(graph, [1], types={"x": FLOAT}, constants={})
    assert [node.op_type for node in made.model.graph.node] == ["Constant", "Add"]
    onnx.checker.check_model(made.model)
    assert [node.op_type for node in cut(graph, [0], types={"x": FLOAT}, constants={}).model.graph.node] == ["Neg"]


def test_annotations_stay_where_their_tensors_do():
    model = model_of("x = Neg (a)  y = Mul (x, s)", ["a"], ["y"], [tensor("s", np.ones(1, np.float32))])
    entry = onnx.StringStringEntryProto(key="SCALE_TENSOR", value="s")
    model.graph.quantization_annotation.add(tensor_name="x", quant_parameter_tensor_names=[entry])
    graph = Graph.of(model)
    assert not cut(graph, [0], types={"x": FLOAT}, constants={}).model.graph.quantization_annotation
    assert cut(graph, [1], types={"x": FLOAT}, constants={}).model.graph.quantization_annotation
