"""The index: names, edges, captures, what is random."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from runner.model.graph import data_dependence
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


def test_functions_are_looked_through_once_for_what_they_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    inner = [helper.make_node("RandomNormalLike", ["a"], ["b"])]
    outer = [helper.make_node("Noise", ["a"], ["b"], domain="f")]
    plain = [helper.make_node("Exp", ["a"], ["b"])] * 100
    functions = [
        helper.make_function("f", name, ["a"], ["b"], nodes, ops)
        for name, nodes in (("Noise", inner), ("Outer", outer), ("Plain", plain))
    ]
    nodes = [helper.make_node("Plain", ["x"], [f"p{at}"], domain="f") for at in range(100)]
    nodes.append(helper.make_node("Outer", ["x"], ["y"], name="outer", domain="f"))
    model = model_of(nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], ["y"], functions=functions)
    asked = list[str]()
    draws = data_dependence.draws
    monkeypatch.setattr(data_dependence, "draws", lambda node: asked.append(node.op_type) or draws(node))
    assert Graph.of(model).drawing == ("outer",)
    assert asked.count("Exp") == 100
