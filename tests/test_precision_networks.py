"""The networks of the precision benchmarks fail as they say, and what judges the answers sees what it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")
from benchmarks.precision_networks import (
    TOKENS,
    Case,
    Judge,
    cancelled_variance,
    constant_rows,
    error,
    expected,
    infinities,
    large_scores,
    rotary,
)

RTOL = 0.01
SMALL: list[Callable[[], Case]] = [
    lambda: constant_rows(3, width=16, depth=2),
    lambda: large_scores(3, width=32, depth=1, heads=2),
    lambda: cancelled_variance(3, width=16, depth=2),
    lambda: rotary(3, width=16, depth=1),
]


def lowered(model: ModelProto) -> ModelProto:
    """Convert all of a model to fp16 inside; its inputs and outputs stay as they are."""
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            half = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    floats = [value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT]
    nodes = [helper.make_node("Cast", [name], [f"{name}_half"], to=TensorProto.FLOAT16) for name in floats]
    for node in graph.node:
        node.input[:] = [f"{name}_half" if name in floats else name for name in node.input]
        node.output[:] = ["y_half" if name == "y" else name for name in node.output]
        for attribute in node.attribute:
            if attribute.name == "to":
                attribute.i = TensorProto.FLOAT16
        nodes.append(node)
    nodes.append(helper.make_node("Cast", ["y_half"], ["y"], to=TensorProto.FLOAT))
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    return made


def worst(model: ModelProto, case: Case, samples: list[dict[str, Any]]) -> float:
    outputs = [found for found, _ in Judge(None).tables(model, samples)]
    good = expected(case.model, samples)
    assert all(np.isfinite(one["y"]).all() for one in good)
    return max(error(found, wanted, RTOL) for found, wanted in zip(outputs, good, strict=True))


@pytest.mark.parametrize("make", SMALL)
def test_passes_in_fp32_and_fails_in_fp16(make: Callable[[], Case]) -> None:
    case = make()
    samples = case.samples(1, 2)

    assert worst(case.model, case, samples) < 0.01
    assert worst(lowered(case.model), case, samples) > 1


def test_seeds_tell_models_and_inputs_apart() -> None:
    one, other = constant_rows(1, depth=1), constant_rows(2, depth=1)

    assert one.model != other.model
    assert one.model == constant_rows(1, depth=1).model
    assert (one.samples(1, 1)[0]["x"] != one.samples(2, 1)[0]["x"]).any()
    assert one.samples(1, 2)[0]["x"].shape == (1, TOKENS, 32)


def after_overflow(op: str) -> ModelProto:
    """What ``op`` makes of ``x * 4096``, as it would be after a conversion to fp16."""
    nodes = [
        helper.make_node("Cast", ["x"], ["x_low"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["x_low", "gain"], ["large"]),
        helper.make_node(op, ["large"], ["small"]),
        helper.make_node("Cast", ["small"], ["y"], to=TensorProto.FLOAT),
    ]
    gain = numpy_helper.from_array(np.array(4096, np.float16), "gain")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "overflow", values[:1], values[1:], [gain])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(("op", "harmed"), [("Tanh", ()), ("Reciprocal", ("small",)), ("Sqrt", ("y",))])
def test_an_infinity_is_absorbed_or_does_harm(op: str, harmed: tuple[str, ...]) -> None:
    mixed = after_overflow(op)
    large = np.array([8.0, 20.0, 60.0], np.float32) * 4096
    made = {"Tanh": np.tanh, "Reciprocal": np.reciprocal, "Sqrt": np.sqrt}[op](large)
    before = {"large": large, "small": made, "y": made}
    feeds = [{"x": large / 4096}]
    (_, after), *_ = Judge(None).tables(mixed, feeds)

    new = infinities(mixed, feeds, [before], [after])

    assert new[0].tensor == "large"
    assert next((one.harmed for one in new if one.harmed), ()) == harmed


def test_an_infinity_of_the_original_is_not_new() -> None:
    mixed = after_overflow("Tanh")
    feeds = [{"x": np.array([8.0, 20.0, 60.0], np.float32)}]
    (_, after), *_ = Judge(None).tables(mixed, feeds)

    assert infinities(mixed, feeds, [after], [after]) == []


def test_what_rounding_alone_makes_wrong_is_no_harm_of_an_infinity() -> None:
    mixed = after_overflow("Softmax")
    feeds = [{"x": np.array([-60.0, 1.0, 1.0], np.float32)}]
    (_, after), *_ = Judge(None).tables(mixed, feeds)
    # the original had other logits beside the one that is beyond the range
    before = {"large": np.array([-245760.0, 4095.0, 4096.0]), "small": np.array([0.0, 0.27, 0.73])}

    (found,) = infinities(mixed, feeds, [before], [after])

    assert (found.wrong, found.harmed) == (("small",), ())


def test_outputs_are_held_against_their_scale() -> None:
    good = {"y": np.array([100.0, 0.0]), "flags": np.array([True])}

    assert error(good, good, RTOL) == 0
    assert error({**good, "y": np.array([100.0, 2.0])}, good, RTOL) == pytest.approx(2, rel=1e-3)
    assert error({**good, "y": np.array([np.nan, 0.0])}, good, RTOL) == np.inf
    assert error({**good, "y": np.array([1.0])}, good, RTOL) == np.inf
