"""Fences: what crosses them stays as it is, and no runtime fuses across them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from runner.model.graph.cut import CutError, whole
from runner.model.graph.graph_index import Graph
from runner.model.graph.hold_values import fenced
from runner.model.passes.lift_constants import lower_constants
from tests.model.models import dags, model_of, recorded, tensor, types_of
from tests.model.nested import run_ort
from tests.model.test_hold_values import optimized


def test_a_matmul_and_an_add_are_fused_without_a_fence_and_not_across_one(tmp_path: Path) -> None:
    floats = {name: helper.make_tensor_value_info(name, 1, [2, 2]) for name in ("x", "w", "m", "a", "y")}
    weights = [tensor("w", np.ones((2, 2), np.float32)), tensor("b", np.ones(2, np.float32))]
    text, known = "[m] m = MatMul (x, w)  [a] a = Add (m, b)  [y] y = Neg (a)", [floats["m"], floats["a"]]
    graph = Graph.of(model_of(text, [floats["x"]], [floats["y"]], weights, value_info=known))
    types = {name: one.type for name, one in floats.items()} | {"b": helper.make_tensor_type_proto(1, [2])}
    seen = {}
    for name, parts in {"none": [], "around": [[0, 1]], "inside": [[0], [1]]}.items():
        candidate = fenced(whole(graph), graph, parts, types)
        onnx.checker.check_model(candidate.model, full_check=True)
        seen[name] = optimized(candidate.model, tmp_path)
    assert "Gemm" in seen["none"] and "Gemm" in seen["around"], seen
    assert {"MatMul", "Add"} <= set(seen["inside"]), seen


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags(), st.data(), st.booleans())
def test_it_computes_what_the_model_does_whatever_the_condition_is(dag, data, condition) -> None:
    model, feeds = dag
    lower_constants(model.graph, model.ir_version)
    graph = Graph.of(model)
    if not graph.nodes:
        return
    values = recorded(model, feeds)
    every = st.sampled_from(range(len(graph.nodes)))
    one = data.draw(st.sets(every, min_size=1))
    parts = [one, data.draw(st.sets(every)) - one]
    try:
        candidate = fenced(whole(graph), graph, parts, types_of(values))
    except CutError:  # it is read inside a body, or of no type that can be handed on
        return
    onnx.checker.check_model(candidate.model, full_check=True)
    for node in candidate.model.graph.node:
        node.name = ""  # ONNX Runtime refuses two nodes of one name, which the random models have
    given_values = {name: feeds[name] for name in candidate.inputs[:-1]} | {candidate.inputs[-1]: np.array(condition)}
    made = run_ort(candidate.model, given_values)
    for name in set(graph.outputs) & set(graph.producers):
        np.testing.assert_allclose(made[name], values[name], rtol=1e-5, atol=1e-6)


def test_a_constant_crosses_no_fence() -> None:
    """Behind one the weight of a quantized MatMul would be no constant, and its kernel another one."""
    floats = {name: helper.make_tensor_value_info(name, 1, [2, 2]) for name in ("x", "w", "m", "y")}
    weights = [tensor("q", np.int8([[1, 2], [3, 4]])), tensor("scale", np.float32(0.5))]
    text = "[w] w = DequantizeLinear (q, scale)  [m] m = MatMul (x, w)  [y] y = Neg (m)"
    graph = Graph.of(model_of(text, [floats["x"]], [floats["y"]], weights))
    candidate = fenced(whole(graph), graph, [[1]], {name: one.type for name, one in floats.items()}).model
    assert [node.op_type for node in candidate.graph.node] == ["DequantizeLinear", "MatMul", "If", "Neg"]
    assert [*candidate.graph.node[1].input] == ["x", "w"]
