"""Real runs of models in which a mask holds -Inf: it is at fault only where it reaches the outputs itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import saved

SIZE = 6
EMPTY = np.where(np.arange(SIZE)[:, None] == 3, False, np.tril(np.ones((SIZE, SIZE), bool)))
"""Which elements a mask leaves: of one row none."""
INF = np.float32(np.inf)


Steps = Sequence[tuple[str, str, str]]


def reduced(folder: Path, steps: Steps, weights: dict[str, np.ndarray], *check: str) -> Run:
    """Reduce a model that makes ``z`` of ``x`` where that has a NaN or Inf; ``check``: another one than ours.

    ``steps``: operators, what they read and what they give, as which a node is called.
    """
    nodes = " ".join(f"[{gives}] {gives} = {kind}({', '.join(reads.split())})" for kind, reads, gives in steps)
    path = saved(
        folder / "net.onnx", f"g (float[{SIZE},{SIZE}] x) => (float[{SIZE},{SIZE}] z) {{ {nodes} }}", **weights
    )
    return winnow(f"model={path}", *(check or ("checker=finite", "checker.flaky=never")), folder=folder / "run")


AFTER = ("Softmax", "masked", "shares"), ("MatMul", "shares x", "mixed"), ("Neg", "mixed", "z")
WHERE = ("Abs", "x", "scores"), ("Where", "mask scores least", "masked"), *AFTER
ADDED = ("Abs", "x", "scores"), ("Unsqueeze", "rows first", "more"), ("Squeeze", "more first", "again")
ADDED = *ADDED, ("Add", "scores again", "masked"), *AFTER


@pytest.mark.slow
@pytest.mark.parametrize("given", [WHERE, ADDED])
def test_a_row_that_is_masked_whole_is_a_nan_of_the_softmax(given: tuple, tmp_path: Path) -> None:
    weights = {
        "mask": EMPTY,
        "least": np.array(-INF, np.float32),
        "rows": np.where(EMPTY, np.float32(0), -INF).astype(np.float32),
        "first": np.array([0], np.int64),
    }
    read = {name for _, reads, _ in given for name in reads.split()}
    run = reduced(tmp_path, given, {name: value for name, value in weights.items() if name in read})
    assert (run.code, run.result["culprits"], run.result["signature"]["kind"]) == (0, ["shares"], "nan"), run.output
    assert "the model file fails with nan" not in run.output


@pytest.mark.slow
def test_a_mask_that_reaches_an_output_is_what_is_found(tmp_path: Path) -> None:
    given = ("Abs", "x", "scores"), ("Where", "mask scores least", "masked"), ("Neg", "masked", "z")
    run = reduced(tmp_path, given, {"mask": EMPTY, "least": np.array(-INF, np.float32)})
    assert (run.code, run.result["culprits"], run.result["signature"]["kind"]) == (0, ["masked"], "inf"), run.output


def test_a_weight_that_is_infinite_is_at_fault_where_it_is_multiplied(tmp_path: Path) -> None:
    weight = np.ones((SIZE, SIZE), np.float32)
    weight[2, 3] = INF
    given = ("Abs", "x", "a"), ("MatMul", "a weight", "b"), ("Sin", "b", "c"), ("Neg", "c", "z")
    run = reduced(tmp_path, given, {"weight": weight})
    assert (run.code, run.result["culprits"]) == (0, ["b"]), run.output


@pytest.mark.slow
@pytest.mark.parametrize(("after", "sign"), [("LayerNormalization", -1), ("LayerNormalization", 1), ("Softmax", 1)])
def test_a_bias_that_is_infinite_is_at_fault_and_not_what_makes_a_nan_of_it(
    after: str, sign: int, tmp_path: Path
) -> None:
    bias, scale = np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)
    bias[2] = sign * INF
    reads = "b scale" if after == "LayerNormalization" else "b"
    given = ("Abs", "x", "a"), ("Add", "a bias", "b"), (after, reads, "c"), ("Neg", "c", "z")
    run = reduced(tmp_path, given, {"bias": bias} | ({"scale": scale} if reads == "b scale" else {}))
    assert (run.code, run.result["culprits"]) == (0, ["b"]), run.output


@pytest.mark.slow
def test_an_overflow_under_a_mask_is_the_fault(tmp_path: Path) -> None:
    """What overflows is Inf before the mask adds its own to it."""
    given = ("Exp", "x", "e"), ("Mul", "e huge", "scores"), ("Add", "scores rows", "masked"), *AFTER
    rows = np.where(np.tril(np.ones((SIZE, SIZE), bool)), np.float32(0), -INF).astype(np.float32)
    run = reduced(tmp_path, given, {"huge": np.float32(3e38), "rows": rows})
    assert (run.code, run.result["culprits"]) == (0, ["scores"]), run.output


FINITE = """
import numpy as np, onnxruntime as ort
BEFORE
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
feeds = dict(np.load(sys.argv[2]))
made = session.run(None, {one.name: feeds[one.name] for one in session.get_inputs()})
sys.exit(int(not all(np.isfinite(value).all() for value in made)))
"""
WRONG = """
for node in model.graph.node:
    if node.op_type == "Tanh":
        node.op_type = "Log"
"""


@pytest.mark.parametrize("whose", ["the model's", pytest.param("the runtime's", marks=pytest.mark.slow)])
def test_a_check_for_nan_is_not_led_to_a_mask(whose: str, tmp_path: Path) -> None:
    """The mask's -Inf is the first that is handed out; what makes a NaN comes after it."""
    last = (("Sub", "mixed mixed", "zero"), ("Div", "zero zero", "bad"), ("Add", "bad mixed", "z"))
    if whose == "the runtime's":
        last = (("Neg", "mixed", "low"), ("Tanh", "low", "bad"), ("Add", "bad mixed", "z"))
    first = (
        ("Abs", "x", "size"),
        ("Exp", "size", "high"),
        ("Neg", "high", "scores"),
        ("Where", "mask scores least", "masked"),
    )
    given = *first, *AFTER[:2], *last
    weights = {"mask": np.tril(np.ones((SIZE, SIZE), bool)), "least": np.array(-INF, np.float32)}
    body = FINITE.replace("BEFORE", WRONG if whose == "the runtime's" else "")
    check = by_command(check_script(tmp_path, body), "{inputs}")
    run = reduced(tmp_path, given, weights, *check, "inputs.ranges={x: [1, 2]}")
    assert (run.code, run.result["culprits"]) == (0, ["bad"]), run.output
