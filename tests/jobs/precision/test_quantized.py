"""`strategy.low=quantized`, as a user runs it: which nodes of a Q/DQ model have to do without their pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from runner.model.graph.edits import set_messages
from runner.model.graph.low_precision import apart
from runner.model.graph.scopes import NameSupply, names_of
from tests.harness import Run, winnow
from tests.jobs.models import parsed, saved
from tests.jobs.precision.test_precision import SIZE, network, search
from tests.matrix import sample


def quantized(folder: Path, layers: int = 6, coarse: int = 3) -> tuple[Path, Path]:
    """A chain and its quantized child, in which the weights of one layer are stored far too coarsely."""
    random, x = np.random.default_rng(1), "x"
    parent, child, floats, stored = "", "", {}, {"scale": np.float32(0.01), "zero": np.int8(0)}
    for at in range(layers):
        values = random.normal(0, 0.3, (SIZE, SIZE)).astype(np.float32)
        step = np.float32(0.4 if at == coarse else 0.01)
        floats[f"w{at}"] = values
        stored |= {f"q{at}": np.clip(np.rint(values / step), -127, 127).astype(np.int8), f"step{at}": step}
        parent += f"[product{at}] m{at} = MatMul({x}, w{at}) [tanh{at}] t{at} = Tanh(m{at}) "
        child += f"""i{at} = QuantizeLinear({x}, scale, zero) d{at} = DequantizeLinear(i{at}, scale, zero)
            v{at} = DequantizeLinear(q{at}, step{at})
            [product{at}] m{at} = MatMul(d{at}, v{at}) [tanh{at}] t{at} = Tanh(m{at}) """
        x = f"t{at}"
    return pair(folder, x, parent, child, floats, stored)


def pair(
    folder: Path, out: str, parent: str, child: str, floats: dict[str, np.ndarray], stored: dict[str, Any]
) -> tuple[Path, Path]:
    """Write the nodes of a model in float and those of its quantized child."""
    ends = f"g (float[4,{SIZE}] x) => (float[4,{SIZE}] {out})"
    return (
        saved(folder / "fp32.onnx", f"{ends} {{ {parent} }}", ir=9, **floats),
        saved(folder / "int8.onnx", f"{ends} {{ {child} }}", ir=9, **stored),
    )


@pytest.mark.parametrize("with_parent", sample([True, False], 2))
def test_a_quantized_model_gets_back_what_one_layer_had(tmp_path: Path, with_parent: bool) -> None:
    fp32, int8 = quantized(tmp_path)
    parent = [f"reference.model={fp32}"] if with_parent else []
    margin = "strategy.margin=1"  # the other layers take more than half of the tolerance
    options = ("checker=compare", "checker.metric=scale", "checker.rtol=0.1", margin, *parent)
    run = winnow("strategy=precision", f"model={int8}", *options, folder=tmp_path / "run")
    if not with_parent:
        # nothing is better than the stored weights themselves: only activations gain
        assert run.code == 4, run.output
        assert "6 quantized weights" in run.output and "give the original as reference.model=" in run.output
        return
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["product3"]
    assert run.result["precision"]["low"] == "quantized" and "(strategy.low=quantized)" in run.output
    assert run.result["precision"]["samples"]["passed_held_out"] is True
    recordings = (run.folder / "winnow.log").read_text().count("partner in the original")
    assert recordings == 1, "of samples that are held out the original's outputs are enough"
    model = run.model("mixed.onnx")
    restored = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT and tensor.dims]
    (good,) = [tensor for tensor in onnx.load(str(fp32)).graph.initializer if tensor.name == "w3"]
    assert len(restored) == 1
    np.testing.assert_array_equal(numpy_helper.to_array(restored[0]), numpy_helper.to_array(good))
    assert sum(node.op_type == "DequantizeLinear" for node in model.graph.node) == 10


@pytest.mark.slow
def test_what_pairs_introduce_says_where_to_begin(tmp_path: Path) -> None:
    fp32, int8 = quantized(tmp_path, layers=24, coarse=21)
    options = ("checker=compare", "checker.rtol=0.25", "strategy.low=quantized", f"reference.model={fp32}")
    options += ("strategy.margin=1", "strategy.held_out=4")  # the other layers take more than half of the tolerance
    run = winnow("strategy=precision", f"model={int8}", *options, "checker.flaky=never", folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["product21"]
    # in the model's order it takes seven
    assert run.result["checks"]["search"] <= 2
    (told,) = run.result["precision"]["selected"]
    assert told["reason"].startswith("quantized, it introduces a relative error of ")
    rows = {row["node"]: row for row in json.loads((run.folder / "layers.json").read_text())}
    assert max(rows.values(), key=lambda row: row["introduced"])["node"] == "product21"
    assert rows["product21"]["introduced"] > 0.2 and all(row["why"] is None for row in rows.values())


def test_what_is_no_quantized_model(tmp_path: Path) -> None:
    run = search(tmp_path, network(), "strategy.low=quantized", code=6)
    assert "strategy.low=float16" in run.output


def clipped(folder: Path) -> tuple[Path, Path]:
    """Layers with a Clip, and the quantized child, in which a pair stands where the Clip was."""
    random, x, parent, child = np.random.default_rng(2), "x", "", ""
    floats = {"lo": np.float32(0), "hi": np.float32(2)}
    stored = {"scale": np.float32(2 / 255), "least": np.int8(-128)}
    for at in range(3):
        values = random.normal(0, 0.5, (SIZE, SIZE)).astype(np.float32)
        step = np.float32(np.abs(values).max() / 127)
        floats = {f"w{at}": values, **floats}
        stored |= {f"w{at}_quantized": np.rint(values / step).astype(np.int8), f"step{at}": step}
        parent += f"[product{at}] m{at} = MatMul({x}, w{at}) [clip{at}] c{at} = Clip(m{at}, lo, hi) "
        child += f"""v{at} = DequantizeLinear(w{at}_quantized, step{at}) [product{at}] m{at} = MatMul({x}, v{at})
            i{at} = QuantizeLinear(m{at}, scale, least) c{at} = DequantizeLinear(i{at}, scale, least) """
        x = f"c{at}"
    return pair(folder, x, parent, child, floats, stored)


@pytest.mark.slow
@pytest.mark.parametrize("with_parent", sample([True, False], 2))
def test_what_a_pair_cut_off_stays_cut_off(tmp_path: Path, with_parent: bool) -> None:
    fp32, int8 = clipped(tmp_path)
    # nothing but the original itself is good enough
    options = ("checker=compare", "checker.metric=scale", "checker.rtol=1e-5", "strategy.low=quantized")
    given = [f"reference.model={fp32}"] if with_parent else []
    values = ("inputs.ranges={x: [-3, 3]}", "checker.flaky=never")
    run = winnow("strategy=precision", f"model={int8}", *options, *given, *values, folder=tmp_path / "run")
    assert run.code == 0, run.output
    mixed = run.model("mixed.onnx")
    # with everything raised, it is the original itself
    assert sum(node.op_type == ("Clip" if with_parent else "Min") for node in mixed.graph.node) == 3
    x = np.random.default_rng(3).uniform(-3, 3, (4, SIZE)).astype(np.float32)
    good, found = (
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[
            0
        ]
        for model in (onnx.load(str(fp32)), mixed)
    )
    assert good.max() == 2.0
    np.testing.assert_allclose(found, good, atol=1e-5 if with_parent else 0.2)


@pytest.mark.slow
def test_a_model_that_this_one_was_not_made_of_is_doubted(tmp_path: Path) -> None:
    fp32, int8 = clipped(tmp_path)
    other = onnx.load(str(fp32))
    for tensor in other.graph.initializer[:2]:
        values = np.random.default_rng(9).normal(0, 0.5, (SIZE, SIZE)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    turned = other.graph.initializer[2]
    turned.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(turned).T.copy(), turned.name))
    onnx.save(other, str(fp32))
    run = search_quantized(tmp_path, int8, fp32)
    assert "reference.model may not be the original of this model" in run.output


def test_pairs_that_fail_by_themselves_are_said_to(tmp_path: Path) -> None:
    fp32, int8 = quantized(tmp_path, layers=2, coarse=9)
    options = ("strategy.low=float16", "checker=compare", "checker.metric=scale", "checker.rtol=0.00001")
    run = winnow("strategy=precision", f"model={int8}", f"reference.model={fp32}", *options, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert "the Q/DQ pairs fail by themselves: with them all and nothing in float16, t1: error" in run.result["message"]


def search_quantized(folder: Path, int8: Path, fp32: Path) -> Run:
    options = ("checker=compare", "strategy.low=quantized", "plan=true")
    return winnow("strategy=precision", f"model={int8}", f"reference.model={fp32}", *options, folder=folder / "run")


def channelwise(folder: Path, channels: int) -> Path:
    """A large model: scales and zeros of every channel lie outside, and one constant is dequantized twice."""
    random, x, nodes, size = np.random.default_rng(4), "x", "", channels
    stored: dict[str, Any] = {"least": np.full(channels, -128, np.int8), "zero": np.zeros(channels, np.int8)}
    for name, shape in (("wide", (size, 9 * size)), ("narrow", (9 * size, size))):
        stored[f"{name}_w"] = random.normal(0, 0.01, shape).astype(np.float32)
        nodes += f"[{name}] {name}_out = MatMul({x}, {name}_w) "
        x = f"{name}_out"
    for at, coarse in enumerate((1, 1, 40)):
        kept = min(at, 1)  # the last two layers share what is stored
        if at == kept:
            values = random.normal(0, size**-0.5, (size, size))
            step = (np.abs(values).max(axis=0) / 127).astype(np.float32)
            stored |= {f"q{kept}": np.rint(values / step).astype(np.int8), f"step{kept}": step}
        stored[f"scale{at}"] = np.full(size, 0.002 * coarse, np.float32)
        nodes += f"""v{at} = DequantizeLinear<axis = 1>(q{kept}, step{kept}, zero)
            [product{at}] m{at} = MatMul({x}, v{at}) i{at} = QuantizeLinear<axis = 1>(m{at}, scale{at}, least)
            d{at} = DequantizeLinear<axis = 1>(i{at}, scale{at}, least) """
        x = f"d{at}"
    text = f"g (float[4,{size}] x) => (float[4,{size}] y) {{ {nodes} [last] y = MatMul({x}, v0) }}"
    return saved(folder / "large.onnx", text, ir=9, **stored)


@pytest.mark.slow
def test_scales_of_many_channels_lie_outside_the_file(tmp_path: Path) -> None:
    large = channelwise(tmp_path, 1024)
    assert large.stat().st_size > 64 << 20
    options = ("checker=compare", "checker.rtol=0.05", "strategy.low=quantized", "checker.flaky=never")
    run = winnow("strategy=precision", f"model={large}", *options, "artifacts=all", folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["last"]
    mixed = run.model("mixed.onnx")
    # what cuts off below zero goes on doing so where the pair is gone
    assert [node.op_type for node in mixed.graph.node][-3:] == ["Max", "Min", "MatMul"]
    onnx.checker.check_model(mixed, full_check=True)
    kept = list((run.folder / "store").glob("kept.*"))
    assert kept
    for path in kept:
        onnx.load(str(path))  # what raised layers read is there as well


@pytest.mark.parametrize("zero", [np.uint8(128), np.int8(0)])
def test_a_raised_node_is_not_quantized_again_over_what_moves_elements(zero: np.generic) -> None:
    """ONNX Runtime moves a pair behind a Transpose, and then quantizes the weight of a MatMul between two pairs."""
    random = np.random.default_rng(0)
    weight = random.normal(0, 1, (SIZE, SIZE)).astype(np.float32)
    weight[0] *= 300
    before = "i = QuantizeLinear(x, step, zero) d = DequantizeLinear(i, step, zero) t = Transpose<perm = [1, 0]>(d)"
    behind = "k = QuantizeLinear(p, wide, zero) y = DequantizeLinear(k, wide, zero)"
    ends, held = f"g (float[{SIZE},4] x) => (float[4,{SIZE}] y)", {"step": np.float32(0.05), "wide": np.float32(10)}
    given = parsed(f"{ends} {{ {before} p = Identity(t) {behind} }}", opset=21, ir=10, zero=zero, **held)
    made = parsed(f"{ends} {{ {before} p = MatMul(t, w) {behind} }}", opset=21, ir=10, zero=zero, w=weight, **held)
    nodes = apart(made.graph.node, given.graph, NameSupply(names_of(made)))
    assert [node.op_type for node in nodes if node.op_type in ("Sub", "Mul")] == ["Sub", "Mul"]
    set_messages(made.graph.node, nodes)
    options, fed, found = onnxruntime.SessionOptions(), {"x": random.normal(0, 1, (SIZE, 4)).astype(np.float32)}, []
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found += session.run(None, fed)
    np.testing.assert_array_equal(*found)
