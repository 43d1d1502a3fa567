"""Operators of ONNX Runtime's own in mixed precision: their schemas, their types, and what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from runner.backends.onnxruntime import contrib_schemas
from runner.backends.rounding import rounded
from runner.jobs.precision.layers import contrib_of, schemas_of
from runner.jobs.precision.mixer import Mixer
from runner.jobs.precision.prepare_model import inferred
from tests.jobs.models import parsed
from tests.jobs.precision.cast import mixers
from tests.jobs.precision.cast.mixers import LEVELS, run

FP32, FP16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
RANDOM = np.random.default_rng(0)
HEAD = '<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]> g (float[2,4,8] x) => (float[a,b,c] out)'


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 0.3, shape).astype(np.float32)


# operator -> (domain, weights and fed integers by name, inputs, outputs, attributes); x is fed as (2, 4, 8)
CASES: dict[str, tuple[str, dict[str, Any], list[str], list[str], dict[str, Any]]] = {
    "Gelu": ("com.microsoft", {}, ["x"], ["y"], {}),
    "FusedMatMul": ("com.microsoft", {"w": floats(6, 8)}, ["x", "w"], ["y"], {"transB": 1, "alpha": 0.5}),
    "SkipLayerNormalization": (
        "com.microsoft",
        {"g": floats(8), "b": floats(8)},
        ["x", "x", "g", "b"],
        ["y", "", "", "sum"],
        {"epsilon": 1e-5},
    ),
    "SimplifiedLayerNormalization": ("", {"g": floats(8)}, ["x", "g"], ["y"], {"axis": -1, "epsilon": 1e-5}),
    "Attention": ("com.microsoft", {"w": floats(8, 24), "b": floats(24)}, ["x", "w", "b"], ["y"], {"num_heads": 2}),
    "MultiHeadAttention": ("com.microsoft", {}, ["x", "x", "x"], ["y"], {"num_heads": 2}),
    "RotaryEmbedding": (
        "com.microsoft",
        {"at": np.zeros(1, np.int64), "cos": floats(16, 2), "sin": floats(16, 2)},
        ["x", "at", "cos", "sin"],
        ["y"],
        {"num_heads": 2},
    ),
    "EmbedLayerNormalization": (
        "com.microsoft",
        {
            "ids": np.ones((2, 4), np.int32),
            "words": floats(5, 8),
            "places": floats(6, 8),
            "g": floats(8),
            "b": floats(8),
        },
        ["ids", "", "words", "places", "", "g", "b"],
        ["y", "mask"],
        {},
    ),
    "GroupQueryAttention": (
        "com.microsoft",
        {
            "lengths": np.full(2, 3, np.int32),
            "total": np.array(4, np.int32),
            "past": np.zeros((2, 1, 0, 8), np.float32),
        },
        ["x", "x", "x", "past", "past", "lengths", "total"],
        ["y", "key", "value"],
        {"num_heads": 1, "kv_num_heads": 1},
    ),
}


def model_of(nodes: list[NodeProto], weights: dict[str, np.ndarray], opset: int = 18) -> ModelProto:
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    x = helper.make_tensor_value_info("x", FP32, [2, 4, 8])
    out = helper.make_tensor_value_info("out", FP32, ["a", "b", "c"])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [out], tensors), opset_imports=opsets)
    model.ir_version = 9
    return model


def model_for(op: str) -> ModelProto:
    domain, weights, inputs, outputs, attributes = CASES[op]
    before = helper.make_node("Tanh", ["x"], ["x0"], name="before")
    node = helper.make_node(
        op, ["x0" if name == "x" else name for name in inputs], outputs, name="it", domain=domain, **attributes
    )
    after = helper.make_node("Neg", ["y"], ["out"], name="after")
    return model_of([before, node, after], weights)


def mixer(model: ModelProto, folder: Path) -> Mixer:
    path = folder / "structure.onnx"
    path.write_bytes(model.SerializeToString())
    contrib = contrib_of(contrib_schemas({"model": str(path)})["schemas"])
    return mixers.mixer(inferred(model, schemas_of(model, contrib)), FP16, contrib=contrib)


@pytest.mark.parametrize("op", CASES)
def test_an_operator_of_onnx_runtime_is_an_element(tmp_path: Path, op: str) -> None:
    model = model_for(op)
    made = mixer(model, tmp_path)
    assert [layer.path for layer in made.layers] == ["before", "it", "after"]
    feeds = {"x": floats(2, 4, 8)}
    (exact,) = run(model, feeds)
    for raised in ({}, {1}, {0, 2}):
        mixed = made.mixed(frozenset(raised))
        if CASES[op][0]:  # the checker refuses an operator of ONNX's domain that ONNX does not define
            onnx.checker.check_model(mixed, full_check=True)
        seen = rounded(ModelProto.FromString(mixed.SerializeToString()))
        (got,) = run(seen, feeds)
        np.testing.assert_allclose(got, exact, atol=0.02)
        assert (got != exact).any(), "nothing was rounded"
        for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_ALL):
            np.testing.assert_allclose(run(mixed, feeds, level)[0], exact, atol=0.02)
    weights = {tensor.name: tensor.data_type for tensor in made.mixed(frozenset()).graph.initializer}
    assert FP32 not in weights.values()


def test_types_behind_such_operators_are_known_in_nested_graphs(tmp_path: Path) -> None:
    """Nothing is recorded of the tensors of a branch, and inference stops at an operator that ONNX does not define."""
    text = f"""{HEAD} <bool c = {{1}}> {{
        [gelu] g = com.microsoft.Gelu(x) [product] p = com.microsoft.FusedMatMul(g, w)
        [if] out = If(c) <
            then_branch = then () => (float[a,b,c] taken) {{
                [abs] a = Abs(p) [fast] f = com.microsoft.FastGelu(a) [whole] i = Cast<to = 7>(f)
                [sqrt] taken = Sqrt(a) }},
            else_branch = other () => (float[a,b,c] other) {{ [neg] other = Neg(p) }}> }}"""
    model = parsed(text, w=floats(8, 8))
    made = mixer(model, tmp_path)
    paths = [layer.path for layer in made.layers]
    inner = {f"if.then_branch/{name}" for name in ("abs", "fast", "sqrt")} | {"if.else_branch/neg"}
    assert paths[:3] == ["gelu", "product", "if"] and set(paths[3:]) == inner
    mixed = made.mixed(frozenset({paths.index("if.then_branch/fast")}))
    onnx.checker.check_model(mixed, full_check=True)
    then = next(attribute.g for attribute in mixed.graph.node[-2].attribute if attribute.name == "then_branch")
    assert told(mixed.graph)["p"] == FP16 and told(then)["a"] == FP16
    assert told(then)["f"] == FP32 and told(then)["i"] == INT64


def told(graph: GraphProto) -> dict[str, int]:
    return {value.name: value.type.tensor_type.elem_type for value in graph.value_info}


def test_a_statistic_that_is_always_float_stays_so(tmp_path: Path) -> None:
    text = f"""{HEAD} {{ [it] y, , deviation = com.microsoft.SkipSimplifiedLayerNormalization(x, x, g)
        [mean] d = ReduceMean(deviation) [product] out = Mul(y, d) }}"""
    made = mixer(parsed(text, g=floats(8)), tmp_path)
    assert [layer.path for layer in made.layers] == ["it", "mean", "product"]
    mixed = made.mixed(frozenset())
    onnx.checker.check_model(mixed, full_check=True)
    assert told(mixed.graph)["y"] == FP16 and told(mixed.graph)["deviation"] == FP32 and told(mixed.graph)["d"] == FP16


def test_an_operator_of_nobody_knows_what_stays_as_it_is(tmp_path: Path) -> None:
    text = f"""{HEAD} {{ [before] a = Tanh(x) [it] b = com.microsoft.Riddle(a)
        [fixed] out = com.microsoft.DynamicQuantizeMatMul(a, q, s) }}"""
    model = parsed(text, q=np.ones((8, 8), np.uint8), s=np.ones(1, np.float32))
    made = mixer(model, tmp_path)
    assert [layer.path for layer in made.layers] == ["before"]
    mixed = made.mixed(frozenset())
    assert {tensor.data_type for tensor in mixed.graph.initializer} == {TensorProto.UINT8, FP32}
    assert told(mixed.graph)["a"] == FP16 and told(mixed.graph)["a__fp32"] == FP32


def test_a_model_of_onnx_alone_asks_no_runtime(tmp_path: Path) -> None:
    path = tmp_path / "structure.onnx"
    path.write_bytes(model_of([helper.make_node("Tanh", ["x"], ["out"])], {}).SerializeToString())
    assert contrib_schemas({"model": str(path)}) == {"schemas": []}


@pytest.mark.parametrize("opset", [18, 21])
def test_types_are_known_behind_operators_of_onnx_that_its_inference_does_not_know(tmp_path: Path, opset: int) -> None:
    shape = numpy_helper.from_array(np.array([0, 0, -1], np.int64), "shape")
    scale = np.ones(2 if opset == 18 else 4, np.float32)
    nodes = [
        helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], name="norm", num_groups=2),
        helper.make_node("Mul", ["y", "much"], ["up"], name="up"),
        helper.make_node("Mul", ["up", "up"], ["square"], name="square"),
        helper.make_node("Reshape", ["square", "shape"], ["out"], name="out"),
    ]
    weights = {"scale": scale, "bias": 0 * scale, "much": np.float32(1000)}
    model = model_of(nodes, weights, opset)
    model.graph.initializer.append(shape)
    mixed = mixer(model, tmp_path).mixed(frozenset())
    for name in ("y", "up", "square"):
        assert {v.name: v.type.tensor_type.elem_type for v in mixed.graph.value_info}[name] == FP16
    # and so it is rounded there: squares are beyond the range
    (out,) = run(rounded(mixed), {"x": floats(2, 4, 8)})
    assert np.isinf(out).any()
