"""The index: names, edges, captures, what is random."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from runner.model.graph.graph_index import Graph
from tests.model.models import model_of, tensor


def test_names_are_unique_and_fall_back_to_the_first_output():
    nodes = [
        helper.make_node("Neg", ["a"], ["x"], name="n"),
        helper.make_node("Neg", ["a"], ["y"], name="n"),
        helper.make_node("Neg", ["a"], ["z"], name="y"),
        helper.make_node("Split", ["a"], ["", "second"]),
        helper.make_node("Neg", ["a"], ["same"], name="same"),
        helper.make_node("Print", ["a"], [], domain="custom"),
    ]
    graph = Graph.of(model_of(nodes, ["a"], ["x"], domains=["custom"]))
    assert [node.name for node in graph.nodes] == ["x", "y", "z", "second", "same", "Print#5"]


def test_declared_types_are_found_and_omitted_inputs_are_not():
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, "n"])
    nodes = [helper.make_node("Clip", ["a", "", "m"], ["x"]), helper.make_node("Neg", ["x"], ["y"])]
    graph = Graph.of(model_of(nodes, ["a"], ["y"], [tensor("m", np.float32(1))], value_info=[info]))
    assert graph.nodes[0].inputs == ("a", "m")
    assert graph.value_types["x"] == info.type
    assert set(graph.value_types) == {"a", "x", "y"}
    assert (graph.inputs, graph.outputs, dict(graph.producers)) == (("a",), ("y",), {"x": 0, "y": 1})
