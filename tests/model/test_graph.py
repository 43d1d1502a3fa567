"""The index: names, edges, captures, what is random."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from runner.model.graph.graph_index import Graph
from tests.model.models import SHAPE, model_of, tensor


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


def test_what_depends_on_data_and_what_does_not():
    draws = helper.make_function(
        "f", "Draws", ["x"], ["y"], [helper.make_node("RandomNormalLike", ["x"], ["y"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("Shape", ["a"], ["shape"]),
        helper.make_node("Size", ["a"], ["size"]),
        helper.make_node("Gather", ["shape", "zero"], ["dim"]),
        helper.make_node("RandomNormal", [], ["noise"], shape=[2]),
        helper.make_node("Draws", ["w"], ["drawn"], domain="f"),
        helper.make_node("Shape", ["noise"], ["noise_shape"]),
        helper.make_node("Add", ["a", "w"], ["y"]),
        helper.make_node("Neg", ["w"], ["folded"]),
    ]
    weights = [tensor("w", np.ones(SHAPE, np.float32)), tensor("zero", np.array(0))]
    graph = Graph.of(model_of(nodes, ["a"], ["y"], weights, domains=["f"], functions=[draws]))
    assert graph.data_independent == {"w", "zero", "shape", "size", "dim", "noise_shape", "folded"}


def test_declared_types_are_found_and_omitted_inputs_are_not():
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, "n"])
    nodes = [helper.make_node("Clip", ["a", "", "m"], ["x"]), helper.make_node("Neg", ["x"], ["y"])]
    graph = Graph.of(model_of(nodes, ["a"], ["y"], [tensor("m", np.float32(1))], value_info=[info]))
    assert graph.nodes[0].inputs == ("a", "m")
    assert graph.value_types["x"] == info.type
    assert set(graph.value_types) == {"a", "x", "y"}
    assert (graph.inputs, graph.outputs, dict(graph.producers)) == (("a",), ("y",), {"x": 0, "y": 1})
