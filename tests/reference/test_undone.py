"""What a converted model holds otherwise than its original, and undoes later, is no fault of any node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.harness import winnow
from tests.model.models import model_of

Weights = dict[str, np.ndarray[Any, Any]]
BLOCKS, SIZE = 3, 8


def random(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


def save(path: Path, text: str, held: Weights, end: str) -> Path:
    ends = [[helper.make_tensor_value_info(name, 1, [5, SIZE])] for name in ("x", end)]
    given = [numpy_helper.from_array(np.asarray(one, np.float32), name) for name, one in held.items()]
    onnx.save(model_of(text, *ends, given), path)
    return path


def attention(path: Path, mark: str, *, scaled: bool, fault: str = "") -> Path:
    """Blocks of a normalization, q, k and v; its gain may be divided by what their weights are multiplied with."""
    rng, text, held, at = random(), "", Weights(), "x"
    for block in range(BLOCKS):
        name = f"{mark}{block}"
        gain, offset, scale = rng.uniform(0.5, 1.5, SIZE), rng.normal(size=SIZE), rng.uniform(0.3, 2.3, SIZE)
        scale = scale if scaled else np.ones(SIZE)
        held |= {f"{name}g": gain / scale, f"{name}b": offset / scale}
        for one in "qkvo":
            held[f"{name}{one}"] = rng.normal(size=(SIZE, SIZE)) * 0.4
        for one in "qkv":
            if (one, block) != (fault, 1):
                held[f"{name}{one}"] *= scale[:, None]
        if fault == "o" and block == 1:
            held[f"{name}o"] = held[f"{name}o"].T
        n = name
        text += (
            f"[norm{block}] {n}_n = LayerNormalization ({at}, {n}g, {n}b) "
            + " ".join(f"[{one}{block}] {n}_{one} = MatMul ({n}_n, {n}{one})" for one in "qkv")
            + f"[turn{block}] {n}_t = Transpose ({n}_k) [scores{block}] {n}_s = MatMul ({n}_q, {n}_t) "
            f"[soft{block}] {n}_w = Softmax ({n}_s) [mixed{block}] {n}_m = MatMul ({n}_w, {n}_v) "
            f"[o{block}] {n}_o = MatMul ({n}_m, {n}o) [add{block}] {n}_y = Add ({at}, {n}_o) "
        )
        at = f"{n}_y"
    return save(path, text, held, at)


def layers(path: Path, mark: str, *, scaled: bool, fault: str = "") -> Path:
    """Pairs of products with a Relu between; the first may make a multiple, which the second divides again."""
    rng, text, held, at = random(4), "", Weights(), "x"
    for block in range(BLOCKS):
        name = f"{mark}{block}"
        first, second, bias = (rng.normal(size=size) * 0.4 for size in ((SIZE, SIZE), (SIZE, SIZE), (SIZE,)))
        scale = rng.uniform(0.3, 2.3, SIZE)
        scale = scale if scaled else np.ones(SIZE)
        held |= {f"{name}w": first * scale, f"{name}v": second / scale[:, None]}
        held[f"{name}b"] = bias if fault == "b" and block == 1 else bias * scale
        text += (
            f"[first{block}] {name}_f = Gemm ({at}, {name}w, {name}b) [relu{block}] {name}_r = Relu ({name}_f) "
            f"[second{block}] {name}_s = MatMul ({name}_r, {name}v) [tanh{block}] {name}_t = Tanh ({name}_s) "
        )
        at = f"{name}_t"
    return save(path, text, held, at)


def merged(path: Path, mark: str, *, scaled: bool, fault: str = "") -> Path:
    """Two products in a row, or one with the product of both weights; here the second one's is turned."""
    rng, text, held, at = random(5), "", Weights(), "x"
    for block in range(BLOCKS):
        name = f"{mark}{block}"
        one, two = (rng.normal(size=(SIZE, SIZE)) * 0.4 for _ in range(2))
        held |= {f"{name}w": one @ (two.T if fault and block == 1 else two)} if scaled else {f"{name}w": one}
        held |= {} if scaled else {f"{name}v": two}
        text += f"[first{block}] {name}_f = MatMul ({at}, {name}w) "
        text += "" if scaled else f"[second{block}] {name}_s = MatMul ({name}_f, {name}v) "
        text += f"[tanh{block}] {name}_t = Tanh ({name}_{'f' if scaled else 's'}) "
        at = f"{name}_t"
    return save(path, text, held, at)


@pytest.mark.parametrize(
    ("network", "fault", "nodes"),
    [
        (attention, "v", {"v1"}),
        (attention, "o", {"o1"}),
        (layers, "b", {"first1", "relu1", "second1"}),
        (merged, "w", {"first1"}),
    ],
)
@pytest.mark.parametrize("mark", ["h", "c"])
def test_a_scale_that_the_weights_after_it_undo_is_no_fault(
    tmp_path: Path, network: Any, fault: str, nodes: set[str], mark: str
) -> None:
    original = network(tmp_path / "original.onnx", "h", scaled=False)
    model = network(tmp_path / "model.onnx", mark, scaled=True, fault=fault)
    run = winnow(f"model={model}", f"reference.model={original}", folder=tmp_path / "run")
    assert {*run.result["culprits"]} == nodes, run.output
    assert run.result["cause"]["status"] == "proven"
