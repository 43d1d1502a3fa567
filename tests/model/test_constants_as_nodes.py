"""Constant nodes put back as the nodes that they were: each place is that of its node in the graph's model."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from runner.model.graph.cut import cut, splice
from runner.model.nested.cut_body import Inner, Knowledge, cut_inside
from runner.model.nested.hoist import bodies
from runner.model.passes.lift_constants import as_nodes
from tests.model.models import dags, ingested, model_of, recorded, types_of


def constants(model) -> list[str]:
    return [node.output[0] for node in model.graph.node if node.op_type == "Constant"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dags(most=12), st.data())
def test_a_graph_with_its_constant_nodes_is_one_model(dag, data):
    """What is cut, spliced and left out of it is what it is without them, but that Constants are nodes."""
    model, feeds = dag
    with tempfile.TemporaryDirectory() as folder:
        plain, _, _ = ingested(model, Path(folder))
        graph = as_nodes(plain, Path(folder) / "model.onnx")
    if graph is None:
        assert not constants(model)
        return
    assert graph.nodes == plain.nodes
    assert constants(graph.model) == constants(model)
    assert [graph.model.graph.node[at] for at in graph.positions] == list(graph.protos) == list(plain.protos)
    assert all(graph.model.graph.node[at] == node for at, node in graph.carried.values())
    assert not {tensor.name for tensor in graph.model.graph.initializer} & set(constants(model))
    assert graph.data_independent == plain.data_independent
    if not graph.nodes:
        return
    values = recorded(model, feeds)
    some = data.draw(st.sets(st.sampled_from(range(len(graph.nodes))), min_size=1))
    assert splice(graph, some) == splice(plain, some)
    candidate = cut(graph, some, types=types_of(values), constants={})
    found = ReferenceEvaluator(candidate.model).run(None, {name: values[name] for name in candidate.inputs})
    for name, one in zip(candidate.outputs, found, strict=True):
        np.testing.assert_allclose(one, values[name], rtol=1e-5)
    for body in bodies(graph):
        inside = cut_inside(Inner.of(graph, body), range(1), Knowledge(types_of(values), {}))
        assert [node.op_type for node in inside.model.graph.node if node.op_type != "Constant"] == [
            node.op_type for node in graph.nodes
        ]


@pytest.mark.parametrize("ir", [3, 8])
def test_before_ir_version_4_too(tmp_path: Path, ir: int):
    """There every initializer is listed among the inputs, and so is a Constant that became one."""
    text = "two = Constant <value = float {2.0}> ()  [mul] y = Mul (x, two)"
    plain, _, _ = ingested(model_of(text, ["x"], ["y"], ir=ir, opset=8), tmp_path)
    graph = as_nodes(plain, tmp_path / "model.onnx")
    assert graph is not None
    assert [value.name for value in graph.model.graph.input] == list(graph.inputs) == ["x"]
    assert [node.op_type for node in cut(graph, [0], types={}, constants={}).model.graph.node] == ["Constant", "Mul"]


def test_nodes_in_another_order_than_in_the_file(tmp_path: Path):
    """The file's nodes are no executable order, so that its places say nothing: Constants stand first."""
    text = "[mul] y = Mul (a, two)  two = Constant <value = float {2.0}> ()  [abs] a = Abs (x)"
    plain, _, _ = ingested(model_of(text, ["x"], ["y"]), tmp_path)
    graph = as_nodes(plain, tmp_path / "model.onnx")
    assert graph is not None
    assert [node.op_type for node in graph.model.graph.node] == ["Constant", "Abs", "Mul"]
    assert graph.positions == (1, 2)
