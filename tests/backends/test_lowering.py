"""Strict rounding: what is inside an operator is rounded as well."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.backends.onnx_reference import OnnxReference
from runner.backends.rounding import rounded
from tests.jobs.models import saved
from tests.model.models import model_of

HALF = np.float16


def made(
    op: str,
    x: np.ndarray,
    *more: np.ndarray,
    opset: int = 21,
    strict: bool = True,
    known: bool = True,
    **attributes: Any,
) -> np.ndarray:
    """Return what one node makes; ``known``: its input says its shape."""
    names = ["x", *(f"i{number}" for number in range(len(more)))]
    node = helper.make_node(op, names, ["y"], name="n", **attributes)
    dims = list(x.shape) if known else [f"d{place}" for place in range(x.ndim)]
    model = model_of(
        [node],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
        [numpy_helper.from_array(value, name) for value, name in zip(more, names[1:], strict=True)],
        opset=opset,
        ir=9,
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    text = rounded(model, strict=strict).SerializeToString()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 3, shape).astype(HALF)


def in_pairs(row: np.ndarray) -> Any:
    """Add up in halves, as a tree does, each sum in float16."""
    row = row.astype(HALF)
    while len(row) > 1:
        half = len(row) // 2
        row = np.concatenate([row[:half] + row[half : 2 * half], row[2 * half :]])
    return row[0]


AXIS = np.array([-1])
CASES: list[tuple[str, tuple[int, ...], tuple[np.ndarray, ...], dict[str, Any]]] = [
    ("ReduceSum", (2, 37), (AXIS,), {}),
    ("ReduceSum", (2, 3, 37), (np.array([1, 2]),), {"keepdims": 0}),
    ("ReduceMean", (2, 37), (), {}),
    ("ReduceMean", (2, 3, 37), (), {"opset": 13, "axes": [0, -1], "keepdims": 0}),
    ("ReduceL1", (2, 37), (AXIS,), {}),
    ("ReduceL2", (2, 37), (AXIS,), {}),
    ("ReduceSumSquare", (2, 37), (AXIS,), {}),
    ("ReduceLogSumExp", (2, 37), (AXIS,), {}),
    ("Softmax", (2, 37), (), {}),
    ("Softmax", (2, 37, 3), (), {"axis": 1}),
    ("Softmax", (2, 37), (), {"opset": 11}),
    ("LogSoftmax", (2, 37), (), {}),
    ("Softplus", (2, 37), (), {}),
    ("Mish", (2, 37), (), {}),
    *(("CumSum", (2, 37), (np.array(1),), {"exclusive": one, "reverse": two}) for one in (0, 1) for two in (0, 1)),
    ("LpNormalization", (2, 37), (), {}),
    ("LpNormalization", (2, 37), (), {"p": 1, "axis": 0}),
    ("AveragePool", (1, 2, 9, 9), (), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", (1, 2, 9, 9), (), {}),
    ("LayerNormalization", (2, 3, 37), (values(37), values(37)), {}),
    ("LayerNormalization", (2, 3, 37), (values(3, 37),), {"axis": 1}),
    ("RMSNormalization", (2, 3, 37), (values(37),), {"opset": 23}),
    ("InstanceNormalization", (2, 4, 5, 5), (values(4), values(4)), {}),
    ("GroupNormalization", (2, 4, 5, 5), (values(4), values(4)), {"num_groups": 2}),
    ("GroupNormalization", (2, 4, 5, 5), (values(2), values(2)), {"num_groups": 2, "opset": 18}),
    ("MeanVarianceNormalization", (2, 4, 5, 5), (), {}),
]


@pytest.mark.parametrize("known", [True, False], ids=["shapes known", "not known"])
@pytest.mark.parametrize(("op", "shape", "more", "options"), CASES)
def test_it_computes_the_same_but_for_digits(
    op: str, shape: tuple[int, ...], more: tuple[np.ndarray, ...], options: dict[str, Any], known: bool
) -> None:
    x = values(*shape)
    plain = made(op, x, *more, strict=False, known=known, **options)
    strict = made(op, x, *more, known=known, **options)
    assert plain.shape == strict.shape
    scale = np.abs(plain).max()
    np.testing.assert_allclose(strict.astype(np.float32), plain.astype(np.float32), rtol=0, atol=0.01 * scale)


def test_sums_are_rounded_on_the_way() -> None:
    x = values(3, 300)
    found = made("ReduceSum", x, AXIS)
    assert [row.item() for row in found] == [in_pairs(row).item() for row in x]
    squares = made("ReduceL2", x, AXIS)
    assert [row.item() for row in squares] == [np.sqrt(in_pairs(row * row)).item() for row in x]
    # running sums are added one by one
    totals = itertools.accumulate(x[0], lambda total, one: HALF(total + one))
    assert made("CumSum", x[0], np.array(0)).tolist() == [one.item() for one in totals]
    # what is in high precision stays whole
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    whole = model_of([helper.make_node("ReduceMean", ["x"], ["y"])], value[:1], value[1:], opset=18, ir=9)
    assert [one.op_type for one in rounded(whole, strict=True).graph.node] == ["ReduceMean"]


@pytest.mark.parametrize("known", [True, False])
def test_a_sum_that_leaves_the_range(known: bool) -> None:
    large = np.full((1, 1, 20, 20), 400, HALF)
    for op, more in (("ReduceMean", ()), ("GlobalAveragePool", ())):
        assert np.isfinite(made(op, large, *more, strict=False, known=known)).all()
        assert np.isinf(made(op, large, *more, known=known)).all()
    assert np.isinf(made("Softplus", np.array([12], HALF), known=known)).all()


def test_an_epsilon_that_float16_has_not() -> None:
    """An importer that takes a norm apart writes it in the type of the rest."""
    flat = np.full((1, 8), 3, HALF)
    options = {"epsilon": 1e-12}
    assert made("LayerNormalization", flat, np.ones(8, HALF), strict=False, **options).tolist() == [[0.0] * 8]
    assert np.isnan(made("LayerNormalization", flat, np.ones(8, HALF), **options)).all()


@pytest.mark.parametrize("strict", [False, True])
def test_nodes_that_stand_in_no_executable_order(tmp_path: Path, strict: bool) -> None:
    """ONNX Runtime's converter to float16 puts the Cast of an input last, and ONNX Runtime takes that."""
    nodes = "square = Mul(half, half) y = Cast<to = 1>(square) half = Cast<to = 10>(x)"
    path = saved(tmp_path / "net.onnx", f"g (float[2] x) => (float[2] y) {{ {nodes} }}", opset=21, ir=9)
    session = onnxruntime.InferenceSession(rounded(onnx.load(path), strict=strict).SerializeToString())
    assert session.run(None, {"x": np.array([300, 2], np.float32)})[0].tolist() == [np.inf, 4]
    # the reference evaluator takes no other order
    loaded = OnnxReference.load(str(path), {})
    assert [one.op_type for one in loaded._model.graph.node] == ["Cast", "Mul", "Cast"]
