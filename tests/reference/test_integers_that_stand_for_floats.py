"""Quantized models: what integers stand for, at the ends of a model and inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runner.model.graph.graph_index import Graph
from runner.reference.quantized import read_otherwise
from tests.harness import winnow
from tests.model.models import model_of, tensor

_STEP = {"s": np.float32(1 / 64), "z": np.uint8(128), "t": np.float32(1 / 8)}


def ends(kind: int, *names: str) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, [4, 8]) for name in names]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_original_is_fed_the_floats_that_an_integer_input_stands_for(tmp_path: Path, sign: int) -> None:
    weight = np.random.default_rng(4).normal(size=(8, 8)).astype(np.float32)
    held = [tensor("w", weight)]
    onnx.save(model_of("y = MatMul (x, w)", ends(1, "x"), ends(1, "y"), held), tmp_path / "float.onnx")
    text = "a = DequantizeLinear (u, s, z)  [product] b = MatMul (a, w)  v = QuantizeLinear (b, t, z)"
    held = [tensor("w", sign * weight), *(tensor(name, one) for name, one in _STEP.items())]
    kind = TensorProto.UINT8
    onnx.save(model_of(text, ends(kind, "u"), ends(kind, "v"), held), tmp_path / "child.onnx")
    run = winnow(
        "+experiment=quantized", f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'float.onnx'}",
        folder=tmp_path / "run",
    )  # fmt: skip
    assert (run.code, run.result["culprits"]) == ((4, []) if sign == 1 else (0, ["product"])), run.output


def test_integers_that_their_reader_takes_for_others_are_told() -> None:
    text = "[q] a = QuantizeLinear (x, s, z)  [p] b = Transpose (a)  [d] y = DequantizeLinear (a, t, z)"
    held = {"s": np.float32(0.5), "t": np.float32([0.25]), "z": np.uint8(7)}
    said = []
    for t in (0.25, 0.5):
        graph = Graph.of(model_of(text, ends(1, "x"), ends(1, "y"), [tensor(name, one) for name, one in held.items()]))
        said.append([*read_otherwise(graph, (held | {"t": np.float32([t])}).get, ["q"])])
    assert said == [["d reads a with the scale 0.25; q makes it with 0.5"], []]


def pairs(*texts: str) -> str:
    """Return text in which ``r = PAIR (x)`` is a QuantizeLinear and a DequantizeLinear; ``.`` has a zero point of 0."""

    def written(one: str) -> str:
        after, _, before = one.replace(" ", "").partition("=PAIR")
        if not before:
            return one
        zero = "low" if before.endswith(".") else "z"
        first = f"[{after}_q] {after}_i = QuantizeLinear ({before.removesuffix('.')}, t, {zero})"
        return f"{first}  [{after}_dq] {after} = DequantizeLinear ({after}_i, t, {zero})"

    return "  ".join(map(written, texts))


_PRODUCT = "[product] r = MatMul (x, w)"
LOST = {
    "the Relu of a pair": (
        "a = MatMul (x, w)  r = Relu (a)  y = MatMul (r, v)",
        pairs(_PRODUCT, "p = PAIR r", "y = MatMul (p, v)"),
        {"p_q", "p_dq"},
    ),
    "an Add before a pair": (
        "a = MatMul (x, w)  b = Add (a, x)  r = Relu (b)  y = MatMul (r, v)",
        pairs("[product] a = MatMul (x, w)", "p = PAIR a", "r = Add (p, x)", "q = PAIR p.", "y = MatMul (q, v)"),
        {"q_q", "q_dq"},
    ),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_pair_that_lost_what_it_should_do_is_named(tmp_path: Path, lost: str) -> None:
    whole, text, culprits = LOST[lost]
    draw = np.random.default_rng(4)
    held = [tensor(name, draw.normal(size=(8, 8)).astype(np.float32)) for name in "wv"]
    onnx.save(model_of(whole, ends(1, "x"), ends(1, "y"), held), tmp_path / "float.onnx")
    steps = [tensor(name, one) for name, one in (*_STEP.items(), ("low", np.uint8(0)))]
    onnx.save(model_of(text, ends(1, "x"), ends(1, "y"), [*held, *steps]), tmp_path / "child.onnx")
    run = winnow(
        "+experiment=quantized", f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'float.onnx'}",
        folder=tmp_path / "run",
    )  # fmt: skip
    assert run.result["culprits"] and {*run.result["culprits"]} <= culprits, run.output
    assert "the original" not in run.output.partition("  why")[2], "no operator is missing where a pair limits"


def test_what_the_pair_at_the_output_hides_is_suspected_if_it_is_as_wrong(tmp_path: Path) -> None:
    """A weight was wrong when the pair was fitted to what came of it, so that the pair cuts off right values."""
    weight = np.random.default_rng(4).uniform(0.5, 1, (8, 8)).astype(np.float32)
    held = [tensor("w", weight)]
    onnx.save(
        model_of("a = MatMul (x, w)  y = Identity (a)", ends(1, "x"), ends(1, "y"), held), tmp_path / "float.onnx"
    )
    text = (
        "[weight] d = DequantizeLinear (w_quantized, s, zero)  a = MatMul (x, d)"
        "  [pair_q] q = QuantizeLinear (a, t, high)  [pair_dq] y = DequantizeLinear (q, t, high)"
    )
    steps = {**_STEP, "w_quantized": np.rint(-64 * weight).astype(np.int8), "zero": np.int8(0), "high": np.uint8(255)}
    held = [tensor(name, one) for name, one in steps.items()]
    onnx.save(model_of(text, ends(1, "x"), ends(1, "y"), held), tmp_path / "child.onnx")
    run = winnow(
        "+experiment=quantized", f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'float.onnx'}",
        "inputs.ranges={x: [0, 1]}", folder=tmp_path / "run",
    )  # fmt: skip
    assert (run.result["status"], run.result["culprits"]) == ("suspected", ["weight"]), run.output
    assert run.result["cause"]["weights"] == ["w_quantized is negated, compared with w of the original"], run.output


def test_a_weight_that_a_normalization_is_folded_into_is_no_partner_of_the_plain_one(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    weight = draw.uniform(-1, 1, (4, 4, 1, 1)).astype(np.float32)
    gain, shift, mean, variance = (draw.uniform(0.2, 3, 4).astype(np.float32) for _ in range(4))
    shape = [1, 4, 5, 5]
    one, other = (helper.make_tensor_value_info(name, 1, shape) for name in "xy")
    held = [tensor(name, each) for name, each in zip("wgbmv", (weight, gain, shift, mean, variance), strict=True)]
    text = "a = Conv (x, w)  y = BatchNormalization (a, g, b, m, v)"
    onnx.save(model_of(text, [one], [other], held), tmp_path / "float.onnx")
    factor = gain / np.sqrt(variance + np.float32(1e-5))
    steps = np.rint(32 * weight * factor.reshape(4, 1, 1, 1)).astype(np.int8)
    held = [tensor("w_quantized", steps), tensor("c", shift - mean * factor), tensor("s", np.float32(1 / 32))]
    text = "[weight] d = DequantizeLinear (w_quantized, s)  y = Conv (x, d, c)"
    onnx.save(model_of(text, [one], [other], held), tmp_path / "child.onnx")
    run = winnow(
        "+experiment=quantized", f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'float.onnx'}",
        folder=tmp_path / "run",
    )  # fmt: skip
    assert run.code == 4 and "compute something else" not in run.output, run.output
