"""Parts of a search for precision that only slow runs reach: what layers cost, whose a weight is, and what is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from runner.exit_codes import UsageError
from runner.jobs.precision import units
from runner.jobs.precision.layers import Pair
from runner.jobs.precision.prepare_model import convert_weights
from runner.jobs.precision.setup import _weights, pair_of
from runner.model.files.candidate_store import Store
from runner.model.graph.low_precision import QdqPair
from runner.schema.strategy import FloatType, PrecisionSettings

SHAPES = {
    "a": (2, 3, 4),
    "b": (4, 5),
    "w": (6, 3, 2, 2),
    "i": (1, 3, 8, 8),
    "m": (2, 3, 5),
    "c": (1, 6, 7, 7),
    "k": (2, 9, 4),
}
OWN = "com.microsoft"


@pytest.mark.parametrize(
    ("node", "work"),
    [
        (helper.make_node("MatMul", ["a", "b"], ["m"]), 2 * 30 * 4),
        (helper.make_node("Gemm", ["b", "a"], ["m"], transA=1), 2 * 30 * 4),
        (helper.make_node("Conv", ["i", "w"], ["c"]), 2 * 294 * 12),
        (helper.make_node("ConvTranspose", ["i", "w"], ["c"]), 2 * 192 * 12),
        (helper.make_node("Add", ["a", "b"], ["m"]), 30),
        (helper.make_node("Relu", ["a"], ["m"]), 30),
        (helper.make_node("Attention", ["a", "b"], ["m"], domain=OWN), 30 + 2 * 24 * 5 + 4 * 2 * 9 * 4),
        (helper.make_node("Attention", ["a"], ["m"], domain=OWN), 30 + 4 * 2 * 9 * 4),
        (helper.make_node("MultiHeadAttention", ["a", "k"], ["m"], domain=OWN), 30 + 4 * 2 * 3 * 9 * 4),
        (helper.make_node("MultiHeadAttention", ["a", "b"], ["m"], domain=OWN), 30 + 4 * 2 * 3 * 3 * 4),
        (helper.make_node("Attention", ["a", "b"], ["m"]), 30),
    ],
)
def test_the_arithmetic_of_a_layer(node: NodeProto, work: float) -> None:
    model = SimpleNamespace(graph=SimpleNamespace(node=[node], initializer=[]))
    recorded = {name: SimpleNamespace(shape=shape) for name, shape in SHAPES.items()}
    casting: Any = SimpleNamespace(
        layers=[SimpleNamespace(nested=False, key=(0, 0), path="one"), SimpleNamespace(nested=True, path="two")],
        mixer=SimpleNamespace(model=model),
    )
    loaded: Any = SimpleNamespace(inherited=None, recorded=SimpleNamespace(values=[recorded, {}]))
    assert units.arithmetic(casting, loaded) == {0: work, 1: 0.0}
    own: Any = SimpleNamespace(costs={"two": 3})
    assert units.costs_of(own, casting, loaded) == {0: 0.0, 1: 3.0}
    for costs, said in (({"none": 1}, "called 'none'; they are one, two$"), ({"two": -1}, "not negative")):
        with pytest.raises(UsageError, match=said):
            units.costs_of(SimpleNamespace(costs=costs), casting, loaded)  # type: ignore[arg-type]


def test_eight_bits_are_the_wider_type_of_a_quantized_model_alone() -> None:
    pair_of(PrecisionSettings(low=FloatType.quantized, high=FloatType.int8))
    with pytest.raises(UsageError, match="the low precision must be narrower"):
        pair_of(PrecisionSettings(low=FloatType.float16, high=FloatType.int8))


def structure(path: Path, weights: dict[str, np.ndarray], *nodes: NodeProto) -> str:
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    path.write_bytes(helper.make_model(helper.make_graph(nodes, "g", [], [], tensors)).SerializeToString())
    return str(path)


def test_a_raised_layer_gets_the_weights_that_were_rounded(tmp_path: Path) -> None:
    """Those of the parent that are stored here, as they are or turned; else what is stored."""
    random = np.random.default_rng(0)
    better = {name: random.standard_normal((20, 30)).astype(np.float32) for name in ("same", "turned", "other", "half")}
    scale = np.float32(0.02)
    stored = {name: np.clip(np.round(value / scale), -127, 127).astype(np.int8) for name, value in better.items()}
    stored |= {"turned": np.ascontiguousarray(stored["turned"].T), "other": stored["other"] + np.int8(3)}
    held = {f"{name}_q": stored[name] for name in ("same", "turned", "other")} | {"scale": scale}
    held |= {"half": better["half"].astype(np.float16), "stranger": np.ones((2, 2), np.float16)}
    nodes = [
        helper.make_node("DequantizeLinear", [f"{name}_q", "scale"], [f"{name}_d"])
        for name in ("same", "turned", "other")
    ]
    parent = structure(tmp_path / "parent", better | {"stranger": np.zeros((2, 2), np.float32), "int": np.int64([1])})
    args: dict[str, Any] = {
        "model": structure(tmp_path / "model", held, *nodes),
        "low": TensorProto.FLOAT16,
        "high": TensorProto.FLOAT,
        "parent": parent,
        "quantized": {f"0/{name}_d": ["int", "half", name] for name in ("same", "turned", "other")},
        "out": str(tmp_path / "out"),
    }
    told = convert_weights(args)
    names = {"taken": ["half", "same_d", "turned_d"], "strangers": ["other_d", "stranger"], "rounded": ["other_d"]}
    assert {key: told[key] for key in names} == names
    made = ModelProto.FromString((tmp_path / "out").read_bytes()).graph.initializer
    found = {one.name: Store(tmp_path).array(one) for one in made}
    right = {"half": better["half"], "same_d": better["same"], "turned_d": better["turned"].T}
    right |= {"other_d": stored["other"] * scale, "stranger": np.ones((2, 2)), "scale": np.float16(scale)}
    assert found.keys() == {f"0/{name}" for name in right}
    assert all(np.array_equal(found[f"0/{name}"], value) for name, value in right.items())
    told = convert_weights({**args, "parent": None, "low": TensorProto.FLOAT})
    assert {key: told[key] for key in names} == {
        "taken": [],
        "strangers": [],
        "rounded": ["other_d", "same_d", "turned_d"],
    }


def test_a_weight_in_a_body_may_be_the_parents_under_the_name_of_what_is_dequantized(tmp_path: Path) -> None:
    """Tensors of bodies have no partners, and only ONNX Runtime's tools name what is stored after the weight."""
    asked: dict[str, Any] = {}

    def worked(_: str, args: dict[str, Any]) -> dict[str, Any]:
        asked.update(args)
        Path(args["out"]).write_bytes(ModelProto().SerializeToString())
        return {}

    loaded: Any = SimpleNamespace(inherited=None)
    pairs = [{}, {"w": QdqPair(None, TensorProto(name="integers")), "x": QdqPair("y")}]
    _weights(worked, tmp_path / "typed.onnx", loaded, Pair(TensorProto.FLOAT, TensorProto.FLOAT), pairs)
    assert asked["quantized"] == {"1/w": ["", "integers", "w"]}
