"""What a converted model holds otherwise than its original, and undoes later, is no fault of any node."""

from __future__ import annotations

from collections.abc import Callable
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


Block = Callable[[np.random.Generator, str, str, int, bool, str], tuple[str, Weights, str]]
"""Takes numbers, a block's mark, what it reads, its number, whether it is scaled and the fault; gives what is new."""


def attention(
    rng: np.random.Generator, n: str, at: str, block: int, scaled: bool, fault: str
) -> tuple[str, Weights, str]:
    """A normalization, q, k and v; its gain may be divided by what their weights are multiplied with."""
    gain, offset, scale = rng.uniform(0.5, 1.5, SIZE), rng.normal(size=SIZE), rng.uniform(0.3, 2.3, SIZE)
    scale = scale if scaled else np.ones(SIZE)
    held = {f"{n}{one}": rng.normal(size=(SIZE, SIZE)) * 0.4 for one in "qkvo"}
    held |= {f"{n}{one}": held[f"{n}{one}"] * scale[:, None] for one in "qkv" if one != fault}
    held |= {f"{n}g": gain / scale, f"{n}b": offset / scale}
    held[f"{n}o"] = held[f"{n}o"].T if fault == "o" else held[f"{n}o"]
    text = (
        f"[norm{block}] {n}_n = LayerNormalization ({at}, {n}g, {n}b) "
        + " ".join(f"[{one}{block}] {n}_{one} = MatMul ({n}_n, {n}{one})" for one in "qkv")
        + f"[turn{block}] {n}_t = Transpose ({n}_k) [scores{block}] {n}_s = MatMul ({n}_q, {n}_t) "
        f"[soft{block}] {n}_w = Softmax ({n}_s) [mixed{block}] {n}_m = MatMul ({n}_w, {n}_v) "
        f"[o{block}] {n}_o = MatMul ({n}_m, {n}o) [add{block}] {n}_y = Add ({at}, {n}_o) "
    )
    return text, held, f"{n}_y"


def layers(rng: np.random.Generator, n: str, at: str, block: int, scaled: bool, fault: str) -> tuple[str, Weights, str]:
    """Two products with a Relu between; the first may make a multiple, which the second divides again."""
    first, second, bias = (rng.normal(size=size) * 0.4 for size in ((SIZE, SIZE), (SIZE, SIZE), (SIZE,)))
    scale = rng.uniform(0.3, 2.3, SIZE)
    scale = scale if scaled else np.ones(SIZE)
    held = {f"{n}w": first * scale, f"{n}v": second / scale[:, None], f"{n}b": bias if fault else bias * scale}
    text = (
        f"[first{block}] {n}_f = Gemm ({at}, {n}w, {n}b) [relu{block}] {n}_r = Relu ({n}_f) "
        f"[second{block}] {n}_s = MatMul ({n}_r, {n}v) [tanh{block}] {n}_t = Tanh ({n}_s) "
    )
    return text, held, f"{n}_t"


def merged(rng: np.random.Generator, n: str, at: str, block: int, scaled: bool, fault: str) -> tuple[str, Weights, str]:
    """Two products in a row, or one with the product of both weights; here the second one's is turned."""
    one, two = (rng.normal(size=(SIZE, SIZE)) * 0.4 for _ in range(2))
    if scaled:
        held, second = {f"{n}w": one @ (two.T if fault else two)}, ""
    else:
        held, second = {f"{n}w": one, f"{n}v": two}, f"[second{block}] {n}_s = MatMul ({n}_f, {n}v) "
    text = (
        f"[first{block}] {n}_f = MatMul ({at}, {n}w) {second}[tanh{block}] {n}_t = Tanh ({n}_{'s' if second else 'f'}) "
    )
    return text, held, f"{n}_t"


def saved(path: Path, network: Block, mark: str, *, scaled: bool = False, fault: str = "") -> Path:
    """Save blocks of a network, of which the second one has the fault."""
    rng, text, held, at = np.random.default_rng(3), "", Weights(), "x"
    for block in range(BLOCKS):
        more, weights, at = network(rng, f"{mark}{block}", at, block, scaled, fault if block == 1 else "")
        text, held = text + more, held | weights
    ends = [[helper.make_tensor_value_info(name, 1, [5, SIZE])] for name in ("x", at)]
    given = [numpy_helper.from_array(np.asarray(one, np.float32), name) for name, one in held.items()]
    onnx.save(model_of(text, *ends, given), path)
    return path


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
    tmp_path: Path, network: Block, fault: str, nodes: set[str], mark: str
) -> None:
    original = saved(tmp_path / "original.onnx", network, "h")
    model = saved(tmp_path / "model.onnx", network, mark, scaled=True, fault=fault)
    run = winnow(f"model={model}", f"reference.model={original}", folder=tmp_path / "run")
    assert {*run.result["culprits"]} == nodes, run.output
    assert run.result["cause"]["status"] == "proven"
