"""Faults in models of QLinear operators, whose tensors hold steps of what the float original holds there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

pytest.importorskip("onnxruntime.quantization")
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

from benchmarks.planted_models import Network
from benchmarks.quantized_faults import CalibrationSamples, rename
from runner.jobs.precision.regions import integers_of
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.reference.good_values import good_value
from runner.reference.quantized import Reading, as_floats
from tests.harness import Run, winnow
from tests.matrix import sample


def convolutions(net: Network) -> None:
    """Branches that are put together and pooled, with a residual connection."""
    x = net.add("Relu", net.conv(net.input("x", 1, 3, 8, 8), 8, 3))
    one, other = net.add("Relu", net.conv(x, 8, 8)), net.leaky(net.conv(x, 6, 8))
    x = net.add("MaxPool", net.add("Concat", one, other, axis=1), kernel_shape=[1, 1])
    x = net.add("Add", net.add("Relu", net.conv(x, 8, 14)), one)
    net.head(x, 8, "y")


def attention(net: Network) -> None:
    """One head, and a perceptron."""
    x = net.input("x", 1, 10, 16)
    query, key, value = (net.add("MatMul", x, net.weight(16, 16)) for _ in range(3))
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 2, 1]))
    shares = net.add("Softmax", net.add("Mul", scores, net.constant(np.float32(0.25))), axis=-1)
    x = net.add("Add", x, net.add("MatMul", net.add("MatMul", shares, value), net.weight(16, 16)))
    x = net.add(
        "Add", x, net.add("MatMul", net.add("Sigmoid", net.add("MatMul", x, net.weight(16, 32))), net.weight(32, 16))
    )
    net.add("MatMul", x, net.weight(16, 6), out="y")
    net.outputs.append("y")


def pair(folder: Path, build: Callable[[Network], None], *, per_channel: bool = False) -> ModelProto:
    """Save a network and the inputs that it is calibrated on; return what ONNX Runtime's quantizer makes of it."""
    net, draw = Network(3), np.random.default_rng(3)
    build(net)
    samples = [
        {name: draw.uniform(-1, 1, shape).astype(np.float32) for name, shape in net.inputs.items()} for _ in range(8)
    ]
    folder.mkdir(exist_ok=True)
    np.savez(folder / "inputs.npz", **samples[0])
    onnx.save(net.model(), folder / "float.onnx")
    quantize_static(
        folder / "float.onnx",
        folder / "quantized.onnx",
        CalibrationSamples(samples),
        quant_format=QuantFormat.QOperator,
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return onnx.load(folder / "quantized.onnx")


def change(model: ModelProto, node: NodeProto, slot: int, by: Callable[[np.ndarray], np.ndarray]) -> None:
    """Give a node a constant of its own that is another."""
    held = next(numpy_helper.to_array(one) for one in model.graph.initializer if one.name == node.input[slot])
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(by(held), held.dtype), "wrong"))
    node.input[slot] = "wrong"


def nth(model: ModelProto, op_type: str, at: int) -> NodeProto:
    return [node for node in model.graph.node if node.op_type == op_type][at]


def asked(folder: Path, model: ModelProto, *more: str) -> Run:
    rename(model)  # no name says what belongs together
    onnx.save(model, folder / "quantized.onnx")
    given = (f"model={folder / 'quantized.onnx'}", f"reference.model={folder / 'float.onnx'}", *more)
    files = ("inputs=files", f"inputs.path={folder / 'inputs.npz'}")
    judge = ("checker=compare", "checker.metric=scale", "checker.rtol=0.08", "checker.atol=1e-6")
    return winnow(*given, *files, *judge, folder=folder / "run")


SMALLER = lambda held: held / 60  # noqa: E731
LARGER = lambda held: held * 8  # noqa: E731
FAULTS = {
    "a weight's scale": (convolutions, "QLinearConv", 2, 4, SMALLER, True, 1),
    "a bias": (convolutions, "QLinearConv", 1, 8, lambda held: held * 64, False, 1),
    "one reader's zero point": (convolutions, "QLinearAdd", 0, 5, lambda held: held + 96, False, 2),
    "a scale that only one reader has": (attention, "QLinearSigmoid", 0, 1, LARGER, False, 2),
    "a product's weight": (attention, "QLinearMatMul", 2, 4, SMALLER, True, 1),
    "a product of two": (attention, "QLinearMatMul", 4, 6, LARGER, False, 2),
}


@pytest.mark.parametrize("fault", sample(FAULTS, 6))
def test_the_faulty_operator_is_named_and_no_more_than_one_beside_it(tmp_path: Path, fault: str) -> None:
    build, op_type, at, slot, by, per_channel, most = FAULTS[fault]
    model = pair(tmp_path, build, per_channel=per_channel)
    node = nth(model, op_type, at)
    change(model, node, slot, by)
    run = asked(tmp_path, model)
    assert node.name in run.result["culprits"] and len(run.result["culprits"]) <= most, run.output
    assert run.result["cause"]["status"] == "proven"
    of_weights = bool(run.result["cause"].get("weights"))
    assert run.result["whose"] == ("conversion" if of_weights else "quantization"), run.output
    assert run.screen[-1].strip().startswith("(finds the layers that cannot be quantized") is not of_weights, run.output


def test_where_nodes_disagree_most_of_them_are_right_or_what_fits_the_value(tmp_path: Path) -> None:
    model = pair(tmp_path, convolutions)
    held = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    shared = nth(model, "QLinearConv", 0).output[0]  # two convolutions read it
    (right,) = as_floats(Graph.of(model), held.get).readings[shared]
    change(model, nth(model, "QLinearConv", 1), 1, LARGER)
    held["wrong"] = right.scale * 8
    (most,) = as_floats(Graph.of(model), held.get).readings[shared]
    assert most.same(right), "two say so"
    assert integers_of(model)[shared].scale != "wrong"
    change(model, nth(model, "QLinearLeakyRelu", 0), 1, LARGER)
    assert len(as_floats(Graph.of(model), held.get).readings[nth(model, "QLinearLeakyRelu", 0).input[0]]) == 2
    value = right.floats(np.arange(256, dtype=np.uint8)).astype(np.float32)
    theirs = recorded.write(value, "x", tmp_path / "x.pb")
    found = good_value(
        theirs,
        shared,
        TensorProto.UINT8,
        None,
        tmp_path / "q.pb",
        readings=[Reading(right.scale * 8, right.zero), right],
    )
    assert not found.unfit and recorded.read(found.file).tolist() == list(range(256))
    alike = [right, Reading(right.scale, right.zero + 1)]
    theirs = recorded.write(value[100:150], "x", tmp_path / "x.pb")
    assert "disagree" in good_value(theirs, shared, TensorProto.UINT8, None, tmp_path / "q.pb", readings=alike).unfit


def test_operators_are_seen_as_the_original_has_them(tmp_path: Path) -> None:
    model = pair(tmp_path, convolutions)
    held = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    seen = as_floats(Graph.of(model), held.get)
    conv, put = nth(model, "QLinearConv", 1), nth(model, "QLinearConcat", 0)
    assert list(nth(seen.graph.model, "Conv", 1).input) == [conv.input[at] for at in (0, 3, 8)]
    assert list(nth(seen.graph.model, "Concat", 0).input) == [put.input[at] for at in (2, 5)]
    original = {one.name: numpy_helper.to_array(one) for one in onnx.load(tmp_path / "float.onnx").graph.initializer}
    for at, limit in ((3, 0.01), (8, 0.01)):
        stored = seen.readings[conv.input[at]][0].floats(held[conv.input[at]])
        alike = [one for one in original.values() if one.shape == stored.shape]
        assert min(np.abs(one - stored).max() / np.abs(one).max() for one in alike) < limit
