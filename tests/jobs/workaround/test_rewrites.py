"""A rewritten model is valid, computes the same, and the program that is told makes the same model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

from runner.jobs.workaround.rewrites import Rewrite, Rewriting
from runner.model.graph.edits import edited, program
from runner.model.graph.graph_index import Graph
from tests.jobs.models import steps

_SHAPES: dict[str, list[int]] = {"x": [3, 4], "w": [4, 5], "b": [5], "g": [4], "t": [4, 3], "i": [2, 7, 3, 3]}
_GENERATOR = np.random.default_rng(3)
_MADE_BY = {
    "Relu": (["x"], {}),
    "Clip": (["x", "low", "high"], {}),
    "Pow": (["x", "two"], {}),
    "Transpose": (["x"], {"perm": [0, 1]}),
    "Softmax": (["x"], {"axis": 0}),
    "LayerNormalization": (["x", "g", "g"], {"axis": 1, "epsilon": 1e-3}),
    "Gelu": (["x"], {}),
    "Gemm": (["t", "w", "b"], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    "Max": (["x", "g"], {}),
    "Min": (["x", "g"], {}),
    "LRN": (["i"], {"size": 5, "alpha": 0.3, "bias": 2.0}),
}


def model(nodes: Sequence[NodeProto], outputs: Sequence[str], opset: int = 20, dtype: int = 1) -> ModelProto:
    """A model over x, w, b, g and t, with the constants low, high and two."""
    used = {name for node in nodes for name in node.input}
    inputs = [helper.make_tensor_value_info(n, dtype, shape) for n, shape in _SHAPES.items() if n in used]
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    constants = [("low", -0.25), ("high", 0.5), ("two", 2.0)]
    weights = [numpy_helper.from_array(np.asarray(v, kind), n) for n, v in constants if n in used]
    ends = [helper.make_tensor_value_info(name, dtype, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", inputs, ends, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return shape_inference.infer_shapes(made, data_prop=True)


def rewriting(of: ModelProto) -> Rewriting:
    graph = Graph.of(of)
    return Rewriting(graph, graph.value_types)


def feeds(of: ModelProto) -> dict[str, Any]:
    kinds = {value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in of.graph.input}
    drawn = {name: _GENERATOR.standard_normal(_SHAPES[name]).astype(kind) for name, kind in kinds.items()}
    drawn.get("g", np.zeros(4))[1] = np.nan
    return drawn


def outputs(of: ModelProto, fed: dict[str, Any], names: Sequence[str]) -> list[Any]:
    """What ONNX Runtime gives without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(of.SerializeToString(), options).run(list(names), fed))


def same(of: ModelProto, rewrite: Rewrite, tmp_path: Path, error: float) -> ModelProto:
    """Return the rewritten model once it is shown to be valid, to compute the same, and to be what is told."""
    made = edited(of, rewrite.edits)
    onnx.checker.check_model(made, full_check=True)
    names, fed = [value.name for value in of.graph.output], feeds(of)
    for mine, theirs in zip(outputs(made, fed, names), outputs(of, fed, names), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=error, atol=error)
    path = tmp_path / "net.onnx"
    onnx.save(of, str(path))
    told = program(rewrite.edits).replace('"workaround.onnx"', repr(str(tmp_path / "told.onnx")))
    exec(told, {"path": str(path)})
    by_hand = onnx.load(str(tmp_path / "told.onnx"))
    assert [(n.op_type, n.input, n.output, n.attribute) for n in by_hand.graph.node] == [
        (n.op_type, n.input, n.output, n.attribute) for n in made.graph.node
    ]
    assert by_hand.graph.output == made.graph.output
    assert [(w.name, w.dims, w.data_type) for w in by_hand.graph.initializer] == [
        (w.name, w.dims, w.data_type) for w in made.graph.initializer
    ]
    return made


@pytest.mark.parametrize(
    ("operator", "opset", "dtype", "error"),
    [
        (operator, *kind)
        for operator in _MADE_BY
        for kind in ((20, 1, 1e-6), (17, 1, 1e-6), (17, 11, 1e-12))
        if (operator != "Gelu" or kind[0] == 20) and (operator != "LRN" or kind[1] == 1)
    ],
)
def test_a_node_in_other_operators(operator: str, opset: int, dtype: int, error: float, tmp_path: Path) -> None:
    reads, attributes = _MADE_BY[operator]
    of = model([helper.make_node(operator, reads, ["y"], **attributes)], ["y"], opset, dtype)
    (rewrite,) = [one for one in rewriting(of).around([0]) if "other operators" in one.what]
    made = same(of, rewrite, tmp_path, error)
    assert operator not in {node.op_type for node in made.graph.node}


@pytest.mark.parametrize(
    ("operator", "reads", "attributes", "opset"),
    [
        ("Pow", ["x", "high"], {}, 17),
        ("Transpose", ["x"], {"perm": [1, 0]}, 17),
        ("Softmax", ["x"], {}, 11),
        ("Gelu", ["x"], {"approximate": "tanh"}, 20),
        ("Tanh", ["x"], {}, 17),
    ],
)
def test_what_has_no_other_way_is_left(operator: str, reads: list[str], attributes: dict[str, Any], opset: int) -> None:
    of = model([helper.make_node(operator, reads, ["y"], **attributes)], ["y"], opset)
    assert not [one for one in rewriting(of).around([0]) if "other operators" in one.what]


def test_a_value_beyond_the_range_comes_down_before_it_is_cast() -> None:
    """A Cast between the nodes that are raised reads what the first of them made in float32."""
    nodes = steps("k = Exp(x) l = Cast<to = 1>(k) m = Log(l) z = Cast<to = 10>(m)")
    of = model(nodes, ["z"], 17, TensorProto.FLOAT16)
    fed = {"x": np.full([3, 4], 12, np.float16)}
    alone, wider = [edited(of, one.edits) for one in rewriting(of).raised([0])][:2]
    assert np.isinf(outputs(alone, fed, ["z"])[0]).all()
    np.testing.assert_allclose(outputs(wider, fed, ["z"])[0], fed["x"], rtol=1e-3)


def chain() -> ModelProto:
    """Twice Neg, Abs and Exp after each other, and Tanh at the end."""
    return model(steps("k = Neg(x) l = Abs(k) m = Exp(l) n = Neg(m) o = Abs(n) p = Exp(o) y = Tanh(p)"), ["y"], 17)


def test_the_smallest_change_comes_first_and_all_places_of_the_pattern_before_one(tmp_path: Path) -> None:
    of = chain()
    found = [*rewriting(of).around([0, 1])]
    assert [one.what for one in found] == [
        "k as an additional output, n as an additional output",
        "k as an additional output",
        "Max(k, k) before l, Max(n, n) before o",
        "Max(k, k) before l",
        "insert Max(x, x) at 4 places, the first: before k",
        "Max(x, x) before k",
        "Max(l, l) before m",
        "Max(x, x) before k, Max(l, l) before m",
    ]
    assert [one.places for one in found] == [2, 1, 2, 1, 4, 1, 1, 2]
    for one in found:
        same(of, one, tmp_path, 0.0)


def test_what_a_nested_graph_reads_is_not_kept_apart() -> None:
    """Its node has no such input that could be changed."""
    inside = "i () => (float[3,4] in) { in = Neg(k) }"
    nodes = steps(f"""k = Abs(x) all = Greater(k, k) most = ReduceMax<keepdims = 0>(k) large = Greater(most, two)
        y = If(large) <then_branch = {inside}, else_branch = {inside}>""")
    found = [one.what for one in rewriting(model(nodes, ["y"], 17)).around([0, 4])]
    assert "k as an additional output" in found and "Max(k, k) before most" in found
    assert "Max(k, k) before y" not in " ".join(found)


def test_nothing_is_exposed_of_which_type_or_rank_is_unknown() -> None:
    of = chain()
    del of.graph.value_info[:]
    assert not [one for one in rewriting(of).around([0, 1]) if "output" in one.what]


def test_nodes_of_a_low_precision_run_in_float32(tmp_path: Path) -> None:
    of = model(steps("a = Mul(x, two) y = Relu(a) z = Tanh(x)"), ["y", "z"], 17, TensorProto.FLOAT16)
    rewrite = next(rewriting(of).raised([0, 1]))
    assert rewrite.what == "in float32: a, y"
    made = same(of, rewrite, tmp_path, 1e-3)
    assert "a__raised" in next(node for node in made.graph.node if node.op_type == "Relu").input  # not cast in between
    types = {v.name: v.type.tensor_type.elem_type for v in shape_inference.infer_shapes(made).graph.value_info}
    assert {types[node.input[0]] for node in made.graph.node if node.name in "ay"} == {TensorProto.FLOAT}
    assert not [*rewriting(chain()).raised([0])]
