"""An index that flips within the rounding of its scores is said to be that, and no operator is proven to be wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from runner.jobs.reduce import flipped_index
from runner.model.values import recorded
from tests.harness import Run, winnow
from tests.jobs.models import parsed

SCORES = np.float32([[3, 0.5, 0.5, 1, 0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 1, 0.5, 0.5, 0.5, 1]])
TINY = np.float32([0, 0, 0, 0, 0, 0, 0, 0.4375 * 2**-23])
ARGMAX = helper.make_node("ArgMax", ["s"], ["chosen"], "chosen", axis=1, keepdims=0)
TOPK = helper.make_node("TopK", ["s", "k"], ["best", "chosen"], "chosen")
NMS = helper.make_node("NonMaxSuppression", ["boxes", "wide", "k"], ["chosen"], "chosen")
WIDEN = helper.make_node("Unsqueeze", ["s", "axis"], ["wide"], "wide")
LAST = helper.make_node("Cast", ["chosen"], ["y"], "last", to=TensorProto.INT32)


def chosen(folder: Path, nodes: list[NodeProto], *more: str, tiny: np.ndarray = TINY, wrong: float = 0.0) -> Run:
    """Two sums of the same three numbers, in another order: (x + b) + c of the model, x + (b + c) of its parent.

    ``wrong``: what the model's sum has besides.
    """
    held = {"b": tiny, "c": tiny, "k": np.int64([1]), "axis": np.int64([1])}
    held["boxes"] = np.float32([[[9 * at, 0, 9 * at + 1, 1] for at in range(8)]] * 2)
    sums = {"child": "xb = Add(x, b) s = Add(xb, c)", "parent": "bc = Add(b, c) s = Add(x, bc)"}
    for name, first in sums.items():
        model = parsed(f"g (float[2,8] x) => (int32 y) {{ {first} }}")
        model.graph.node.extend([*nodes, LAST])
        model.graph.output[0].type.tensor_type.ClearField("shape")
        off = {"c": tiny + np.float32(wrong) * (tiny > 0)} if name == "child" else {}
        read = {one for node in model.graph.node for one in node.input}
        kept = {one: value for one, value in {**held, **off}.items() if one in read}
        model.graph.initializer.extend(numpy_helper.from_array(value, one) for one, value in kept.items())
        onnx.save(model, folder / f"{name}.onnx")
    np.savez(folder / "inputs.npz", x=SCORES)
    given = ("inputs=files", f"inputs.path={folder / 'inputs.npz'}", "target.optimization=none", "checker=compare")
    models = (f"model={folder / 'child.onnx'}", f"reference.model={folder / 'parent.onnx'}")
    return winnow(*models, *given, "checker.flaky=never", *more, folder=folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [[ARGMAX], [TOPK], [WIDEN, NMS]], ids=["ArgMax", "TopK", "NonMaxSuppression"])
def test_an_index_that_flips_within_rounding_is_said_to_be_that(tmp_path: Path, nodes: list[NodeProto]) -> None:
    run = chosen(tmp_path, nodes)
    cause = run.result["cause"]
    assert (run.code, run.result["status"], cause["status"]) == (8, "suspected", "not proven"), run.output
    said = "chosen gives index 3 instead of 7: their scores in"
    assert (
        cause["reason"].startswith(said)
        and " differ by 1.2e-07, which is less than the rounding of the float32" in cause["reason"]
    )
    assert said in run.output and said in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_where_no_cause_is_asked_for_a_warning_says_it(tmp_path: Path) -> None:
    run = chosen(tmp_path, [ARGMAX], "strategy.find=one")
    assert run.code == 0 and any("index 3 instead of 7" in one for one in run.result["warnings"]), run.output


@pytest.mark.variants
@pytest.mark.parametrize("wrong", [-2e-4, -1.0])
def test_scores_that_are_wrong_flip_an_index_too(tmp_path: Path, wrong: float) -> None:
    """The model's score is smaller than its parent's, by less than is allowed of scores, or by more."""
    run = chosen(tmp_path, [ARGMAX], "checker.rtol=0.01", tiny=TINY * 2**10, wrong=wrong)
    assert "rounding" not in run.output and run.result["cause"]["status"] == "proven", run.output


SCORED = np.float32([[1, 1 + 2**-23, 0, 0.5], [3, 2, np.nan, 1]])


@pytest.mark.parametrize(
    ("node", "scores", "indices", "flips", "said"),
    [
        (ARGMAX, SCORED, [1, 0], [[0, 0, 1]], "chosen gives index 0 instead of 1: their scores in s differ by 1.2e-07"),
        (ARGMAX, SCORED, [1, 0], [[0, 2, 1]], ""),
        (ARGMAX, SCORED, [1, 0], [[0, 0, 1], [0, 1, 1]], "e-07, the largest gap of 2 such indices, which is less"),
        (ARGMAX, SCORED, [1, 0], [[0, 0, 4]], ""),
        (ARGMAX, SCORED, [1, 0], [[0, 0, -1]], ""),
        (ARGMAX, SCORED, [1, 0], [[1, 0, 2]], ""),
        (ARGMAX, SCORED, [1, 0, 2], [[0, 0, 1]], ""),
        (ARGMAX, np.nan_to_num(SCORED).astype(np.int32), [1, 0], [[0, 0, 1]], ""),
        (TOPK, SCORED, [[1, 0], [0, 1]], [[1, 1, 0]], "index 1 instead of 0"),
        (TOPK, SCORED, [[1, 0], [0, 1]], [[2, 1, 0]], ""),
        (NMS, SCORED[None], [[0, 0, 1], [0, 1, 0]], [[2, 0, 1]], "index 0 instead of 1"),
        (NMS, SCORED[None], [[0, 0, 1], [0, 1, 0]], [[5, 1, 0]], ""),
        (NMS, SCORED[None], [[0, 0, 1], [0, 1, 0]], [[1, 0, 1]], ""),
    ],
)
def test_which_index_flips_within_the_rounding_of_its_scores(
    tmp_path: Path, node: NodeProto, scores: np.ndarray, indices: list, flips: list, said: str
) -> None:
    scored, chosen = node.input[node.op_type == "NonMaxSuppression"], node.output[node.op_type == "TopK"]
    held = {scored: scores, chosen: np.int64(indices)}
    sample = {name: recorded.write(value, name, tmp_path / f"{name}.pb") for name, value in held.items()}
    graph: Any = SimpleNamespace(protos=[node])
    one: Any = SimpleNamespace(index=0, op_type=node.op_type, name=node.name)
    told = flipped_index._within_rounding(graph, one, sample, flips)
    assert said in told.replace(" wide ", " s ") and bool(told) == bool(said)
    for name, value in sample.items():
        assert not flipped_index._within_rounding(graph, one, {name: value}, flips)
