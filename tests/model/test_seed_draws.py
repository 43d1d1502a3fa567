"""The seeds that nodes get are those with which ONNX Runtime draws in the user's own file."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from runner.model.files.read_model import seed_draws
from runner.model.graph.graph_index import Graph
from tests.model import models
from tests.model.nested import model_of

TEXT = """
main (float[4,4] x) => (y, drawn, spread, chosen) {
    [c] one = Constant <value_float = 1.0> ()
    a = Add (x, one)
    [drawn] drawn = RandomNormalLike (a)
    gone = Identity (a)
    total = ReduceSum <keepdims = 0> (x)
    yes = Greater (total, one)
    b = MatMul (gone, x)
    c = Add (b, one)
    [spread] spread = RandomUniform <shape = [3]> ()
    [chosen] chosen = Multinomial <sample_size = 9> (x)
    [choice] y = If (yes) <
        then_branch = then () => (t) {
            d = Relu (c)
            two = Constant <value_float = 2.0> ()
            [inner] e = RandomNormalLike (d)
            t = Mul (e, two)
        },
        else_branch = other () => (f) { f = Neg (c) }
    >
}
"""
SEED = 7


def drawn(model: onnx.ModelProto, level: int, names: list[str] | None = None) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(level)
    onnxruntime.set_seed(SEED)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    fed = {one.name: np.full((4, 4), 0.25, np.float32) for one in session.get_inputs()}
    outputs = names or [one.name for one in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, fed), strict=True))


@pytest.mark.parametrize("level", [0, 1, 2, 99])
def test_a_part_draws_what_the_file_draws(level: int) -> None:
    model = model_of(TEXT)
    right = drawn(model, level)
    assert len(seed_draws(model.graph, SEED)) == 4
    assert Graph.of(model).drawing == ()
    for name, value in drawn(model, level).items():
        assert np.array_equal(value, right[name]), name
    for node in model.graph.node:
        if node.name in ("drawn", "spread", "chosen"):  # alone, so at another place
            reads = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in (*node.input, "k")]
            made = [helper.make_empty_tensor_value_info(node.output[0])]
            part = models.model_of([*models.nodes_of("i = Identity (k)"), node], reads, made)
            assert np.array_equal(drawn(part, level)[node.output[0]], right[node.output[0]]), node.name


def test_a_seed_of_the_users_own_stays() -> None:
    model = model_of("main (float[4,4] x) => (float[4,4] y) { y = RandomNormalLike <seed = 3.0> (x) }")
    before = model.SerializeToString()
    assert seed_draws(model.graph, SEED) == []
    assert model.SerializeToString() == before
