"""`strategy.low=quantized`, as a user runs it: which nodes of a Q/DQ model have to do without their pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.harness import Run, winnow
from tests.jobs.precision.test_precision import SIZE, network, search
from tests.matrix import sample


def quantized(folder: Path, layers: int = 6, coarse: int = 3) -> tuple[Path, Path]:
    """A chain and its quantized child, in which the weights of one layer are stored far too coarsely."""
    random = np.random.default_rng(1)
    parent, child, floats, stored = [], [], [], []
    x = mine = "x"
    scale = numpy_helper.from_array(np.array(0.01, np.float32), "scale")
    zero = numpy_helper.from_array(np.array(0, np.int8), "zero")
    for number in range(layers):
        values = random.normal(0, 0.3, (SIZE, SIZE)).astype(np.float32)
        step = np.float32(0.4 if number == coarse else 0.01)
        floats.append(numpy_helper.from_array(values, f"w{number}"))
        stored.append(numpy_helper.from_array(np.clip(np.rint(values / step), -127, 127).astype(np.int8), f"q{number}"))
        stored.append(numpy_helper.from_array(step, f"step{number}"))
        parent.append(helper.make_node("MatMul", [x, f"w{number}"], [f"m{number}"], name=f"product{number}"))
        parent.append(helper.make_node("Tanh", [f"m{number}"], [f"t{number}"], name=f"tanh{number}"))
        child += [
            helper.make_node("QuantizeLinear", [mine, "scale", "zero"], [f"i{number}"]),
            helper.make_node("DequantizeLinear", [f"i{number}", "scale", "zero"], [f"d{number}"]),
            helper.make_node("DequantizeLinear", [f"q{number}", f"step{number}"], [f"v{number}"]),
            helper.make_node("MatMul", [f"d{number}", f"v{number}"], [f"m{number}"], name=f"product{number}"),
            helper.make_node("Tanh", [f"m{number}"], [f"t{number}"], name=f"tanh{number}"),
        ]
        x = mine = f"t{number}"
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, SIZE])] for name in ("x", x)]
    for name, nodes, weights in (("fp32", parent, floats), ("int8", child, [*stored, scale, zero])):
        model = helper.make_model(
            helper.make_graph(nodes, "g", *ends, weights), opset_imports=[helper.make_opsetid("", 17)]
        )
        model.ir_version = 9
        onnx.save(model, str(folder / f"{name}.onnx"))
    return folder / "fp32.onnx", folder / "int8.onnx"


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
    recordings = (run.folder / "winnow.log").read_text().count("have a partner in the original")
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
    options += ("strategy.margin=1",)  # the other layers take more than half of the tolerance
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
    run = search(tmp_path, network(), "strategy.low=quantized")
    assert run.code == 6, run.output
    assert "strategy.low=float16" in run.output


def clipped(folder: Path) -> tuple[Path, Path]:
    """Layers with a Clip, and the quantized child, in which a pair stands where the Clip was."""
    random = np.random.default_rng(2)
    parent, child, floats, stored = [], [], [], []
    ends = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (("lo", 0.0), ("hi", 2.0))]
    scale = numpy_helper.from_array(np.array(2 / 255, np.float32), "scale")
    least = numpy_helper.from_array(np.array(-128, np.int8), "least")
    x = "x"
    for number in range(3):
        values = random.normal(0, 0.5, (SIZE, SIZE)).astype(np.float32)
        step = np.float32(np.abs(values).max() / 127)
        floats.append(numpy_helper.from_array(values, f"w{number}"))
        stored.append(numpy_helper.from_array(np.rint(values / step).astype(np.int8), f"w{number}_quantized"))
        stored.append(numpy_helper.from_array(step, f"step{number}"))
        product = helper.make_node("MatMul", [x, f"w{number}"], [f"m{number}"], name=f"product{number}")
        parent += [product, helper.make_node("Clip", [f"m{number}", "lo", "hi"], [f"c{number}"], name=f"clip{number}")]
        child += [
            helper.make_node("DequantizeLinear", [f"w{number}_quantized", f"step{number}"], [f"v{number}"]),
            helper.make_node("MatMul", [x, f"v{number}"], [f"m{number}"], name=f"product{number}"),
            helper.make_node("QuantizeLinear", [f"m{number}", "scale", "least"], [f"i{number}"]),
            helper.make_node("DequantizeLinear", [f"i{number}", "scale", "least"], [f"c{number}"]),
        ]
        x = f"c{number}"
    values_of = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, SIZE])] for name in ("x", x)]
    for name, nodes, weights in (("fp32", parent, [*floats, *ends]), ("int8", child, [*stored, scale, least])):
        graph = helper.make_graph(nodes, "g", *values_of, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 9
        onnx.save(model, str(folder / f"{name}.onnx"))
    return folder / "fp32.onnx", folder / "int8.onnx"


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


def search_quantized(folder: Path, int8: Path, fp32: Path) -> Run:
    options = ("checker=compare", "strategy.low=quantized", "plan=true")
    return winnow("strategy=precision", f"model={int8}", f"reference.model={fp32}", *options, folder=folder / "run")


def channelwise(folder: Path, channels: int) -> Path:
    """A large model: scales and zeros of every channel lie outside, and one constant is dequantized twice."""
    random = np.random.default_rng(4)
    x, nodes, stored = "x", [], []

    def constant(name: str, values: np.ndarray) -> str:
        stored.append(numpy_helper.from_array(values, name))
        return name

    for name, shape in (("wide", (channels, 9 * channels)), ("narrow", (9 * channels, channels))):
        constant(f"{name}_w", random.normal(0, 0.01, shape).astype(np.float32))
        nodes.append(helper.make_node("MatMul", [x, f"{name}_w"], [f"{name}_out"], name=name))
        x = f"{name}_out"
    least = constant("least", np.full(channels, -128, np.int8))
    zero = constant("zero", np.zeros(channels, np.int8))
    for number, coarse in enumerate((1, 1, 40)):
        kept = min(number, 1)  # the last two layers share what is stored
        if number == kept:
            values = random.normal(0, channels**-0.5, (channels, channels))
            step = (np.abs(values).max(axis=0) / 127).astype(np.float32)
            constant(f"q{kept}", np.rint(values / step).astype(np.int8))
            constant(f"step{kept}", step)
        nodes += [
            helper.make_node("DequantizeLinear", [f"q{kept}", f"step{kept}", zero], [f"v{number}"], axis=1),
            helper.make_node("MatMul", [x, f"v{number}"], [f"m{number}"], name=f"product{number}"),
        ]
        ends = [constant(f"scale{number}", np.full(channels, 0.002 * coarse, np.float32)), least]
        nodes.append(helper.make_node("QuantizeLinear", [f"m{number}", *ends], [f"i{number}"], axis=1))
        nodes.append(helper.make_node("DequantizeLinear", [f"i{number}", *ends], [f"d{number}"], axis=1))
        x = f"d{number}"
    nodes.append(helper.make_node("MatMul", [x, "v0"], ["y"], name="last"))
    ends_of = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, channels])] for name in ("x", "y")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ends_of, stored), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    onnx.save(model, str(folder / "large.onnx"))
    return folder / "large.onnx"


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
