"""Values that a candidate holds: it computes what it did, has the model's own interface, and nothing is folded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from runner.model.graph.cut import CutError, cut, splice
from runner.model.graph.graph_index import Graph
from runner.model.graph.hold_values import holding, stacked, telling
from runner.model.passes.lift_constants import lower_constants
from tests.model.models import dags, model_of, recorded, tensor, types_of
from tests.model.nested import run_ort

onnxruntime = pytest.importorskip("onnxruntime")
INDEX = ["ArgMax", "Gather", "Reshape"]
"""What computes the index; each value takes a Gather more."""


def held(model: ModelProto, feeds: dict[str, np.ndarray], gone: set[int]) -> ModelProto:
    """The model without some nodes; what it would be fed is in it."""
    graph, values = Graph.of(model), recorded(model, feeds)
    made = splice(graph, gone)
    types = types_of(values)
    types |= {alias: types[name] for alias, name in made.given.items()}
    part = cut(graph, made.keep, types=types, constants={}, expose="own", front=made.front)
    found = {
        name: numpy_helper.from_array(np.asarray(values[made.given.get(name, name)])[None]) for name in part.inputs
    }
    return holding(part, graph, found).model


def optimized(model: ModelProto, folder: Path) -> list[str]:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return sorted(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


def fusing(opset: int = 17) -> ModelProto:
    """MatMul-Add, Sigmoid-Mul, LayerNormalization and Softmax: most are fused, or folded where their input is known."""
    text = """[m] m = MatMul (x, w)  [a] a = Add (m, b)  [s] s = Sigmoid (a)  [g] g = Mul (a, s)  [n] n = MatMul (g, w)
        [r] r = Add (n, x)  [y] y = Softmax <axis = -1> (r)"""
    x, y = (helper.make_tensor_value_info(name, 1, ["N", 4]) for name in "xy")
    made = model_of(text, [x], [y], [tensor("w", np.eye(4, dtype=np.float32)), tensor("b", np.ones(4, np.float32))])
    made.opset_import[0].version = opset
    return made


def test_the_fusions_are_those_of_the_model_and_nothing_is_folded(tmp_path: Path) -> None:
    model, feeds = fusing(), {"x": np.ones((2, 4), np.float32)}
    own = optimized(model, tmp_path)
    assert own == ["Gemm", "Gemm", "QuickGelu", "Softmax"]  # else it would show nothing
    assert optimized(held(model, feeds, set()), tmp_path) == sorted([*own, *INDEX, "Gather"])
    # from the gate on, which reads one value, and the sum that reads the input as well
    rest = ["Gemm", "QuickGelu", "Softmax"]
    assert optimized(held(model, feeds, {0, 1}), tmp_path) == sorted([*rest, *INDEX, "Gather", "Gather"])


def test_what_has_no_numbers_to_compute_an_index_of_is_refused() -> None:
    ends = [[helper.make_tensor_value_info(name, TensorProto.STRING, [1])] for name in "ty"]
    model = model_of("[y] y = Identity (t)", *ends)
    with pytest.raises(CutError, match="no input holds numbers"):
        held(model, {"t": np.array(["text"], object)}, set())
    with pytest.raises(CutError, match="opset"):
        held(fusing(opset=4), {"x": np.ones((2, 4), np.float32)}, set())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags(), st.data())
def test_it_computes_what_the_model_does_whatever_it_is_fed(dag, data) -> None:
    model, feeds = dag
    lower_constants(model.graph, model.ir_version)
    graph = Graph.of(model)
    if not graph.nodes:
        return
    gone = data.draw(st.sets(st.sampled_from(range(len(graph.nodes)))))
    try:
        made = held(model, feeds, gone)
    except CutError:  # an input that is an output, a type that no Gather takes
        return
    onnx.checker.check_model(made, full_check=True)
    assert [one.name for one in made.graph.output] == [*graph.outputs]
    initializers = {one.name for one in made.graph.initializer}
    assert [one for one in made.graph.input if one.name not in initializers] == [
        one for one in model.graph.input if one.name in graph.inputs
    ]
    for node in made.graph.node:
        node.name = ""  # ONNX Runtime refuses two nodes of one name, which the random models have
    values = recorded(model, feeds)
    outputs = run_ort(made, {name: np.zeros_like(feeds[name]) for name in graph.inputs})
    for name in graph.outputs:
        np.testing.assert_allclose(outputs[name], values[name], rtol=1e-5, atol=1e-6)


def test_each_of_several_samples_gets_its_own_values() -> None:
    """By a number that no two of them share, so that a model which is near one of them gets that one's."""
    model, random = fusing(), np.random.default_rng(0)
    fed = [random.normal(size=(2, 4)).astype(np.float32) for _ in range(3)]
    graph, values = Graph.of(model), [recorded(model, {"x": one}) for one in fed]
    assert telling(graph, {"x": [fed[0], fed[0], fed[1]]}) is None
    made = splice(graph, {0, 1})
    types = {alias: types_of(values[0])[name] for alias, name in made.given.items()} | types_of(values[0])
    part = cut(graph, made.keep, types=types, constants={}, expose="own", front=made.front)
    held = {
        name: stacked([numpy_helper.from_array(np.asarray(one[made.given.get(name, name)])) for one in values])
        for name in part.inputs
    }
    whole = holding(part, graph, held, told=telling(graph, {"x": fed})).model
    onnx.checker.check_model(whole, full_check=True)
    for one, good in zip(fed, values, strict=True):
        np.testing.assert_allclose(run_ort(whole, {"x": one + np.float32(1e-4)})["y"], good["y"], rtol=1e-5)
