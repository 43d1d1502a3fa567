"""Operators of ONNX Runtime's own in mixed precision: their schemas, their types, and what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto

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


# a node, and what it reads besides x0, of the shape (2, 4, 8)
CASES: dict[str, dict[str, Any]] = {
    "y = com.microsoft.Gelu(x0)": {},
    "y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.5>(x0, w)": {"w": floats(6, 8)},
    "y, , , sum = com.microsoft.SkipLayerNormalization(x0, x0, g, b)": {
        "g": floats(8),
        "b": floats(8),
    },
    "y = SimplifiedLayerNormalization<axis = -1, epsilon = 0.00001>(x0, g)": {"g": floats(8)},
    "y = com.microsoft.Attention<num_heads = 2>(x0, w, b)": {"w": floats(8, 24), "b": floats(24)},
    "y = com.microsoft.MultiHeadAttention<num_heads = 2>(x0, x0, x0)": {},
    "y = com.microsoft.RotaryEmbedding<num_heads = 2>(x0, at, cos, sin)": {
        "at": np.zeros(1, np.int64),
        "cos": floats(16, 2),
        "sin": floats(16, 2),
    },
    "y, mask = com.microsoft.EmbedLayerNormalization(ids, , words, places, , g, b)": {
        "ids": np.ones((2, 4), np.int32),
        "words": floats(5, 8),
        "places": floats(6, 8),
        "g": floats(8),
        "b": floats(8),
    },
    "y, key, value = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1>(x0, x0, x0, p, p, l, total)": {
        "l": np.full(2, 3, np.int32),
        "total": np.array(4, np.int32),
        "p": np.zeros((2, 1, 0, 8), np.float32),
    },
}


def mixer(model: ModelProto, folder: Path) -> Mixer:
    path = folder / "structure.onnx"
    path.write_bytes(model.SerializeToString())
    contrib = contrib_of(contrib_schemas({"model": str(path)})["schemas"])
    return mixers.mixer(inferred(model, schemas_of(model, contrib)), FP16, contrib=contrib)


@pytest.mark.parametrize("node", CASES)
def test_an_operator_of_onnx_runtime_is_an_element(tmp_path: Path, node: str) -> None:
    model = parsed(f"{HEAD} {{ [before] x0 = Tanh(x) [it] {node} [after] out = Neg(y) }}", **CASES[node])
    made = mixer(model, tmp_path)
    assert [layer.path for layer in made.layers] == ["before", "it", "after"]
    feeds = {"x": floats(2, 4, 8)}
    (exact,) = run(model, feeds)
    for raised in ({}, {1}, {0, 2}):
        mixed = made.mixed(frozenset(raised))
        if "com.microsoft" in node:  # the checker refuses an operator of ONNX's domain that ONNX does not define
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
    path.write_bytes(parsed(f"{HEAD} {{ out = Tanh(x) }}").SerializeToString())
    assert contrib_schemas({"model": str(path)}) == {"schemas": []}


@pytest.mark.parametrize("opset", [18, 21])
def test_types_are_known_behind_operators_of_onnx_that_its_inference_does_not_know(tmp_path: Path, opset: int) -> None:
    scale = np.ones(2 if opset == 18 else 4, np.float32)
    text = """g (float[2,4,8] x) => (float[a,b,c] out) <float much = {1000.0}, int64[3] shape = {0, 0, -1}> {
        y = GroupNormalization<num_groups = 2>(x, scale, bias) up = Mul(y, much) square = Mul(up, up)
        out = Reshape(square, shape) }"""
    model = parsed(text, opset=opset, ir=9, scale=scale, bias=0 * scale)
    mixed = mixer(model, tmp_path).mixed(frozenset())
    for name in ("y", "up", "square"):
        assert {v.name: v.type.tensor_type.elem_type for v in mixed.graph.value_info}[name] == FP16
    # and so it is rounded there: squares are beyond the range
    (out,) = run(rounded(mixed), {"x": floats(2, 4, 8)})
    assert np.isinf(out).any()
