"""The index: names, edges, captures, what is random."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from runner.model.graph import data_dependence
from runner.model.graph.graph_index import Graph
from tests.model.models import model_of, nodes_of


def test_names_are_unique_and_fall_back_to_the_first_output():
    nodes = nodes_of(
        "[n] x = Neg (a)  [n] y = Neg (a)  [y] z = Neg (a)  first, second = Split (a)  [same] same = Neg (a)"
    )
    nodes[3].output[0] = ""
    nodes.append(helper.make_node("Print", ["a"], [], domain="custom"))
    graph = Graph.of(model_of(nodes, ["a"], ["x"], domains=["custom"]))
    assert [node.name for node in graph.nodes] == ["x", "y", "z", "second", "same", "Print#5"]


def test_functions_are_looked_through_once_for_what_they_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    texts = {"Noise": "b = RandomNormalLike (a)", "Outer": "b = f.Noise (a)", "Plain": "b = Exp (a) " * 100}
    functions = [helper.make_function("f", name, ["a"], ["b"], nodes_of(one), ops) for name, one in texts.items()]
    text = "".join(f"p{at} = f.Plain (x) " for at in range(100)) + "[outer] y = f.Outer (x)"
    model = model_of(text, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], ["y"], functions=functions)
    asked = list[str]()
    draws = data_dependence.draws
    monkeypatch.setattr(data_dependence, "draws", lambda node: asked.append(node.op_type) or draws(node))
    assert Graph.of(model).drawing == ("outer",)
    assert asked.count("Exp") == 100
